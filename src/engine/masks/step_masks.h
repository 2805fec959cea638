// The rows of one step that wait for masks.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "engine/masks/guide.h"

namespace tern::engine {

class StepMasks {
 public:
  explicit StepMasks(size_t most = 0) : rows_(std::make_unique<MaskRow[]>(most)), most_(most) {}

  // The engine thread, while the step is not submitted. `bits`: where the sampler reads the row's mask. The number of
  // the row among these.
  void clear() { count_ = 0; }
  int add(int step_row, int sample_row, std::span<uint32_t> bits);
  std::span<MaskRow> rows() { return {rows_.get(), count_}; }
  std::span<const MaskRow> rows() const { return {rows_.get(), count_}; }
  size_t size() const { return count_; }

  // Any thread.
  bool waiting() const;    // a row still waits
  bool any_ready() const;  // a row need not wait any more
  // The rank's thread: rows that wait have missed this step; none is written to from here on.
  void close();

 private:
  std::unique_ptr<MaskRow[]> rows_;
  size_t most_ = 0, count_ = 0;
};

}  // namespace tern::engine
