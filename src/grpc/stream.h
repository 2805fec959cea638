// One ModelStreamInfer: a request is read when the one before has been handed over, and one message is written at a
// time; the others wait in a queue, which says for every call how much of it waits.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "grpc/messages.h"
#include "grpc/queue.h"
#include "serve/kserve/transport.h"

namespace tern::transport {

class InferStream final : public serve::kserve::Stream, private Call::User, private Turn {
 public:
  // `errors_end_it`: the client asked for real status codes (triton_grpc_error).
  InferStream(uint64_t number, serve::kserve::Host& host, Call& call, size_t pause_bytes, bool errors_end_it);
  // Refused: it ends at once.
  void refuse(const serve::kserve::CallStatus& status);
  void start();

  size_t send(uint64_t call, std::string_view id, std::string_view out, bool last) override;
  void fail(uint64_t call, std::string_view id, const serve::kserve::CallStatus& status) override;
  void forget(uint64_t call) override;
  void watch(uint64_t call, size_t bytes) override;
  size_t unsent() const override;
  size_t unsent(uint64_t call) const override;
  int64_t stalled_since_ns() const override;
  void finish(const serve::kserve::CallStatus& status) override;
  void cancel() override;
  bool closed() const override { return closed_.load(std::memory_order_acquire); }
  void retain() override { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() override;

 private:
  struct Waiting {
    size_t bytes = 0;
    size_t watched = 0;  // Host::on_room when `bytes` is that or less, where `watch` is set
    bool watch = false;
  };
  struct Item {
    uint64_t call = 0;
    size_t bytes = 0;
    Waiting* waiting = nullptr;
    bool last = false;  // of its call
    ::grpc::ByteBuffer message;
  };
  using Lock = std::unique_lock<std::mutex>;

  ~InferStream() = default;
  void on_read(bool ok) override;
  void on_written(bool ok) override;
  void on_cancelled() override;
  void on_ended() override;
  void turn() override;

  void take(std::string_view bytes);
  size_t push(Lock& lock, uint64_t call, ::grpc::ByteBuffer message, bool last);
  void ask(Lock& lock);            // for a turn; gives the lock up
  void go_on(Lock& lock);          // writes, reads or finishes; on the queue's thread; gives the lock up
  void close();                    // nobody reads any more: told once
  bool account(const Item& item);  // sent or dropped; true: the call has room

  const uint64_t number_;
  serve::kserve::Host& host_;
  Call& call_;  // until `done_`
  CallQueue& queue_;
  const size_t pause_bytes_;
  const bool errors_end_it_;
  std::atomic<int> references_{1};  // the call's own, until it has ended
  std::atomic<bool> closed_{false};
  ::grpc::ByteBuffer in_;

  mutable std::mutex mutex_;
  std::deque<Item> items_;
  Item current_;                                   // being written
  std::unordered_map<uint64_t, Waiting> waiting_;  // by call, from its first message to its last
  size_t unsent_ = 0;
  size_t open_ = 0;  // calls without their last message
  int64_t write_since_ns_ = 0;
  bool asked_ = false;  // for a turn
  bool begun_ = false;  // something has been written
  bool writing_ = false, reading_ = false, half_closed_ = false, cancelled_ = false, finished_ = false, done_ = false;
  bool ending_ = false;  // with status_, once nothing waits
  ::grpc::Status status_;
};

}  // namespace tern::transport
