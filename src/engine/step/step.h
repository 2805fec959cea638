// One of the two steps that take turns: its plan, its inputs at fixed addresses, what came out.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "engine/graph_shapes.h"
#include "engine/masks/step_masks.h"
#include "engine/step/slot_owner.h"
#include "engine/step/vision_step.h"
#include "model/batch.h"
#include "sample/sampler.h"
#include "sample/staged.h"
#include "sched/scheduler.h"

namespace tern::engine {

// How a row of the plan maps to what was asked of the sampler.
struct StepRow {
  Generation* generation = nullptr;
  int sample_row = -1;       // number in the sampling batch; -1: the row samples nothing
  int mask = -1;             // number in StepMasks; -1: waits for none
  int logprobs = -1;         // request number of the sampled token's log-probs
  int prompt_logprobs = -1;  // request number of the first scored prompt token of this row
  int prompt_scored = 0;     // how many follow it
};

struct Step {
  // `pictures`: the rows that tokens of pictures take; empty for a model without a tower. `shares`: null, or the other
  // step, whose device addresses this one takes too: what is captured then serves both.
  static Expected<Step> create(const model::BatchLimits& limits, const sample::SamplerLimits& sampling,
                               const TensorView& pictures, device::Device& device, const Step* shares = nullptr);
  // Fills the batch's inputs of row `row` from the sequence's known ids and blocks.
  struct RowSource {
    std::span<const int32_t> tokens;  // known ids of the sequence
    std::span<const int32_t> blocks;
    int block_size = 0;
    int prompt = 0;                      // tokens of it
    std::span<const int32_t> positions;  // [3, prompt], or empty: as counted
    int rope_delta = 0;                  // position of a token after the prompt minus its index
  };
  void begin();
  // Brings the memory that plain rows are written to into the cache, for as many rows as there were last.
  void prefetch() const;
  // Adds rows of the plan from `row` on, and what they sample, as long as they are plain ones, and returns the next:
  // the same as add_row() and what asks the sampler, without a look at the sequences but where a block begins. None
  // when rows before had other than one token and one logit row.
  size_t add_plain_rows(size_t row, std::span<const SlotOwner> owners, int block_size,
                        const sched::Scheduler& scheduler);
  void add_row(const sched::PlanRow& row, const RowSource& source);
  // Tokens [token, token + taken.size()) of the batch take these rows of the pictures.
  void take_pictures(int token, std::span<const int32_t> taken);
  void finish();  // sizes and views; after the last row

  // The rank's thread. Fills up to the sizes of a graph: further tokens go to the null block and belong to no row,
  // further rows have no tokens, further logit rows repeat the first one.
  void pad(const StepShape& shape);
  // What a graph of that shape reads: this step's addresses and those sizes, for contexts of any length up to
  // `max_context_len`.
  model::Batch view(const StepShape& shape, int max_context_len) const;
  // A batch of that shape that reads and writes the null block alone, to be run before it is captured.
  void fill_idle(const StepShape& shape);
  // Queues the copies to the device: the inputs, and the rows to sample.
  Status upload(device::Device& device, device::Stream stream) const;
  // The same for a step that a graph of that shape runs, padded to it. What the graph copies itself, of `samples` rows
  // to sample; of the block table that is what has changed. And what few steps have besides, to be queued before.
  void list_inputs(const StepShape& shape, int samples, sample::CopyList& list) const;
  Status upload_rest(device::Device& device, device::Stream stream) const;
  // [C, 2]: places in the block table and what they hold now (ops::ResolveIdsParams).
  TensorView table_changes(const StepShape& shape) const;

  sched::Plan plan;
  std::span<StepRow> rows;  // as plan.rows, from begin() on
  model::Batch batch;
  sample::SamplingBatch sampling;
  VisionStep vision;
  StepMasks masks;

  // Of the rank thread until it has said that the step is done.
  Status status;
  bool replayed = false;  // forward was a graph
  bool sampled = false;   // which sampled, too

 private:
  void set_views(model::Batch& b) const;
  void list_arrays(int tokens, int sequences, int logit_rows, sample::CopyList& list) const;
  bool know_plain(size_t row, std::span<const SlotOwner> owners, int block_size, const sched::Scheduler& scheduler);
  void fill_plain(int begin, int end, int block_size);
  void fill_straight(int begin, int end, bool straight);
  int32_t copy_table(int row, int used, uint64_t table, std::span<const int32_t> blocks);
  void change_table(int row, int used, uint64_t table);
  int changes_of(const StepShape& shape) const { return shape.rows + kMoreChanges; }

  model::BatchLimits limits_;
  int sent_tokens_ = 0, sent_rows_ = 0, sent_logit_rows_ = 0;  // padded
  int table_columns_ = 0;                                      // blocks of the longest row
  static constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
  // What lies in a row of the host's block table since this step last had one: the next turn adds what is new. And,
  // with `plain_from` below kNever, what a SlotOwner has said of the plain row that it was; its StepRow still stands.
  struct KnownRow {
    uint64_t table = 0;
    int32_t used = 0, last = 0;  // entries, and the last of them
    int32_t prompt = 0, rope_delta = 0, plain_from = kNever;
    uint32_t processors = 0;
  };
  std::vector<KnownRow> known_;
  std::vector<StepRow> row_memory_;
  // What the device's block table holds after the step that was filled last: both steps know it. Null: one memory.
  struct SentRow {
    uint64_t table = 0;
    int32_t used = 0;
  };
  std::shared_ptr<std::vector<SentRow>> sent_table_;
  // Leading places where token_ids_, token_source_, row_start_, logit_index_ and picture_row_ hold what they hold for
  // plain rows that all come after plain rows, in this step and the one before. (In one memory with the device the ids
  // are those of this step's last turn: whatever has a source is overwritten before it is read.)
  int straight_ = 0;
  static constexpr int kMoreChanges = 32;      // than rows: blocks of prompts
  int changes_ = 0;                            // entries of the block table that the device lacks
  int first_changed_ = 0, last_changed_ = -1;  // rows of them
  TensorView pictures_;
  sample::Staged<int32_t> token_ids_, token_source_, positions_, row_start_, context_len_, block_table_, logit_index_,
      picture_row_, table_changes_;
  sample::Staged<int64_t> slot_mapping_;
};

}  // namespace tern::engine
