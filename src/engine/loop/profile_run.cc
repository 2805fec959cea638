#include "engine/loop/profile_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.h"

namespace tern::engine {
namespace {

// Contexts of decode rows: memory does not depend on them, time does.
constexpr int kContext = 2048;
constexpr int kLogprobs = 20;

// Items that fill a tower call: squares, or as long as the tower takes them.
vision::Grid largest_item(const vision::TowerInfo& info, int64_t patches) {
  const auto whole = [&](int64_t n) { return std::max<int64_t>(n / info.merge * info.merge, info.merge); };
  int64_t h = whole(static_cast<int64_t>(std::sqrt(static_cast<double>(patches))));
  if (info.max_side > 0) h = std::min(h, whole(info.max_side));
  int64_t w = whole(patches / h);
  if (info.max_side > 0) w = std::min(w, whole(info.max_side));
  return {1, static_cast<int>(h), static_cast<int>(w)};
}

}  // namespace

ProfileRun::ProfileRun(StepRunner& runner, Step& step, const model::BatchLimits& limits,
                       const sample::SamplerLimits& sampling, const sched::SchedulerConfig& c)
    : runner_(runner),
      step_(step),
      limits_(limits),
      sampling_(sampling),
      block_size_(c.block_size),
      longest_(c.max_model_len) {
  tokens_.assign(static_cast<size_t>(longest_), 0);
  blocks_.assign(static_cast<size_t>(limits.max_blocks_per_row), 0);
}

void ProfileRun::add(int first, int count, int logits) {
  sched::PlanRow row;
  row.slot = step_.batch.rows;
  row.first = first, row.count = count;
  row.logit_begin = step_.batch.logit_rows, row.logit_count = logits;
  step_.add_row(row, {tokens_, blocks_, block_size_, 0, {}, 0});
}

// Everything that a request can ask of the sampler.
void ProfileRun::ask(int row, int logit_row) {
  if (step_.pools()) return;
  const sample::SamplerLimits& l = sampling_;
  SamplingParams p;
  p.temperature = 0.8f, p.top_p = 0.8f, p.top_k = 50, p.min_p = 0.01f;
  p.repetition_penalty = 1.05f, p.presence_penalty = 0.1f;
  p.logit_bias = {{0, 1.0f}}, p.bad_words = {0};
  p.thinking_limit = 0, p.thinking_mark = {0}, p.thinking_forced = {0};
  p.logprobs = std::min(kLogprobs, l.max_logprobs);
  const int32_t id = 0;
  step_.sampling.updates.add(row, p, {&id, 1}, {&id, 1}, {&id, 1});
  ops::SampleRow r;
  r.logit_row = logit_row, r.slot = row, r.position = 1, r.thinking = 1;
  const uint32_t bits = sample::kAllButMask | (l.masks ? uint32_t{sample::kMask} : 0);
  const int number = step_.sampling.add(r, bits);
  if (l.masks) std::ranges::fill(step_.sampling.mask(number), ~0u);
  if (l.max_logprobs > 0) step_.sampling.add_logprobs(r, p, bits);
  if (l.entropy || l.kept) step_.sampling.facts.add(logit_row, p), step_.sampling.set_late(number);
}

void ProfileRun::prefill(int tokens) {
  step_.begin();
  const int rows = std::clamp<int>(ceil_div(tokens, longest_), 1, limits_.max_rows);
  for (int left = std::min(tokens, rows * longest_); left > 0;) {
    const int count = std::min(left, longest_);
    add(0, count, std::min(count, limits_.max_logit_rows - step_.batch.logit_rows));
    left -= count;
  }
  if (step_.batch.logit_rows > 0) ask(0, 0);
}

void ProfileRun::decode() {
  step_.begin();
  const int rows = std::min(limits_.max_rows, limits_.max_tokens), context = std::min(longest_, kContext);
  for (int r = 0; r < rows; ++r) {
    add(context - 1, 1, 1);
    ask(r, r);
  }
}

Status ProfileRun::launch() {
  step_.plan.clear();
  step_.plan.tokens = step_.batch.tokens, step_.plan.logit_rows = step_.batch.logit_rows;
  step_.finish();
  TERN_RETURN_IF_ERROR(runner_.forward(step_, nullptr));
  TERN_RETURN_IF_ERROR(runner_.sample(step_));
  return runner_.synchronize();
}

Status ProfileRun::start_tower() {
  VisionStage* stage = runner_.parts().vision;
  if (stage == nullptr) return {};
  const vision::TowerInfo& info = stage->tower().info();
  const VisionPlan& plan = stage->plan();
  const vision::Grid grid = largest_item(info, plan.call.patches);
  const auto rows = static_cast<size_t>(stage->tower().tokens(grid));
  const size_t bytes =
      static_cast<size_t>(grid.rows()) * static_cast<size_t>(info.patch_values) * dtype_bytes(info.patch_type);
  patches_ = std::make_shared<RawBytes>(bytes, std::byte{});
  picture_rows_.resize(rows);
  std::iota(picture_rows_.begin(), picture_rows_.end(), 0);
  const int64_t fit = std::min<int64_t>(
      {plan.call.patches / grid.rows(), plan.call.items, plan.call.tokens / static_cast<int64_t>(rows)});
  for (int64_t i = 0; i < std::max<int64_t>(fit, 1); ++i) {
    step_.vision.items.push_back({grid, patches_, 0, bytes, picture_rows_});
  }
  step_.vision.pack(plan.call, stage->tower());
  TERN_ASSIGN_OR_RETURN(const bool complete, stage->advance(step_.vision));
  if (complete) return {};
  return make_error(ErrorCode::kInternal, "one call of the vision tower does not hold what fills one");
}

Status ProfileRun::run() {
  for (int tokens = 1; tokens < limits_.max_tokens; tokens *= 2) {
    prefill(tokens);
    TERN_RETURN_IF_ERROR(launch());
  }
  prefill(limits_.max_tokens);
  TERN_RETURN_IF_ERROR(start_tower());
  // Side by side: this step does not read what the tower makes.
  std::vector<VisionItem> items;
  items.swap(step_.vision.items);
  TERN_RETURN_IF_ERROR(launch());
  decode();
  TERN_RETURN_IF_ERROR(launch());
  device::Device& device = runner_.device();
  if (runner_.parts().vision != nullptr) {
    TERN_RETURN_IF_ERROR(device.synchronize(device.side_stream(device::StreamRole::kVision)));
    runner_.parts().vision->release(step_.vision);
  }
  step_.begin();
  return device.status();
}

}  // namespace tern::engine
