#include "engine/ranks/lockstep.h"

#include <algorithm>
#include <utility>

namespace tern::engine {

Lockstep::Lockstep(int engines, int ranks_of_each, std::unique_ptr<device::CommunicatorGroup> experts)
    : ranks_(ranks_of_each), experts_(std::move(experts)), seats_(static_cast<size_t>(engines)) {}

void Lockstep::join(int engine, void (*wake)(void*), void* context) {
  const std::lock_guard lock(mutex_);
  Seat& s = seat(engine);
  s.wake = wake, s.context = context, s.joined = true;
}

void Lockstep::leave(int engine) {
  const std::lock_guard lock(mutex_);
  Seat& s = seat(engine);
  s.wake = nullptr, s.joined = false;
}

void Lockstep::launched(int engine, uint64_t steps) {
  const std::lock_guard lock(mutex_);
  seat(engine).launched = steps;
  for (Seat& other : seats_) {
    if (other.launched < steps && other.wake != nullptr) other.wake(other.context);
  }
}

bool Lockstep::behind(int engine) const {
  const std::lock_guard lock(mutex_);
  const uint64_t mine = seats_[static_cast<size_t>(engine)].launched;
  return std::ranges::any_of(seats_, [mine](const Seat& s) { return s.launched > mine; });
}

bool Lockstep::may_end(int engine) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(seat(engine).ended, true)) {
    for (Seat& other : seats_) {
      if (&other != &seat(engine) && other.wake != nullptr) other.wake(other.context);
    }
  }
  const uint64_t steps = seat(engine).launched;
  return failed_ ||
         std::ranges::all_of(seats_, [steps](const Seat& s) { return !s.joined || (s.ended && s.launched == steps); });
}

Status Lockstep::meet(int engine, int32_t tokens, std::span<int32_t> all) {
  std::unique_lock lock(mutex_);
  Seat& mine = seat(engine);
  // Nobody is further than one step ahead of who still reads this one.
  const size_t turn = mine.met % 2;
  const uint64_t number = ++mine.met;
  mine.tokens[turn] = tokens;
  met_.notify_all();
  met_.wait(lock, [&] {
    return failed_ || std::ranges::all_of(seats_, [number](const Seat& s) { return s.met >= number; });
  });
  if (failed_) return make_error(ErrorCode::kUnavailable, "another engine has failed");
  for (size_t e = 0; e < seats_.size(); ++e) all[e] = seats_[e].tokens[turn];
  return {};
}

void Lockstep::fail() {
  {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    for (Seat& s : seats_) {
      if (s.wake != nullptr) s.wake(s.context);
    }
  }
  met_.notify_all();
  experts_->fail();
}

}  // namespace tern::engine
