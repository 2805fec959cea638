// A tower whose output rows are hashes of the patches under them, their place and the grid; it checks its inputs. And
// requests with pictures, with what FakeModel answers to them.
#pragma once

#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/tests/engine_harness.h"
#include "engine/tests/fake_model.h"
#include "vision/tower.h"

namespace tern::engine {

class FakeTower final : public vision::Tower {
 public:
  static constexpr int kValues = 3, kHidden = 4;
  static constexpr float kFails = -77.0f;  // a patch value: encode() fails

  FakeTower() {
    info_.architecture = "FakeTower";
    info_.patch_values = kValues, info_.hidden = kHidden, info_.merge = 2, info_.max_side = 128;
    info_.patch_type = info_.out_type = DType::kF32;
  }
  const vision::TowerInfo& info() const override { return info_; }
  // Two frames are one, as in ERNIE's resampler.
  int64_t tokens(const vision::Grid& g) const override { return int64_t{(g.t + 1) / 2} * (g.h / 2) * (g.w / 2); }
  void index(std::span<const vision::Grid> grids, vision::TowerIndex& out) const override {
    int32_t row = 0;
    for (const vision::Grid& g : grids) {
      out.ints.insert(out.ints.end(), {g.t, g.h, g.w, row});
      for (int64_t i = 0; i < g.rows(); ++i) out.floats.push_back(static_cast<float>(row++));
    }
  }
  size_t max_ints(int64_t, int count) const override { return 4 * static_cast<size_t>(count); }
  size_t max_floats(int64_t rows, int) const override { return static_cast<size_t>(rows); }
  size_t workspace_bytes(int64_t rows, int count, device::Stream) const override {
    return huge.load() + static_cast<size_t>(rows) * 64 + static_cast<size_t>(count) * 64;
  }

  Status encode(const vision::TowerCall& c) const override {
    int64_t rows = 0, out = 0;
    if (c.ints.dim[0] != 4 * static_cast<int64_t>(c.grids.size())) return fault("ints");
    for (size_t i = 0; i < c.grids.size(); ++i) {
      const vision::Grid& g = c.grids[i];
      const int32_t* ints = c.ints.as<int32_t>() + 4 * i;
      if (ints[0] != g.t || ints[1] != g.h || ints[2] != g.w || ints[3] != rows) return fault("index");
      std::memset(c.workspace.take(static_cast<size_t>(g.rows()) * 64), 0xff, static_cast<size_t>(g.rows()) * 64);
      TERN_RETURN_IF_ERROR(item(c, g, rows, out));
      rows += g.rows(), out += tokens(g);
    }
    if (rows != c.patches.dim[0] || rows != c.floats.dim[0] || out != c.out.dim[0]) return fault("sizes");
    calls.fetch_add(1), items.fetch_add(static_cast<int>(c.grids.size()));
    return {};
  }

  // The values of an item's output row.
  static void row(const vision::Grid& g, const float* patches, int64_t j, float (&out)[kHidden]) {
    uint64_t z =
        FakeChain::mix(static_cast<uint64_t>(g.h) << 20 ^ static_cast<uint64_t>(g.t), g.w, static_cast<int32_t>(j));
    const int64_t width = g.w / 2, per_frame = (g.h / 2) * width, frame = j / per_frame, y = j % per_frame / width;
    bool nan = false;
    for (int64_t f = 2 * frame; f < std::min<int64_t>(g.t, 2 * frame + 2); ++f) {
      for (int64_t k = 0; k < 4 * kValues; ++k) {
        const int64_t patch = (f * g.h + 2 * y + k / 2 % 2) * g.w + 2 * (j % width) + k % 2;
        const float v = patches[patch * kValues + k / 4];
        nan |= std::isnan(v);
        z = FakeChain::mix(z, nan ? 0 : static_cast<int32_t>(v), static_cast<int32_t>(k));
      }
    }
    for (float& x : out) {
      x = nan ? std::nanf("") : static_cast<float>(z >> 40) / (1 << 24);
      z = FakeChain::mix(z, 1, 1);
    }
  }

  mutable std::atomic<int> calls{0}, items{0};
  std::atomic<bool> mend{false};  // what is not a number counts as 0
  std::atomic<size_t> huge{0};    // further bytes of workspace asked for

 private:
  static Error fault(const char* what) { return make_error(ErrorCode::kInternal, fmt::format("fake tower: {}", what)); }
  Status item(const vision::TowerCall& c, const vision::Grid& g, int64_t first, int64_t out) const {
    const auto count = static_cast<size_t>(g.rows() * kValues);
    const auto* given = reinterpret_cast<const float*>(c.patches.row_bytes(first));
    std::vector<float> patches(given, given + count);
    for (int64_t i = 0; i < g.rows(); ++i) {
      if (c.floats.as<float>()[first + i] != static_cast<float>(first + i)) return fault("floats");
    }
    for (float& v : patches) {
      if (v == kFails) return fault("told to fail");
      if (mend.load() && std::isnan(v)) v = 0;
    }
    for (int64_t j = 0; j < tokens(g); ++j) {
      float values[kHidden];
      row(g, patches.data(), j, values);
      std::memcpy(c.out.row_bytes(out + j), values, sizeof values);
    }
    return {};
  }
  vision::TowerInfo info_;
};

}  // namespace tern::engine
