#include "engine/loop/pictures.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "base/checked.h"

namespace tern::engine {
namespace {

vision::Grid grid_of(const MediaItem& m) { return {m.t, m.h, m.w}; }

}  // namespace

Pictures::Pictures(const EngineParts& parts)
    : stage_(parts.vision.get()), encoder_(parts.encoder.get()), secret_(parts.index->key()) {
  const sched::SchedulerConfig& s = parts.config.scheduler;
  // Whoever runs holds at most its full length, and at most max_num_seqs hold anything.
  may_need_again_ = !s.v1 || parts.blocks.total / s.max_num_seqs < ceil_div(s.max_model_len, s.block_size);
}

// A picture's key in the prefix cache also says its grid and positions: equal token ids and pixels at other positions
// are other keys and values.
PromptKeys prompt_keys(const Request& r, HashKey secret) {
  PromptKeys keys;
  for (const ExtraKey& k : r.extra_keys) keys.extra.push_back({k.begin, k.end, {k.key[0], k.key[1]}});
  const size_t n = r.prompt.size();
  std::vector<int32_t> where;
  for (const MediaItem& m : r.media) {
    const auto begin = static_cast<size_t>(m.begin), end = std::min(static_cast<size_t>(m.end) + 1, n);
    const uint64_t content[5] = {m.key[0], m.key[1], static_cast<uint64_t>(m.t), static_cast<uint64_t>(m.h),
                                 static_cast<uint64_t>(m.w)};
    const Hash128 encoded = siphash128(secret, content, sizeof content);
    keys.media.push_back(encoded);
    where.clear();
    for (size_t axis = 0; axis < 3; ++axis) {
      where.insert(where.end(), r.positions.begin() + static_cast<ptrdiff_t>(axis * n + begin),
                   r.positions.begin() + static_cast<ptrdiff_t>(axis * n + end));
    }
    const Hash128 place = siphash128(secret, where.data(), where.size() * sizeof(int32_t));
    keys.unsplittable.emplace_back(m.begin, m.end);
    keys.extra.push_back({m.begin, m.end, {encoded.lo ^ place.lo, encoded.hi ^ place.hi}});
  }
  if (!r.media.empty()) {
    std::stable_sort(keys.extra.begin(), keys.extra.end(),
                     [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }
  return keys;
}

void Pictures::add(const Request& r, Generation& g, sched::NewSequence& s) const {
  PromptKeys keys = prompt_keys(r, secret_);
  s.extra_keys = std::move(keys.extra);
  s.unsplittable = std::move(keys.unsplittable);
  g.media_keys = std::move(keys.media);
}

void Pictures::take(Step& step, const sched::PlanRow& row, int first_token, Generation& g) {
  const std::vector<MediaItem>& media = g.request.media;
  const int end = row.first + row.count;
  if (media.empty() || row.first >= media.back().end) return;
  auto m = std::partition_point(media.begin(), media.end(), [&](const MediaItem& x) { return x.end <= row.first; });
  for (; m != media.end() && m->begin < end; ++m) {
    const int entry = encoder_entry(step, *m, g.media_keys[static_cast<size_t>(m - media.begin())]);
    const std::span<const int32_t> rows = encoder_->rows(entry);
    const int from = std::max(m->begin, row.first), to = std::min(m->end, end);
    step.take_pictures(first_token + from - row.first,
                       rows.subspan(static_cast<size_t>(from - m->begin), static_cast<size_t>(to - from)));
  }
}

int Pictures::encoder_entry(Step& step, const MediaItem& item, const Hash128& key) {
  cache::EncoderCache& encoder = *encoder_;
  ++figures_.encoder_lookups;
  int entry = encoder.find(key);
  if (entry >= 0) {
    ++figures_.encoder_hits;
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

bool Pictures::pack(Step& step) {
  VisionStep& v = step.vision;
  if (v.items.empty()) return false;
  v.pack(stage_->plan().call, stage_->tower());
  figures_.tower_items += v.items.size();
  for (const VisionItem& item : v.items) figures_.tower_patches += static_cast<uint64_t>(item.grid.rows());
  return true;
}

void Pictures::collect(Step& step) {
  VisionStep& v = step.vision;
  figures_.tower_ns += v.tower_ns, figures_.tower_calls += v.tower_calls;
  for (int entry : v.pinned) encoder_->unpin(entry);
  v.clear();
}

void Pictures::release(Generation& g, int computed) const {
  std::vector<MediaItem>& media = g.request.media;
  if (may_need_again_) return;
  while (g.media_done < media.size() && media[g.media_done].end <= computed) media[g.media_done++].patches.reset();
}

void Pictures::forget(const Generation& g) {
  for (const Hash128& key : g.media_keys) encoder_->forget(key);
}

void Pictures::report(EngineStats& stats) const {
  stats.tower_ns = figures_.tower_ns, stats.tower_calls = figures_.tower_calls;
  stats.tower_items = figures_.tower_items, stats.tower_patches = figures_.tower_patches;
  stats.encoder_lookups = figures_.encoder_lookups, stats.encoder_hits = figures_.encoder_hits;
}

}  // namespace tern::engine
