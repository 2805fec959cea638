// Steady decode rows of a step, many at once: what Step::add_row() and what asks the sampler would write for each, from
// dense values and from what the step before last left in place (tests/step_rows_test.cc holds the bytes equal).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/step/block_table.h"
#include "engine/step/slot_owner.h"
#include "engine/step/step_inputs.h"
#include "engine/step/step_row.h"
#include "sample/sampler.h"
#include "sched/scheduler.h"

namespace tern::engine {

class PlainRows {
 public:
  // The parts of the step that rows are added to.
  struct Target {
    const sched::Plan& plan;
    std::span<StepRow> rows;
    model::Batch& batch;
    sample::SamplingBatch& sampling;
    StepInputs& inputs;
    BlockTable& table;
  };

  explicit PlainRows(size_t rows = 0) : known_(rows) {}
  void prefetch(size_t rows) const;
  // Another turn begins; `last`: what the one before had, behind which there is padding.
  void begin(const model::Batch& last);
  // Adds rows of the plan from `row` on, and what they sample, as long as they are plain ones, and returns the next.
  // None when rows before had other than one token and one logit row.
  size_t add(size_t row, const Target& to, std::span<const SlotOwner> owners, int block_size,
             const sched::Scheduler& scheduler);
  void forget(int row);        // it is another one now
  void overwritten(int from);  // inputs of tokens from there on

 private:
  static constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
  // With `plain_from` below kNever: what a SlotOwner has said of the plain row that lies here, as long as its block
  // table is the same; its StepRow still stands.
  struct Known {
    int32_t prompt = 0, rope_delta = 0, plain_from = kNever;
    uint32_t processors = 0;
  };
  bool know(size_t row, const Target& to, std::span<const SlotOwner> owners, int block_size,
            const sched::Scheduler& scheduler);
  void fill(int begin, int end, int block_size, const Target& to) const;
  void fill_straight(int begin, int end, bool straight, const Target& to);
  void sample(int begin, int end, uint32_t processors, const Target& to) const;

  std::vector<Known> known_;
  // Leading places where token_ids, token_source, row_start, logit_index and picture_row hold what they hold for plain
  // rows that all come after plain rows, in this step and the one before. (In one memory with the device the ids are
  // those of this step's last turn: whatever has a source is overwritten before it is read.)
  int straight_ = 0;
};

}  // namespace tern::engine
