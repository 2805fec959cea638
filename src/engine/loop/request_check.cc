#include "engine/loop/request_check.h"

#include <fmt/format.h>

#include <algorithm>

namespace tern::engine {
namespace {

constexpr int32_t kMostPosition = 1 << 24;  // exact in float32

Error invalid(std::string message, const char* param = "media") {
  return make_error(ErrorCode::kInvalidArgument, std::move(message), param);
}

Status check_item(const MediaItem& m, const VisionStage& stage) {
  const vision::TowerInfo& info = stage.tower().info();
  const VisionPlan& plan = stage.plan();
  if (m.t < 1 || m.h < 1 || m.w < 1 || m.h % info.merge != 0 || m.w % info.merge != 0) {
    return invalid(fmt::format("a picture of {}x{}x{} patches does not consist of cells of {}x{}", m.t, m.h, m.w,
                               info.merge, info.merge));
  }
  if (info.max_side > 0 && (m.h > info.max_side || m.w > info.max_side)) {
    return make_error(ErrorCode::kTooLarge,
                      fmt::format("a picture of {}x{} patches is longer than the {} that the vision tower takes", m.h,
                                  m.w, info.max_side),
                      "media");
  }
  const int64_t side = int64_t{m.h} * m.w;
  if (side > plan.call.patches || m.t > plan.call.patches / side) {
    return make_error(ErrorCode::kTooLarge,
                      fmt::format("a picture of {}x{}x{} patches exceeds the largest one of {} patches", m.t, m.h, m.w,
                                  plan.call.patches),
                      "media");
  }
  const vision::Grid grid{m.t, m.h, m.w};
  if (stage.tower().tokens(grid) != m.end - m.begin) {
    return invalid(fmt::format("a picture of {}x{}x{} patches gives {} tokens, but holds {} places", m.t, m.h, m.w,
                               stage.tower().tokens(grid), m.end - m.begin));
  }
  if (m.end - m.begin > plan.max_item_tokens) {
    return make_error(
        ErrorCode::kTooLarge,
        fmt::format("a picture of {} tokens exceeds the largest one of {}", m.end - m.begin, plan.max_item_tokens),
        "media");
  }
  const size_t bytes =
      static_cast<size_t>(grid.rows()) * static_cast<size_t>(info.patch_values) * dtype_bytes(info.patch_type);
  if (m.patches == nullptr || m.bytes != bytes || m.offset > m.patches->size() ||
      m.bytes > m.patches->size() - m.offset) {
    return invalid("the patches of a picture have another size than its grid says");
  }
  if (m.key[0] == 0 && m.key[1] == 0) return invalid("a picture has no fingerprint");
  return {};
}

Status check_media(const Request& r, const VisionStage* stage) {
  if (r.media.empty()) return {};
  if (stage == nullptr) return invalid("this model takes no pictures");
  int32_t end = 0;
  for (const MediaItem& m : r.media) {
    if (m.begin < end || m.end <= m.begin || m.end > static_cast<int64_t>(r.prompt.size())) {
      return invalid("pictures must be ordered, disjoint and inside the prompt");
    }
    TERN_RETURN_IF_ERROR(check_item(m, *stage));
    end = m.end;
  }
  return {};
}

// Positions outside pictures count up. Then what precedes a token, pictures by their keys, says its position, and the
// prefix cache needs to know of positions inside and right after pictures only (Pictures::add).
Status check_positions(const Request& r, int max_model_len) {
  const auto n = static_cast<int64_t>(r.prompt.size());
  const int64_t delta = r.rope_delta;
  if (n + delta < 0 || n + delta + max_model_len > kMostPosition) {
    return invalid("rope_delta is out of range", "positions");
  }
  if (r.positions.empty()) {
    if (!r.media.empty() || delta != 0) return invalid("a prompt with pictures needs positions", "positions");
    return {};
  }
  if (static_cast<int64_t>(r.positions.size()) != 3 * n) return invalid("positions must be [3, prompt]", "positions");
  for (int32_t p : r.positions) {
    if (p < 0 || p > kMostPosition) return invalid("a position is out of range", "positions");
  }
  const int32_t* t = r.positions.data();
  const int32_t *h = t + n, *w = h + n;
  int64_t at = 0;
  const auto counts_up = [&](int64_t end) {
    for (const int64_t begin = at; at < end; ++at) {
      if (t[at] != h[at] || t[at] != w[at]) return false;
      if (at > begin ? t[at] != t[at - 1] + 1 : begin == 0 && t[at] != 0) return false;
    }
    return true;
  };
  for (const MediaItem& m : r.media) {
    if (!counts_up(m.begin)) return invalid("positions of text must count up", "positions");
    at = m.end;
  }
  if (!counts_up(n)) return invalid("positions of text must count up", "positions");
  const bool text_last = r.media.empty() || r.media.back().end < n;
  if (text_last && t[n - 1] + 1 != n + delta) return invalid("rope_delta does not continue the positions", "positions");
  return {};
}

}  // namespace

Status check_request(Request& r, const EngineParts& parts) {
  const int64_t vocab = parts.model->info().vocab_size;
  const auto longest = static_cast<size_t>(parts.config.scheduler.max_model_len);
  if (r.prompt.empty()) return invalid("the prompt is empty", "prompt");
  if (r.prompt.size() >= longest) {
    return make_error(
        ErrorCode::kTooLarge,
        fmt::format("the prompt has {} tokens, and at most {} leave room for an answer within the context of {}",
                    r.prompt.size(), longest - 1, longest),
        "prompt");
  }
  for (int32_t id : r.prompt) {
    if (id < 0 || id >= vocab) {
      return invalid(fmt::format("token id {} of the prompt is outside the vocabulary of {}", id, vocab), "prompt");
    }
    if (r.sampling.prompt_logprobs >= 0 && id >= parts.sampled_vocab) {
      return invalid(fmt::format("token id {} of the prompt has no log-probability", id), "prompt");
    }
  }
  if (parts.pooled == 0 && r.pooled != PooledRows::kLast) return invalid("this model has no rows to pool", "pooled");
  if (parts.pooled > 0) {
    if (r.sampling.prompt_logprobs >= 0 || r.constraint.grammar != nullptr) {
      return invalid("a pooling model draws no tokens", "prompt_logprobs");
    }
    r.max_tokens = 1;
  }
  if (r.max_tokens <= 0) return invalid("max_tokens must be positive", "max_tokens");
  r.max_tokens = std::min(r.max_tokens, static_cast<int32_t>(longest - r.prompt.size()));
  for (const auto& s : r.stop_sequences) {
    if (s.empty()) return invalid("a stop sequence is empty", "stop");
  }
  return check_places(r, parts);
}

Status check_places(const Request& r, const EngineParts& parts) {
  TERN_RETURN_IF_ERROR(check_media(r, parts.vision.get()));
  return check_positions(r, parts.config.scheduler.max_model_len);
}

}  // namespace tern::engine
