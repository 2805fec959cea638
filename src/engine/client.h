// How serve sees an engine: an inbox, an outbox, and figures. The real engine and the echo engine of the protocol tests
// both stand behind it.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "engine/control.h"
#include "engine/request.h"

namespace tern::engine {

class EngineClient {
 public:
  virtual ~EngineClient() = default;
  // Takes a request. Errors: inbox full (kResourceExhausted), draining or dead (kUnavailable). What goes wrong later
  // comes back as a Delta with kError. Callable from any thread.
  virtual Status submit(Request request) = 0;
  // Ends a request within one step; its last Delta has kAbort. Unknown ids are ignored. Callable from any thread.
  virtual void abort(RequestId id) = 0;
  // Waits up to `timeout` and appends what has come out to `out`. False once the engine has ended and everything was
  // taken. One thread calls it.
  virtual bool poll(std::vector<Delta>& out, std::chrono::milliseconds timeout) = 0;
  virtual EngineStats stats() const = 0;
  // Of each engine behind this one; any thread.
  virtual std::vector<EngineStats> parts() const { return {stats()}; }
  // Hashes of the prompt's full blocks, and tokens of such blocks that the prefix cache holds now: what says where a
  // request goes (placement.h). Any thread. Nothing where no engine asks, or there is no such cache.
  virtual std::vector<Hash128> prefix_hashes(const Request& /*request*/) const { return {}; }
  virtual int64_t cached_tokens(std::span<const Hash128> /*hashes*/) const { return 0; }
  virtual bool healthy() const = 0;
  // Between two steps, after what was submitted before. The result comes once it is done: kPause, when no step is open.
  // Any thread; orders are given one after the other.
  virtual std::future<Status> control(ControlOrder order) = 0;
  // No new requests; ends when the open ones have, or at once with `now` (they get kAbort).
  virtual void shutdown(bool now) = 0;
};

}  // namespace tern::engine
