// Requests with pictures, piece by piece, and what FakeModel with FakeTower answers to them.
#pragma once

#include <random>
#include <vector>

#include "engine/tests/fake_tower.h"

namespace tern::engine {

class PictureRequest {
 public:
  static constexpr int32_t kPlace = 90;  // the placeholder's id

  PictureRequest& text(const std::vector<int32_t>& ids) {
    for (int32_t id : ids) push(id, next_, next_, next_), ++next_;
    return *this;
  }
  // `seed` stands for the pixels. `offset`: bytes in front of the item's patches in their buffer.
  PictureRequest& picture(int h, int w, uint64_t seed, int t = 1, size_t offset = 0) {
    MediaItem m;
    m.kind = t > 1 ? MediaKind::kVideo : MediaKind::kImage;
    m.begin = static_cast<int32_t>(ids_.size());
    m.t = t, m.h = h, m.w = w;
    m.key[0] = seed, m.key[1] = salt_ + 1;
    const auto rows = static_cast<size_t>(t) * static_cast<size_t>(h) * static_cast<size_t>(w);
    std::vector<float> values(rows * FakeTower::kValues);
    std::mt19937_64 random(seed);
    for (float& v : values) v = static_cast<float>(random() % 1000);
    if (special_ != 0) values[values.size() / 2] = special_;
    m.bytes = values.size() * sizeof(float), m.offset = offset;
    auto bytes = std::make_shared<RawBytes>(offset + m.bytes + offset, std::byte{});
    std::memcpy(bytes->data() + offset, values.data(), m.bytes);
    m.patches = std::move(bytes);
    for (int f = 0; f < (t + 1) / 2; ++f) {
      for (int y = 0; y < h / 2; ++y) {
        for (int x = 0; x < w / 2; ++x) push(kPlace, next_ + f, next_ + y, next_ + x);
      }
    }
    m.end = static_cast<int32_t>(ids_.size());
    next_ += std::max({(t + 1) / 2, h / 2, w / 2});
    media_.push_back(std::move(m));
    return *this;
  }
  PictureRequest& salt(uint64_t value) {
    salt_ = value;
    return *this;
  }
  PictureRequest& special(float value) {  // a patch value of the pictures that follow; 0: none
    special_ = value;
    return *this;
  }

  Request make(RequestId id, int max_tokens) const {
    Request r = Harness::request(id, ids_, max_tokens);
    for (const auto& axis : at_) r.positions.insert(r.positions.end(), axis.begin(), axis.end());
    r.rope_delta = next_ - static_cast<int32_t>(ids_.size());
    r.media = media_;
    if (salt_ != 0) r.extra_keys.push_back({0, static_cast<int32_t>(ids_.size()), {salt_, 1}});
    r.ignore_eos = true;
    return r;
  }
  int size() const { return static_cast<int>(ids_.size()); }

  // What a request must be answered.
  static std::vector<int32_t> answer(const FakeModel& model, const Request& r, int count) {
    const auto n = static_cast<int32_t>(r.prompt.size());
    uint64_t chain = 0;
    size_t m = 0;
    for (int32_t i = 0; i < n; ++i) {
      const int32_t at[3] = {position(r, 0, i), position(r, 1, i), position(r, 2, i)};
      while (m < r.media.size() && r.media[m].end <= i) ++m;
      float row[FakeTower::kHidden];
      std::span<const float> picture;
      if (m < r.media.size() && i >= r.media[m].begin) {
        const MediaItem& item = r.media[m];
        FakeTower::row({item.t, item.h, item.w}, reinterpret_cast<const float*>(item.patches->data() + item.offset),
                       i - item.begin, row);
        picture = row;
      }
      chain = FakeChain::mix(chain, FakeChain::seen(r.prompt[static_cast<size_t>(i)], i, at, picture), i);
    }
    std::vector<int32_t> out;
    for (int32_t i = n; static_cast<int>(out.size()) < count; ++i) {
      out.push_back(model.next(chain));
      const int32_t p = i + r.rope_delta, at[3] = {p, p, p};
      chain = FakeChain::mix(chain, FakeChain::seen(out.back(), i, at, {}), i);
    }
    return out;
  }

 private:
  static int32_t position(const Request& r, size_t axis, int32_t i) {
    return r.positions.empty() ? i : r.positions[axis * r.prompt.size() + static_cast<size_t>(i)];
  }
  void push(int32_t id, int32_t t, int32_t h, int32_t w) {
    ids_.push_back(id);
    at_[0].push_back(t), at_[1].push_back(h), at_[2].push_back(w);
  }
  std::vector<int32_t> ids_, at_[3];
  std::vector<MediaItem> media_;
  int32_t next_ = 0;
  uint64_t salt_ = 0;
  float special_ = 0;
};

// A model as wide as the tower's rows, and an engine whose largest picture has 400 patches.
inline FakeOptions picture_options() {
  FakeOptions o;
  o.hidden = FakeTower::kHidden;
  return o;
}
inline EngineConfig picture_config(int budget = 64, int blocks = 200, int seqs = 8) {
  EngineConfig c = Harness::small(blocks, seqs, budget);
  c.vision.max_item_patches = 400;
  return c;
}

}  // namespace tern::engine
