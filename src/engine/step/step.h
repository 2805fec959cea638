// One of the two steps that take turns: its plan, its inputs at fixed addresses, what came out.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "engine/graph_shapes.h"
#include "engine/masks/step_masks.h"
#include "engine/step/block_table.h"
#include "engine/step/plain_rows.h"
#include "engine/step/slot_owner.h"
#include "engine/step/step_inputs.h"
#include "engine/step/step_row.h"
#include "engine/step/vision_step.h"
#include "model/batch.h"
#include "model/model.h"
#include "sample/sampler.h"
#include "sample/staged.h"
#include "sched/scheduler.h"

namespace tern::engine {

struct Step {
  struct Parts {
    model::BatchLimits limits;
    sample::SamplerLimits sampling;
    TensorView pictures;  // the rows that tokens of pictures take; empty for a model without a tower
    int ranks = 1;        // that share the model
    int pooled = 0;       // values of a row of a pooling model; 0: rows are sampled
  };
  // `shares`: null, or the other step, whose device addresses this one takes too: what is captured then serves both.
  static Expected<Step> create(const Parts& parts, device::Device& device, const Step* shares = nullptr);
  // What a rank has of `of`: its inputs, from the same host memory, on the rank's device; the rows that it draws are
  // its own (`parts.sampling`: of them). follow() brings it up to date.
  static Expected<Step> of_rank(const Step& of, const Parts& parts, device::Device& device, const Step* shares);
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
  // Adds rows of the plan from `row` on, and what they sample, as long as they are plain ones, and returns the next
  // (PlainRows::add).
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
  // Of a rank's step: the batch is that of `of`, which is filled and padded; nothing is drawn yet.
  void follow(const Step& of);
  // Of several ranks: who draws each of the logit rows, padding included.
  std::span<int32_t> owners() const { return {inputs_.owner.host(), static_cast<size_t>(sent_logit_rows_)}; }
  const int32_t* device_owners() const { return inputs_.owner.device(); }
  // [C, 2]: places in the block table and what they hold now (ops::ResolveIdsParams).
  TensorView table_changes(const StepShape& shape) const { return table_.changes(shape.rows); }

  sched::Plan plan;
  std::span<StepRow> rows;  // as plan.rows, from begin() on
  model::Batch batch;
  sample::SamplingBatch sampling;
  VisionStep vision;
  StepMasks masks;

  // Of a pooling model: what its logit rows hold, [max_logit_rows, pooled] on the host, once the step is done.
  Status download_pooled(TensorView values, device::Device& device, device::Stream stream) const;
  bool pools() const { return pooled_ > 0; }
  std::span<const float> pooled(int logit_row) const {
    const auto width = static_cast<size_t>(pooled_);
    return {reinterpret_cast<const float*>(pooled_rows_.data()) + static_cast<size_t>(logit_row) * width, width};
  }

  // Of the rank thread until it has said that the step is done.
  Status status;
  bool replayed = false;  // forward was a graph
  bool sampled = false;   // which sampled, too
  // Of engines that share experts: the tokens of each in this step, which rank 0's thread fills in.
  std::span<int32_t> engine_tokens(int engines) { return {engine_tokens_.data(), static_cast<size_t>(engines)}; }
  std::span<const int32_t> engine_tokens(int engines) const {
    return {engine_tokens_.data(), static_cast<size_t>(engines)};
  }

 private:
  static Expected<Step> make(const Parts& parts, device::Device& device, const Step* shares, const Step* of);
  void set_views(model::Batch& b) const;

  model::BatchLimits limits_;
  int sent_tokens_ = 0, sent_rows_ = 0, sent_logit_rows_ = 0;  // padded
  std::vector<StepRow> row_memory_;
  TensorView pictures_;
  StepInputs inputs_;
  BlockTable table_;
  PlainRows plain_;
  int pooled_ = 0;
  device::Buffer pooled_rows_;
  std::array<int32_t, model::kMostExpertRanks> engine_tokens_{};
};

}  // namespace tern::engine
