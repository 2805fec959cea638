// Requests with pictures: what is let in, which rows of the encoder cache a step takes, when patches go.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/check.h"
#include "engine/loop/engine_impl.h"

namespace tern::engine {
namespace {

constexpr int32_t kMostPosition = 1 << 24;  // exact in float32

Error invalid(std::string message, const char* param = "media") {
  return make_error(ErrorCode::kInvalidArgument, std::move(message), param);
}

vision::Grid grid_of(const MediaItem& m) { return {m.t, m.h, m.w}; }

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
  const vision::Grid grid = grid_of(m);
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

}  // namespace

Status EngineImpl::check_media(const Request& r) const {
  if (r.media.empty()) return {};
  if (parts_.vision == nullptr) return invalid("this model takes no pictures");
  int32_t end = 0;
  for (const MediaItem& m : r.media) {
    if (m.begin < end || m.end <= m.begin || m.end > static_cast<int64_t>(r.prompt.size())) {
      return invalid("pictures must be ordered, disjoint and inside the prompt");
    }
    TERN_RETURN_IF_ERROR(check_item(m, *parts_.vision));
    end = m.end;
  }
  return {};
}

// Positions outside pictures count up. Then what precedes a token, pictures by their keys, says its position, and the
// prefix cache needs to know of positions inside and right after pictures only (add_media).
Status EngineImpl::check_positions(const Request& r) const {
  const auto n = static_cast<int64_t>(r.prompt.size());
  const int64_t delta = r.rope_delta;
  if (n + delta < 0 || n + delta + parts_.config.scheduler.max_model_len > kMostPosition) {
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

// Ranges and keys for the scheduler, keys for the encoder cache. A picture's key in the prefix cache also says its grid
// and positions: equal token ids and pixels at other positions are other keys and values.
void EngineImpl::add_media(const Request& r, Generation& g, sched::NewSequence& s) const {
  for (const ExtraKey& k : r.extra_keys) s.extra_keys.push_back({k.begin, k.end, {k.key[0], k.key[1]}});
  if (r.media.empty()) return;
  const HashKey secret = parts_.index->key();
  const size_t n = r.prompt.size();
  std::vector<int32_t> where;
  for (const MediaItem& m : r.media) {
    const auto begin = static_cast<size_t>(m.begin), end = std::min(static_cast<size_t>(m.end) + 1, n);
    const uint64_t content[5] = {m.key[0], m.key[1], static_cast<uint64_t>(m.t), static_cast<uint64_t>(m.h),
                                 static_cast<uint64_t>(m.w)};
    const Hash128 encoded = siphash128(secret, content, sizeof content);
    g.media_keys.push_back(encoded);
    where.clear();
    for (size_t axis = 0; axis < 3; ++axis) {
      where.insert(where.end(), r.positions.begin() + static_cast<ptrdiff_t>(axis * n + begin),
                   r.positions.begin() + static_cast<ptrdiff_t>(axis * n + end));
    }
    const Hash128 place = siphash128(secret, where.data(), where.size() * sizeof(int32_t));
    s.unsplittable.emplace_back(m.begin, m.end);
    s.extra_keys.push_back({m.begin, m.end, {encoded.lo ^ place.lo, encoded.hi ^ place.hi}});
  }
  std::stable_sort(s.extra_keys.begin(), s.extra_keys.end(),
                   [](const auto& a, const auto& b) { return a.begin < b.begin; });
}

// Tokens of pictures take rows of the encoder cache; what is not there is encoded in this step.
void EngineImpl::take_media(Step& step, const sched::PlanRow& row, int first_token, Generation& g) {
  const std::vector<MediaItem>& media = g.request.media;
  const int end = row.first + row.count;
  if (media.empty() || row.first >= media.back().end) return;
  auto m = std::partition_point(media.begin(), media.end(), [&](const MediaItem& x) { return x.end <= row.first; });
  for (; m != media.end() && m->begin < end; ++m) {
    const int entry = encoder_entry(step, *m, g.media_keys[static_cast<size_t>(m - media.begin())]);
    const std::span<const int32_t> rows = parts_.encoder->rows(entry);
    const int from = std::max(m->begin, row.first), to = std::min(m->end, end);
    step.take_pictures(first_token + from - row.first,
                       rows.subspan(static_cast<size_t>(from - m->begin), static_cast<size_t>(to - from)));
  }
}

int EngineImpl::encoder_entry(Step& step, const MediaItem& item, const Hash128& key) {
  cache::EncoderCache& encoder = *parts_.encoder;
  ++media_stats_.encoder_lookups;
  int entry = encoder.find(key);
  if (entry >= 0) {
    ++media_stats_.encoder_hits;
  } else {
    // Steps run in order: an entry that an open step fills is a hit for the next one.
    entry = encoder.insert(key, item.end - item.begin);
    TERN_CHECK_MSG(entry >= 0, "the encoder cache holds what two steps need");
    TERN_CHECK_MSG(item.patches != nullptr, "a picture whose patches are gone is needed again");
    step.vision.items.push_back({grid_of(item), item.patches, item.offset, item.bytes, encoder.rows(entry)});
  }
  step.vision.pinned.push_back(entry);
  return entry;
}

void EngineImpl::submit_media(Step& step) {
  VisionStep& v = step.vision;
  if (v.items.empty()) return;
  v.pack(parts_.vision->plan().call, parts_.vision->tower());
  media_stats_.tower_items += v.items.size();
  for (const VisionItem& item : v.items) media_stats_.tower_patches += static_cast<uint64_t>(item.grid.rows());
  rank_->submit_vision(&step);
}

void EngineImpl::collect_media(Step& step) {
  VisionStep& v = step.vision;
  media_stats_.tower_ns += v.tower_ns, media_stats_.tower_calls += v.tower_calls;
  for (int entry : v.pinned) parts_.encoder->unpin(entry);
  v.clear();
}

// Patches of pictures whose keys and values are confirmed are needed again only after a preemption.
void EngineImpl::release_media(Generation& g, int computed) {
  std::vector<MediaItem>& media = g.request.media;
  if (may_preempt_) return;
  while (g.media_done < media.size() && media[g.media_done].end <= computed) media[g.media_done++].patches.reset();
}

// What made a request's logits not a number must not meet the next one.
void EngineImpl::forget_media(const Generation& g) {
  for (const Hash128& key : g.media_keys) parts_.encoder->forget(key);
}

}  // namespace tern::engine
