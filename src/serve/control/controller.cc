#include "serve/control/controller.h"

#include <future>
#include <utility>

#include "base/log.h"

namespace tern::serve::control {

State Controller::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Controller::settle(const State& state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
}

std::string Controller::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

std::optional<Order> Controller::busy() const {
  const std::lock_guard lock(mutex_);
  return busy_;
}

Controller::Outcome Controller::carry_out(const Ask& ask) {
  const Decision decision = decide(state(), ask.order, ask.tags);
  if (!decision.refusal.empty()) return {decision.code, std::string(decision.refusal)};
  State end = state();
  for (const Step step : decision.steps) end = after(end, step);
  if (end.shut()) shut_.store(true);
  {
    const std::lock_guard lock(mutex_);
    busy_ = ask.order;
  }
  Outcome outcome;
  for (const Step step : decision.steps) {
    const Status done = run(step, ask);
    if (!done.ok()) {
      outcome = {500, done.error().message};
      TERN_WARN("control: {}", outcome.error);
      break;
    }
    settle(after(state(), step));
  }
  const std::lock_guard lock(mutex_);
  busy_.reset();
  shut_.store(state_.shut());
  return outcome;
}

Status Controller::tell(engine::ControlOrder order) {
  std::future<Status> done;
  {
    const std::unique_lock lock(door_);
    done = engine_.control(std::move(order));
  }
  return done.get();
}

Status Controller::run(Step step, const Ask& ask) {
  switch (step) {
    case Step::kStop:
      return tell({engine::Control::kPause, {}});
    case Step::kStopCleared:
      return tell({engine::Control::kPause, make_error(ErrorCode::kInvalidArgument, "Model weight cleared")});
    case Step::kForget:
      return tell({engine::Control::kForget, {}});
    case Step::kGiveCache:
      return tell({engine::Control::kGiveCache, {}});
    case Step::kTakeCache:
      return tell({engine::Control::kTakeCache, {}});
    case Step::kGiveWeights:
    case Step::kClearWeights:
      return weights_ != nullptr ? weights_->give_back() : Status();
    case Step::kReadWeights:
      return read_weights(ask);
    case Step::kStart:
      return tell({engine::Control::kResume, {}});
  }
  return {};
}

Status Controller::read_weights(const Ask& ask) {
  const bool fresh = ask.order == Order::kUpdate || ask.order == Order::kReload;
  if (weights_ == nullptr) {
    return ask.order == Order::kUpdate ? make_error(ErrorCode::kUnsupported,
                                                    "there is no model whose weights could be "
                                                    "replaced")
                                       : Status();
  }
  const Status read = weights_->read(ask.from);
  if (!read.ok()) {
    State now = state();
    if (!weights_->whole() && !now.cleared) settle(after(now, Step::kGiveWeights));
    return read;
  }
  if (fresh) {
    const std::lock_guard lock(mutex_);
    version_ = ask.version;
  }
  return {};
}

}  // namespace tern::serve::control
