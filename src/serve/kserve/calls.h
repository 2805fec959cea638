// The calls of one I/O thread: requests that came over a stream of the KServe transport, while they are answered. What
// is asked over them is their user's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "serve/config.h"
#include "serve/core/reader.h"
#include "serve/kserve/stream_ref.h"

namespace tern::serve::kserve {

// Numbers of calls; those of connections lie below.
inline constexpr uint64_t kCallBit = uint64_t{1} << 63;

// A request that came over a stream, and will be answered.
struct NewCall {
  uint64_t call = 0, stream = 0;  // numbers
  StreamRef from;
  std::string id;  // that its answers carry
  int key_index = 0;
  uint64_t owner = 0;
  std::shared_ptr<std::atomic<bool>> cancelled;  // tells its preparation to stop
};

class Calls;

class Call final : public Reader {
 public:
  Call(NewCall&& m, Calls& home);
  bool congested() const override { return congested_; }
  void begin_stream() override { streaming = true; }
  std::string& stream_out() override { return out_; }
  void touch() override;
  void end_stream() override;
  void respond(http::Response response) override;
  bool tell(const Error& error) override;
  void drop() override;

 private:
  friend class Calls;
  Calls& home_;
  const uint64_t stream_;
  StreamRef from_;
  const std::string name_;
  std::shared_ptr<std::atomic<bool>> cancelled_;
  std::string out_;  // messages as JSON, a line each
  bool congested_ = false, touched_ = false, gone_ = false;
};

class Calls {
 public:
  class User {
   public:
    virtual ~User() = default;
    virtual void on_room(Reader& reader) = 0;  // the client has read: there is room for more
    virtual void on_drop(Reader& reader) = 0;  // the client is gone or has lost its right to stay
  };
  Calls(const HttpLimits& limits, User& user) : limits_(limits), user_(user) {}

  bool empty() const { return all_.empty(); }
  bool unsent() const;
  Call* find(uint64_t id);
  void add(NewCall&& m);
  void close_stream(uint64_t stream);  // nobody reads it any more
  void room(uint64_t call);
  // The engine has ended: streams with calls end with that status.
  void end_all(const CallStatus& status);
  void sweep(int64_t now_ns);
  void end_turn();  // sends what there is, forgets who is gone
  void close();     // of all, for good

 private:
  friend class Call;
  struct StreamState {
    StreamRef stream;
    std::vector<uint64_t> calls;
    int64_t lost_ns = 0;  // since when a standing stream has no calls left
  };
  void touch(Call& call);
  void flush(Call& call, bool last);
  void fail(Call& call, const CallStatus& status);
  void drop(Call& call);
  void forget(Call& call);
  void sweep_stream(StreamState& state, int64_t now_ns);

  const HttpLimits& limits_;
  User& user_;
  std::unordered_map<uint64_t, std::unique_ptr<Call>> all_;
  std::unordered_map<uint64_t, StreamState> streams_;
  std::vector<uint64_t> touched_, gone_;
  std::string message_;
};

}  // namespace tern::serve::kserve
