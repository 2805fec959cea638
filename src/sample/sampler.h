// The second submission of a step: from logits to tokens and log-probabilities, for all rows of a batch.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "base/sampling_params.h"
#include "device/device.h"
#include "ops/sample.h"
#include "sample/draw_facts.h"
#include "sample/processors.h"
#include "sample/sampler_limits.h"
#include "sample/slot_state.h"
#include "sample/staged.h"

namespace tern::sample {

// What one step samples: filled by the engine thread, read by the rank thread, results read by the engine thread again.
// Two of them take turns; device addresses are fixed.
class SamplingBatch {
 public:
  // `shares`: null, or the batch whose device addresses this one takes too.
  static Expected<SamplingBatch> create(const SamplerLimits& limits, device::Device& device,
                                        const SamplingBatch* shares = nullptr);

  void clear();
  // A token to sample; `processors` are the bits this row needs now. Returns the row's number.
  int add(const ops::SampleRow& row, uint32_t processors);
  // `count` more of them, to be filled by the caller: each of the logit row after the one before, without a mask. Rows
  // of those that need more than kAtOnce are to be named.
  std::span<ops::SampleRow> add_rows(int count, uint32_t processors);
  void set_late(int row);
  // Brings the memory of that many rows into the cache.
  void prefetch(int rows) const;
  // Asks for the log-probs of the token sampled by `row` (the last one added), with `count` alternatives.
  void add_logprobs(const ops::SampleRow& row, const SamplingParams& params, uint32_t processors);
  // Asks for those of prompt token `target` under logit row `logit_row` (fastdeploy.md 3.9: raw, no processors).
  void add_prompt_logprobs(int32_t logit_row, int32_t target, int32_t count);
  // How many log-prob requests there are: the number the next one gets.
  int requests() const { return static_cast<int>(requests_.size()); }
  // The bitmask of a row that add() numbered and that asked for kMask: a 1 bit allows the id. [V / 32] words.
  std::span<uint32_t> mask(int row);

  int count() const { return count_; }
  uint32_t processors() const { return processors_; }  // of any row
  // The rank's thread. Rows [count(), rows) say that they are none: ops skip them. Of rows held back those that wait.
  void pad(int rows);
  // Rows that need more than kAtOnce or have log-probabilities asked for: they cannot be sampled with the others.
  int late() const { return late_count_; }
  // The rank's thread. Of the first `rows` rows, late ones and those from count() on say that they are none; late ones
  // are kept for upload_late(), after which the others say so.
  void hold_back(int rows);
  bool held_back() const { return held_back_; }
  // The rank's thread, before the row is sampled: it says nothing in this step.
  void drop(int row);
  void upload_late(CopyList& list) const;
  // Everything Sampler::run reads but masks and updates; or its parts: rows, as many as a graph takes, and requests for
  // log-probabilities.
  void upload(CopyList& list) const;
  void upload_rows(int rows, CopyList& list) const { rows_.upload(rows, list); }
  void upload_requests(CopyList& list) const;
  // Ids, statuses and probabilities of the first logit rows, back to the host.
  void download(int logit_rows, CopyList& list) const;
  int logit_rows() const { return logit_rows_; }  // that results are wanted of

  SlotUpdates updates;
  DrawFacts facts;  // rows that ask for them are late ones

  // Results, on the host once the step is done. By logit row:
  int32_t id(int32_t logit_row) const { return ids_[logit_row]; }
  ops::SampleStatus status(int32_t logit_row) const { return static_cast<ops::SampleStatus>(status_[logit_row]); }
  float prob(int32_t logit_row) const { return probs_[logit_row]; }
  // By order of add_logprobs / add_prompt_logprobs: entry 0 is the token, then the most likely ones.
  std::span<const ops::TokenScore> scores(int request) const;
  // [L] int32 on the device: what resolve_ids of the next step reads.
  TensorView device_ids() const { return tensor1(ids_.device(), DType::kI32, ids_.size()); }

 private:
  friend class Sampler;
  friend class SamplingDeal;
  ops::SampleRow* waiting_rows() const;  // where rows are written: beside rows_ while a graph may still copy those
  struct Scores {
    int32_t begin = 0, count = 0;
  };
  void ask(ops::LogprobRow row, bool captured);

  SamplerLimits limits_;
  int count_ = 0, sent_ = 0, masked_ = 0, late_count_ = 0, logit_rows_ = 0, captures_ = 0, plain_ = 0, captured_ = 0;
  int32_t score_count_ = 0;
  uint32_t processors_ = 0;
  bool held_back_ = false;
  bool updates_sent_ = false, dropped_ = false;
  std::vector<bool> late_;  // by row
  Staged<ops::SampleRow> rows_;
  device::Buffer late_rows_;  // of the host, as rows_
  Staged<uint32_t> masks_;
  Staged<int32_t> capture_rows_;
  Staged<ops::LogprobRow> plain_rows_, captured_rows_;  // over the logits, over the captured ones
  Staged<int32_t> ids_, status_;
  Staged<float> probs_;
  Staged<ops::TokenScore> scores_;
  std::vector<Scores> requests_;
};

class Sampler {
 public:
  static Expected<Sampler> create(const SamplerLimits& limits, device::Device& device);

  // Runs on the rank thread, after the forward pass of the same step and SamplingBatch::upload: logits [L, V]. Leaves
  // results on the host once the stream has passed: draw(), then finish().
  Status run(SamplingBatch& batch, TensorView logits, device::Device& device, device::Stream stream);
  Status draw(SamplingBatch& batch, TensorView logits, device::Device& device, device::Stream stream);
  // In its parts:
  // Slot updates, unless they have been sent; before the first sampling of the step.
  Status prepare(SamplingBatch& batch, device::Device& device, device::Stream stream);
  // Masks, when they are there, and which rows have been dropped since the upload.
  Status send_masks(const SamplingBatch& batch, device::Device& device, device::Stream stream);
  // Tokens of the first `rows` rows, with these processors; rows that did not ask for one are as without it. No
  // log-probabilities. Depends on addresses, `rows` and `processors` alone, and so can be captured.
  Status sample_tokens(const SamplingBatch& batch, TensorView logits, int rows, uint32_t processors,
                       device::Stream stream);
  // Results to the host.
  Status finish(const SamplingBatch& batch, device::Device& device, device::Stream stream);
  const SamplerLimits& limits() const { return limits_; }

 private:
  ops::LogitsParams rows(const SamplingBatch& batch, TensorView logits, int count) const;
  Status run_processors(const SamplingBatch& batch, const ops::LogitsParams& rows, uint32_t bits,
                        device::Stream stream);
  Status process_and_sample(const SamplingBatch& batch, const ops::LogitsParams& rows, uint32_t bits,
                            device::Stream stream);
  Status score(const SamplingBatch& batch, TensorView logits, device::Stream stream);
  TensorView captured() const { return tensor2(captured_.data(), DType::kF32, limits_.max_rows, limits_.vocab); }

  SamplerLimits limits_;
  SlotState slots_;
  device::Buffer captured_;  // [max_rows, V] f32
  device::Buffer workspace_;
};

}  // namespace tern::sample
