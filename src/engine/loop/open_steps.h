// The two steps that take turns: which are launched and not collected yet, in order. Step n is steps[n % 2].
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "engine/step/step.h"

namespace tern::engine {

class OpenSteps {
 public:
  explicit OpenSteps(const std::array<std::unique_ptr<Step>, 2>& steps) : steps_{steps[0].get(), steps[1].get()} {}

  uint64_t launched() const { return launched_; }
  uint64_t collected() const { return collected_; }
  uint64_t replayed() const { return replayed_; }  // collected steps whose forward pass was a graph
  bool none() const { return launched_ == collected_; }
  bool full() const { return launched_ - collected_ == 2; }
  Step& oldest() const { return *steps_[collected_ % 2]; }  // the next to collect, where any is open
  Step& next() const { return *steps_[launched_ % 2]; }     // the next to fill, unless full
  // The step launched last, open or not; null before the first.
  const Step* last() const { return launched_ == 0 ? nullptr : steps_[(launched_ - 1) % 2]; }
  int64_t oldest_since() const { return oldest_since_; }  // when the oldest step became that

  void launch();   // next() has been submitted
  void collect();  // oldest() has been taken in

  // Whether open steps, without the `skip` oldest, have a row of it: it must stay.
  bool has_rows(const Generation& g, uint64_t skip = 0) const;

 private:
  std::array<Step*, 2> steps_;
  uint64_t launched_ = 0, collected_ = 0, replayed_ = 0;
  int64_t oldest_since_ = 0;
};

}  // namespace tern::engine
