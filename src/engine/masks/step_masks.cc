#include "engine/masks/step_masks.h"

#include <algorithm>
#include <thread>

#include "base/check.h"

namespace tern::engine {
namespace {

bool waits(const MaskRow& row) {
  const MaskState state = row.state.load(std::memory_order_acquire);
  return state == MaskState::kWaiting || state == MaskState::kWriting;
}

}  // namespace

int StepMasks::add(int step_row, int sample_row, std::span<uint32_t> bits) {
  TERN_CHECK(count_ < most_);
  MaskRow& row = rows_[count_];
  row.state.store(MaskState::kWaiting, std::memory_order_relaxed);
  row.bits = bits;
  row.forced.clear();
  row.forced.reserve(Guide::kMostForced);
  row.asked = false;
  row.step_row = step_row, row.sample_row = sample_row;
  return static_cast<int>(count_++);
}

bool StepMasks::waiting() const { return std::ranges::any_of(rows(), waits); }

bool StepMasks::any_ready() const {
  return std::ranges::any_of(rows(), [](const MaskRow& row) { return !waits(row); });
}

void StepMasks::close() {
  for (MaskRow& row : rows()) {
    MaskState waiting = MaskState::kWaiting;
    row.state.compare_exchange_strong(waiting, MaskState::kMissed, std::memory_order_acq_rel);
    while (row.state.load(std::memory_order_acquire) == MaskState::kWriting) std::this_thread::yield();
  }
}

}  // namespace tern::engine
