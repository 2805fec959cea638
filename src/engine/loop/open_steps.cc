#include "engine/loop/open_steps.h"

#include <algorithm>

#include "base/clock.h"

namespace tern::engine {

void OpenSteps::launch() {
  if (launched_++ == collected_) oldest_since_ = monotonic_ns();
}

void OpenSteps::collect() {
  replayed_ += oldest().replayed;
  ++collected_;
  oldest_since_ = monotonic_ns();
}

bool OpenSteps::has_rows(const Generation& g, uint64_t skip) const {
  const auto named = [&g](const StepRow& row) { return row.generation == &g; };
  for (uint64_t step = collected_ + skip; g.admitted && step < launched_; ++step) {
    if (std::ranges::any_of(steps_[step % 2]->rows, named)) return true;
  }
  return false;
}

}  // namespace tern::engine
