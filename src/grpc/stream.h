// One ModelStreamInfer: a request is read when the one before has been handed over, and one message is written at a
// time; the others wait in a queue, which says for every call how much of it waits.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "grpc/messages.h"
#include "serve/kserve/transport.h"

namespace tern::transport {

class InferStream final : public ::grpc::ServerGenericBidiReactor, public serve::kserve::Stream {
 public:
  // `errors_end_it`: the client asked for real status codes (triton_grpc_error).
  InferStream(serve::kserve::Host& host, ::grpc::GenericCallbackServerContext& context, size_t pause_bytes,
              bool errors_end_it);
  // Refused: it ends at once.
  void refuse(const serve::kserve::CallStatus& status);
  void start(uint64_t number);

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
  struct Item {
    uint64_t call = 0;
    size_t bytes = 0;
    ::grpc::ByteBuffer message;
  };
  struct Waiting {
    size_t bytes = 0;
    size_t watched = 0;  // Host::on_room when `bytes` is that or less, where `watch` is set
    bool watch = false;
  };
  using Lock = std::unique_lock<std::mutex>;

  ~InferStream() = default;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void take(std::string_view bytes);
  size_t push(Lock& lock, uint64_t call, ::grpc::ByteBuffer message, bool last);
  void go_on(Lock& lock);                     // writes, reads or finishes; gives the lock up
  void close();                               // nobody reads any more: told once
  bool account(uint64_t call, size_t bytes);  // sent or dropped; true: the call has room

  serve::kserve::Host& host_;
  ::grpc::GenericCallbackServerContext& context_;  // until OnDone
  const size_t pause_bytes_;
  const bool errors_end_it_;
  uint64_t number_ = 0;
  std::atomic<int> references_{1};  // gRPC's own, until OnDone
  std::atomic<bool> closed_{false};
  ::grpc::ByteBuffer in_;

  mutable std::mutex mutex_;
  std::deque<Item> queue_;
  Item current_;  // being written
  std::unordered_map<uint64_t, Waiting> waiting_;
  size_t unsent_ = 0;
  size_t open_ = 0;  // calls without their last message
  int64_t write_since_ns_ = 0;
  int starting_ = 0;  // threads that are starting a read or a write
  bool writing_ = false, reading_ = false, half_closed_ = false, cancelled_ = false, finished_ = false, done_ = false;
  bool ending_ = false;  // with status_, once the queue is empty
  ::grpc::Status status_;
  wire::ModelStreamInferResponse scratch_;
};

}  // namespace tern::transport
