#include "sample/sampler.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/memory/prefetch.h"
#include "ops/thinking.h"

namespace tern::sample {
namespace {

bool is_raw(LogprobsMode m) { return m == LogprobsMode::kRawLogprobs || m == LogprobsMode::kRawLogits; }
bool is_logits(LogprobsMode m) { return m == LogprobsMode::kRawLogits || m == LogprobsMode::kProcessedLogits; }
ops::SampleRow no_row() {
  ops::SampleRow none;
  none.logit_row = none.slot = -1;
  return none;
}
int64_t mask_words(int64_t vocab) { return (vocab + 31) / 32; }

}  // namespace

Expected<SamplingBatch> SamplingBatch::create(const SamplerLimits& l, device::Device& device,
                                              const SamplingBatch* shares) {
  SamplingBatch b;
  b.limits_ = l;
  const int64_t scores = static_cast<int64_t>(l.max_logit_rows) * (1 + std::min<int64_t>(l.max_logprobs, l.vocab));
  const auto make = [&]<class T>(Staged<T> SamplingBatch::*array, int64_t n) -> Status {
    TERN_ASSIGN_OR_RETURN(b.*array, Staged<T>::create(n, device, shares == nullptr ? nullptr : &(shares->*array)));
    return {};
  };
  TERN_RETURN_IF_ERROR(make(&SamplingBatch::rows_, l.max_rows));
  TERN_ASSIGN_OR_RETURN(b.late_rows_, device.allocate_host(static_cast<size_t>(l.max_rows) * sizeof(ops::SampleRow)));
  TERN_RETURN_IF_ERROR(make(&SamplingBatch::masks_, l.masks ? l.max_rows * mask_words(l.vocab) : 0));
  TERN_RETURN_IF_ERROR(make(&SamplingBatch::capture_rows_, l.max_rows));
  TERN_RETURN_IF_ERROR(make(&SamplingBatch::plain_rows_, l.max_logit_rows));
  TERN_RETURN_IF_ERROR(make(&SamplingBatch::captured_rows_, l.max_rows));
  TERN_RETURN_IF_ERROR(make(&SamplingBatch::ids_, l.max_logit_rows));
  TERN_RETURN_IF_ERROR(make(&SamplingBatch::status_, l.max_logit_rows));
  TERN_RETURN_IF_ERROR(make(&SamplingBatch::probs_, l.max_logit_rows));
  TERN_RETURN_IF_ERROR(make(&SamplingBatch::scores_, scores));
  TERN_ASSIGN_OR_RETURN(b.updates, SlotUpdates::create(l.slots, device));
  TERN_ASSIGN_OR_RETURN(b.facts, DrawFacts::create(l, device, shares ? &shares->facts : nullptr));
  std::fill(b.ids_.host(), b.ids_.host() + b.ids_.size(), 0);  // rows may be read that never said anything
  b.late_.resize(static_cast<size_t>(l.max_rows));
  b.requests_.reserve(static_cast<size_t>(l.max_logit_rows));
  return b;
}

void SamplingBatch::clear() {
  updates.clear();
  facts.clear();
  requests_.clear();
  count_ = sent_ = masked_ = late_count_ = logit_rows_ = captures_ = plain_ = captured_ = 0;
  score_count_ = 0;
  processors_ = 0;
  held_back_ = updates_sent_ = dropped_ = false;
}

int SamplingBatch::add(const ops::SampleRow& row, uint32_t processors) {
  TERN_CHECK(count_ < limits_.max_rows && row.logit_row < limits_.max_logit_rows);
  rows_[count_] = row;
  rows_[count_].mask_row = (processors & kMask) != 0 ? masked_++ : -1;
  late_[static_cast<size_t>(count_)] = false;
  if ((processors & ~kAtOnce) != 0) set_late(count_);
  processors_ |= processors;
  logit_rows_ = std::max(logit_rows_, row.logit_row + 1);
  sent_ = count_ + 1;
  return count_++;
}

std::span<ops::SampleRow> SamplingBatch::add_rows(int count, uint32_t processors) {
  const int logit_rows = count_ + count;
  TERN_CHECK(logit_rows <= limits_.max_rows && logit_rows <= limits_.max_logit_rows && (processors & kMask) == 0);
  std::fill_n(late_.begin() + count_, count, false);
  processors_ |= processors;
  logit_rows_ = std::max(logit_rows_, logit_rows);
  sent_ = logit_rows;
  return {rows_.host() + std::exchange(count_, logit_rows), static_cast<size_t>(count)};
}

void SamplingBatch::set_late(int row) {
  late_count_ += late_.at(static_cast<size_t>(row)) ? 0 : 1;
  late_[static_cast<size_t>(row)] = true;
}

void SamplingBatch::prefetch(int rows) const {
  prefetch_memory(rows_.host(), static_cast<size_t>(std::min(rows, limits_.max_rows)) * sizeof(ops::SampleRow));
}

ops::SampleRow* SamplingBatch::waiting_rows() const {
  return held_back_ ? reinterpret_cast<ops::SampleRow*>(late_rows_.data()) : rows_.host();
}

void SamplingBatch::pad(int rows) {
  TERN_CHECK(rows >= count_ && rows <= limits_.max_rows);
  std::fill(waiting_rows() + count_, waiting_rows() + rows, no_row());
  sent_ = rows;
}

void SamplingBatch::hold_back(int rows) {
  TERN_CHECK(rows >= count_ && rows <= limits_.max_rows);
  auto* const late = reinterpret_cast<ops::SampleRow*>(late_rows_.data());
  for (int i = 0; i < rows; ++i) {
    const bool held = i < count_ && late_[static_cast<size_t>(i)];
    late[i] = held ? rows_[i] : no_row();
    if (held || i >= count_) rows_[i] = no_row();
  }
  sent_ = rows, held_back_ = true;
}

void SamplingBatch::drop(int row) {
  TERN_CHECK(row >= 0 && row < count_ && late_[static_cast<size_t>(row)]);
  dropped_ = true;
  waiting_rows()[row] = no_row();
}

void SamplingBatch::upload_late(CopyList& list) const {
  const size_t bytes = static_cast<size_t>(sent_) * sizeof(ops::SampleRow);
  list.add({rows_.device(), late_rows_.data(), bytes, 1, bytes, bytes});
}

void SamplingBatch::upload(CopyList& list) const {
  rows_.upload(sent_, list);
  upload_requests(list);
}

void SamplingBatch::upload_requests(CopyList& list) const {
  capture_rows_.upload(captures_, list);
  plain_rows_.upload(plain_, list);
  captured_rows_.upload(captured_, list);
  facts.upload(list);
}

void SamplingBatch::download(int logit_rows, CopyList& list) const {
  ids_.download(logit_rows, list);
  status_.download(logit_rows, list);
  if (limits_.probs) probs_.download(logit_rows, list);
}

void SamplingBatch::ask(ops::LogprobRow row, bool captured) {
  row.top = static_cast<int32_t>(std::min<int64_t>(row.top, limits_.vocab));
  row.out = score_count_;
  requests_.push_back({score_count_, 1 + row.top});
  score_count_ += 1 + row.top;
  TERN_CHECK(score_count_ <= scores_.size());
  logit_rows_ = std::max(logit_rows_, row.sampled_row + 1);
  if (captured) {
    captured_rows_[captured_++] = row;
  } else {
    plain_rows_[plain_++] = row;
  }
}

void SamplingBatch::add_logprobs(const ops::SampleRow& row, const SamplingParams& p, uint32_t processors) {
  ops::LogprobRow r;
  r.logit_row = r.sampled_row = row.logit_row;
  r.top = p.logprobs;
  set_late(count_ - 1);
  r.logits = is_logits(limits_.mode);
  const float scale = p.greedy() ? 1.0f : 1.0f / p.temperature;
  if (!is_raw(limits_.mode)) {
    r.scale = scale;
    return ask(r, false);
  }
  if (!is_logits(limits_.mode)) {
    if (p.temp_scaled_logprobs) r.scale = scale;
    if (p.top_p_normalized_logprobs) r.top_p = p.top_p;
  }
  // The mask comes before the capture (fastdeploy.md 5.1 steps 1 and 2): alone it changes nothing.
  const bool changed = (processors & ~static_cast<uint32_t>(kMask)) != 0;
  if (changed) {
    capture_rows_[captures_] = row.logit_row;
    r.logit_row = captures_++;
  }
  ask(r, changed);
}

void SamplingBatch::add_prompt_logprobs(int32_t logit_row, int32_t target, int32_t count) {
  ops::LogprobRow r;
  r.logit_row = r.sampled_row = logit_row;
  r.target = target;
  r.top = count;
  r.logits = is_logits(limits_.mode);
  ask(r, false);
}

std::span<uint32_t> SamplingBatch::mask(int row) {
  const int64_t words = mask_words(limits_.vocab);
  TERN_CHECK(limits_.masks && row >= 0 && row < count_ && rows_[row].mask_row >= 0);
  return {masks_.host() + rows_[row].mask_row * words, static_cast<size_t>(words)};
}

std::span<const ops::TokenScore> SamplingBatch::scores(int request) const {
  const Scores& s = requests_[static_cast<size_t>(request)];
  return {scores_.host() + s.begin, static_cast<size_t>(s.count)};
}

Expected<Sampler> Sampler::create(const SamplerLimits& limits, device::Device& device) {
  Sampler s;
  s.limits_ = limits;
  TERN_ASSIGN_OR_RETURN(s.slots_, SlotState::create(limits.slots, limits.vocab, limits.capacity, device));
  const auto row = static_cast<size_t>(limits.vocab) * sizeof(float);
  TERN_ASSIGN_OR_RETURN(s.captured_, device.allocate(static_cast<size_t>(limits.max_rows) * row));
  TERN_ASSIGN_OR_RETURN(s.workspace_, device.allocate(ops::sample_workspace(device.stream(), limits.vocab)));
  return s;
}

ops::LogitsParams Sampler::rows(const SamplingBatch& b, TensorView logits, int count) const {
  ops::LogitsParams rows;
  rows.logits = logits.dim[1] > limits_.vocab ? logits.columns(0, limits_.vocab) : logits;
  rows.rows = b.rows_.device(), rows.count = count;
  rows.slots = slots_.arrays();
  return rows;
}

Status Sampler::run_processors(const SamplingBatch& b, const ops::LogitsParams& rows, uint32_t bits,
                               device::Stream stream) {
  ProcessorInput input;
  input.rows = rows;
  if (limits_.masks) {
    input.masks = tensor2(b.masks_.device(), DType::kI32, limits_.max_rows, mask_words(limits_.vocab));
  }
  for (const Processor& p : processors()) {
    if ((bits & p.bit) != 0) TERN_RETURN_IF_ERROR(p.run(input, stream));
  }
  return {};
}

Status Sampler::process_and_sample(const SamplingBatch& b, const ops::LogitsParams& rows, uint32_t bits,
                                   device::Stream stream) {
  // Penalties that nothing follows are left to ops::sample.
  const bool penalise = (bits & (kPenalties | kBadWords)) == kPenalties;
  if (penalise) bits &= ~static_cast<uint32_t>(kPenalties);
  TERN_RETURN_IF_ERROR(run_processors(b, rows, bits, stream));
  ops::SampleParams params;
  params.rows = rows, params.penalise = penalise;
  params.ids = b.device_ids();
  params.status = tensor1(b.status_.device(), DType::kI32, b.status_.size());
  if (limits_.probs) params.probs = tensor1(b.probs_.device(), DType::kF32, b.probs_.size());
  params.workspace = workspace_.data();
  TERN_RETURN_IF_ERROR(ops::sample(params, stream));
  return (bits & kThinking) == 0 ? Status() : ops::thinking_advance({rows, params.ids}, stream);
}

Status Sampler::score(const SamplingBatch& b, TensorView logits, device::Stream stream) {
  ops::LogprobParams scores;
  scores.ids = b.device_ids(), scores.out = b.scores_.device(), scores.workspace = workspace_.data();
  if (b.plain_ > 0) {
    scores.logits = logits, scores.rows = b.plain_rows_.device(), scores.count = b.plain_;
    TERN_RETURN_IF_ERROR(ops::token_logprobs(scores, stream));
  }
  if (b.captured_ == 0) return {};
  scores.logits = captured(), scores.rows = b.captured_rows_.device(), scores.count = b.captured_;
  return ops::token_logprobs(scores, stream);
}

Status Sampler::prepare(SamplingBatch& b, device::Device& device, device::Stream stream) {
  return std::exchange(b.updates_sent_, true) ? Status() : slots_.apply(b.updates, device, stream);
}

Status Sampler::send_masks(const SamplingBatch& b, device::Device& device, device::Stream stream) {
  b.masks_.upload(0, b.masked_ * mask_words(limits_.vocab), device, stream);
  CopyList rows;
  if (b.dropped_ && !b.held_back_) b.rows_.upload(b.sent_, rows);
  return rows.run(device, stream);
}

Status Sampler::sample_tokens(const SamplingBatch& b, TensorView logits, int count, uint32_t processors,
                              device::Stream stream) {
  const ops::LogitsParams in = rows(b, logits, count);
  return process_and_sample(b, in, processors, stream);
}

Status Sampler::finish(const SamplingBatch& b, device::Device& device, device::Stream stream) {
  CopyList list;
  b.download(b.logit_rows_, list);
  b.scores_.download(b.score_count_, list);
  b.facts.download(list);
  return list.run(device, stream);
}

Status Sampler::draw(SamplingBatch& b, TensorView logits, device::Device& device, device::Stream stream) {
  TERN_RETURN_IF_ERROR(prepare(b, device, stream));
  TERN_RETURN_IF_ERROR(send_masks(b, device, stream));
  const ops::LogitsParams in = rows(b, logits, b.count_);
  TERN_RETURN_IF_ERROR(run_processors(b, in, b.processors_ & kMask, stream));
  if (b.captures_ > 0) {
    TERN_RETURN_IF_ERROR(ops::capture_logits({in.logits, b.capture_rows_.device(), b.captures_, captured()}, stream));
  }
  TERN_RETURN_IF_ERROR(process_and_sample(b, in, b.processors_ & ~static_cast<uint32_t>(kMask), stream));
  TERN_RETURN_IF_ERROR(score(b, in.logits, stream));
  return b.facts.run(in.logits, workspace_.data(), stream);
}

Status Sampler::run(SamplingBatch& b, TensorView logits, device::Device& device, device::Stream stream) {
  TERN_RETURN_IF_ERROR(draw(b, logits, device, stream));
  return finish(b, device, stream);
}

}  // namespace tern::sample
