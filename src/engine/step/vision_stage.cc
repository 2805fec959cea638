#include "engine/step/vision_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "base/checked.h"
#include "base/clock.h"
#include "ops/vision.h"

namespace tern::engine {
namespace {

Error invalid(std::string message, const char* param) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message), param);
}

size_t patch_bytes(const vision::TowerInfo& info) {
  return static_cast<size_t>(info.patch_values) * dtype_bytes(info.patch_type);
}
size_t row_bytes(const vision::TowerInfo& info) {
  return static_cast<size_t>(info.hidden) * dtype_bytes(info.out_type);
}

Status check_vision(const VisionConfig& c, const vision::TowerInfo& info, int model_hidden) {
  constexpr int64_t kMost = int64_t{1} << 28;  // patches or tokens: far beyond any memory, far below any overflow
  if (info.patch_values < 1 || info.hidden < 1 || info.merge < 1) {
    return invalid("the vision tower gives no sizes", "model");
  }
  if (info.hidden != model_hidden) {
    return invalid(
        fmt::format("the vision tower makes rows of {} values, but the text model takes {}", info.hidden, model_hidden),
        "model");
  }
  if (c.max_item_patches < 1 || c.max_item_patches > kMost) {
    return invalid("the largest picture must have between 1 and 2^28 patches (max_pixels of --mm-processor-kwargs)",
                   "mm-processor-kwargs");
  }
  if (c.max_item_tokens < 0 || c.max_item_tokens > c.max_item_patches) {
    return invalid("a picture has no more tokens than patches", "mm-processor-kwargs");
  }
  if (c.call_patches < 0 || c.call_patches > kMost || c.call_items < 1) {
    return invalid("a tower call takes at least one picture", "mm-processor-kwargs");
  }
  if (c.step_tokens < 0) return invalid("a step takes at least one picture", "max-num-batched-tokens");
  if (c.encoder_cache_tokens < 0 || c.encoder_cache_tokens > kMost) {
    return invalid("--max-encoder-cache must be between 0 and 2^28 tokens", "max-encoder-cache");
  }
  return {};
}

}  // namespace

Expected<VisionPlan> plan_vision(const VisionConfig& c, const vision::Tower& tower, int budget, int model_hidden,
                                 device::Stream stream) {
  const vision::TowerInfo& info = tower.info();
  TERN_RETURN_IF_ERROR(check_vision(c, info, model_hidden));
  const int64_t cell = int64_t{info.merge} * info.merge;
  VisionPlan p;
  p.call.patches = std::max(c.call_patches, c.max_item_patches);
  p.call.items = static_cast<int>(std::min<int64_t>(c.call_items, std::max<int64_t>(1, p.call.patches / cell)));
  const int64_t item_tokens = c.max_item_tokens > 0 ? c.max_item_tokens : ceil_div(c.max_item_patches, cell);
  p.max_item_tokens = static_cast<int>(item_tokens);
  p.call.tokens = std::max(ceil_div(p.call.patches, cell), item_tokens);
  const int64_t most = budget + item_tokens;
  const int64_t step = c.step_tokens > 0 ? std::clamp<int64_t>(c.step_tokens, item_tokens, most) : most;
  const int64_t rows = 2 * step + c.encoder_cache_tokens;
  if (rows > std::numeric_limits<int32_t>::max()) {
    return invalid("--max-num-batched-tokens and --max-encoder-cache together exceed the encoder cache",
                   "max-encoder-cache");
  }
  p.max_step_tokens = static_cast<int>(step);
  p.cache_rows = static_cast<int>(rows);
  p.ints = tower.max_ints(p.call.patches, p.call.items);
  p.floats = tower.max_floats(p.call.patches, p.call.items);
  p.workspace_bytes = tower.workspace_bytes(p.call.patches, p.call.items, stream);
  p.total_bytes = p.workspace_bytes + static_cast<size_t>(p.call.patches) * patch_bytes(info) + 4 * p.ints +
                  4 * p.floats + static_cast<size_t>(p.call.tokens) * (row_bytes(info) + sizeof(int32_t)) +
                  static_cast<size_t>(rows) * row_bytes(info);
  return p;
}

Expected<std::unique_ptr<VisionStage>> VisionStage::create(const VisionPlan& plan, const vision::Tower& tower,
                                                           device::Device& device) {
  std::unique_ptr<VisionStage> s(new VisionStage(plan, tower, device));
  const vision::TowerInfo& info = tower.info();
  TERN_RETURN_IF_ERROR(s->make_inputs(s->inputs_[0], nullptr));
  // One memory: a call has read its inputs when it has been given.
  if (device.own_memory()) TERN_RETURN_IF_ERROR(s->make_inputs(s->inputs_[1], &s->inputs_[0]));
  for (Timed& t : s->timed_) {
    TERN_ASSIGN_OR_RETURN(t.end, device.make_event());
  }
  TERN_ASSIGN_OR_RETURN(s->workspace_, device.allocate(std::max<size_t>(plan.workspace_bytes, 1)));
  TERN_ASSIGN_OR_RETURN(s->out_, device.allocate(static_cast<size_t>(plan.call.tokens) * row_bytes(info)));
  TERN_ASSIGN_OR_RETURN(s->cache_, device.allocate(static_cast<size_t>(plan.cache_rows) * row_bytes(info)));
  s->pictures_ = tensor2(s->cache_.data(), info.out_type, plan.cache_rows, info.hidden);
  return s;
}

Status VisionStage::make_inputs(Inputs& in, const Inputs* shares) {
  const auto patches = static_cast<int64_t>(static_cast<size_t>(plan_.call.patches) * patch_bytes(tower_->info()));
  const auto ints = static_cast<int64_t>(plan_.ints), floats = static_cast<int64_t>(plan_.floats);
  using sample::Staged;
  TERN_ASSIGN_OR_RETURN(in.patches, Staged<std::byte>::create(patches, *device_, shares ? &shares->patches : nullptr));
  TERN_ASSIGN_OR_RETURN(in.ints, Staged<int32_t>::create(ints, *device_, shares ? &shares->ints : nullptr));
  TERN_ASSIGN_OR_RETURN(in.floats, Staged<float>::create(floats, *device_, shares ? &shares->floats : nullptr));
  TERN_ASSIGN_OR_RETURN(in.rows,
                        Staged<int32_t>::create(plan_.call.tokens, *device_, shares ? &shares->rows : nullptr));
  TERN_ASSIGN_OR_RETURN(in.sent, device_->make_event());
  return {};
}

Expected<bool> VisionStage::advance(VisionStep& step) {
  const device::Stream stream = device_->side_stream(device::StreamRole::kVision);
  Timed& timed = timed_[steps_ % timed_.size()];
  if (next_call_ == 0) timed.begin = monotonic_ns();
  for (; next_call_ < step.call_count; ++next_call_) {
    Inputs& inputs = inputs_[device_->own_memory() ? calls_ % inputs_.size() : 0];
    if (!inputs.sent->done()) return false;
    ++calls_;
    TERN_RETURN_IF_ERROR(run(step, step.calls[static_cast<size_t>(next_call_)], inputs, stream));
    ++step.tower_calls;
  }
  next_call_ = 0;
  ++steps_;
  timed.step = &step;
  TERN_RETURN_IF_ERROR(timed.end->record(stream));
  look();
  return true;
}

Status VisionStage::wait(device::Stream stream) {
  return timed_[(steps_ + timed_.size() - 1) % timed_.size()].end->wait_on(stream);
}

void VisionStage::look() {
  for (size_t i = 0; i < timed_.size(); ++i) {
    Timed& t = timed_[(steps_ + i) % timed_.size()];  // the older one first
    if (t.step == nullptr || !t.end->done()) continue;
    const int64_t now = monotonic_ns();
    t.step->tower_ns = static_cast<uint64_t>(now - std::max(t.begin, last_end_));
    last_end_ = now;
    t.step = nullptr;
  }
}

void VisionStage::release(const VisionStep& step) {
  look();
  for (Timed& t : timed_) {
    if (t.step == &step) t.step = nullptr;
  }
}

Status VisionStage::run(const VisionStep& step, const VisionCall& call, Inputs& in, device::Stream stream) {
  const vision::TowerInfo& info = tower_->info();
  const size_t ints = call.index.ints.size(), floats = call.index.floats.size();
  if (ints > plan_.ints || floats > plan_.floats) {
    return make_error(ErrorCode::kInternal, "the vision tower's index is larger than it said");
  }
  int64_t sent = 0;
  for (int i : call.items) {
    const VisionItem& item = step.items[static_cast<size_t>(i)];
    // In pieces, so that the device copies one while this thread fills the next.
    constexpr size_t kPiece = size_t{1} << 20;
    for (size_t at = 0; at < item.bytes; at += kPiece) {
      const size_t bytes = std::min(kPiece, item.bytes - at);
      std::memcpy(in.patches.host() + sent, item.patches->data() + item.offset + at, bytes);
      in.patches.upload(sent, static_cast<int64_t>(bytes), *device_, stream);
      sent += static_cast<int64_t>(bytes);
    }
  }
  std::copy(call.index.ints.begin(), call.index.ints.end(), in.ints.host());
  std::copy(call.index.floats.begin(), call.index.floats.end(), in.floats.host());
  std::copy(call.rows.begin(), call.rows.end(), in.rows.host());
  const auto tokens = static_cast<int64_t>(call.rows.size());
  sample::CopyList list;
  in.ints.upload(static_cast<int64_t>(ints), list);
  in.floats.upload(static_cast<int64_t>(floats), list);
  in.rows.upload(tokens, list);
  TERN_RETURN_IF_ERROR(list.run(*device_, stream));
  TERN_RETURN_IF_ERROR(in.sent->record(stream));

  device::Arena arena(workspace_.data(), workspace_.bytes());
  const TensorView out = tensor2(out_.data(), info.out_type, tokens, info.hidden);
  const vision::TowerCall work{
      call.grids,
      tensor2(in.patches.device(), info.patch_type, call.patches, info.patch_values),
      tensor1(in.ints.device(), DType::kI32, static_cast<int64_t>(ints)),
      tensor1(in.floats.device(), DType::kF32, static_cast<int64_t>(floats)),
      out,
      stream,
      arena,
      nullptr,
  };
  TERN_RETURN_IF_ERROR(tower_->encode(work));
  return ops::scatter_rows({out, tensor1(in.rows.device(), DType::kI32, tokens), pictures_}, stream);
}

}  // namespace tern::engine
