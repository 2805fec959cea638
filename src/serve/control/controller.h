// Carries orders to the server out, one after the other: the engine, its memory, its weights (states.h says what each
// order does).
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>

#include "base/error.h"
#include "engine/client.h"
#include "serve/control/ask.h"
#include "serve/control/states.h"
#include "serve/control/weights.h"

namespace tern::serve::control {

class Controller {
 public:
  // `weights`: null where there is no model; what serves without one sleeps and wakes all the same.
  Controller(engine::EngineClient& engine, Weights* weights) : engine_(engine), weights_(weights) {}

  State state() const;
  // What /v1/update_weights called the weights; "": nothing.
  std::string version() const;
  // Requests that generate are not taken: also while an order leads there.
  bool shut() const { return shut_.load(std::memory_order_relaxed); }
  // Held while the parts of one request are submitted: a pause comes before all of them or behind all, so that no
  // answer begins on both sides of it.
  std::shared_lock<std::shared_mutex> submitting() { return std::shared_lock(door_); }

  struct Outcome {
    int code = 200;     // of Decision
    std::string error;  // "": done
  };
  // Returns when it is done, which may take long. One thread at a time.
  Outcome carry_out(const Ask& ask);
  // The order that is being carried out; any thread.
  std::optional<Order> busy() const;

 private:
  Status run(Step step, const Ask& ask);
  Status read_weights(const Ask& ask);
  Status tell(engine::ControlOrder order);
  void settle(const State& state);

  engine::EngineClient& engine_;
  Weights* const weights_;
  std::shared_mutex door_;
  mutable std::mutex mutex_;
  State state_;
  std::string version_;
  std::optional<Order> busy_;
  std::atomic<bool> shut_{false};
};

}  // namespace tern::serve::control
