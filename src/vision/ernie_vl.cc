// ERNIE-4.5-VL's tower (models-ernie-paddleocr.md 5.4) and resampler (5.5). Rows come in 2 x 2 blocks: four neighbours
// are one row of the resampler, and frames are joined in pairs.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "model/config/config_reader.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/vision.h"
#include "vision/encoder.h"
#include "vision/grid_rope.h"
#include "vision/tower_plan.h"

namespace tern::vision {
namespace {

using model::ConfigReader;

struct Block {
  LayerNorm norm1, norm2;
  Linear qkv, out, fc1, fc2;
};

struct Shape {
  int depth = 0, width = 0, heads = 0, intermediate = 0, patch_values = 0, merge = 2, text_hidden = 0;
  double theta = 10000.0;
  float eps = 1e-6f, text_eps = 1e-5f;
  int head_dim() const { return width / heads; }
  int64_t joined() const { return int64_t{merge} * merge * width; }
};

// Where index() puts what, in ints.
struct Layout {
  int64_t rows = 0, segments = 0, tokens = 0;
  int max_segment = 0;
  int64_t positions() const { return 0; }                   // [3, rows]: nothing, y, x
  int64_t starts() const { return 3 * rows; }               // [segments + 1]
  int64_t even() const { return starts() + segments + 1; }  // [tokens]: row of the first frame of a pair
  int64_t odd() const { return even() + tokens; }           // [tokens]: of the second; a lone frame is its own second
  int64_t size() const { return odd() + tokens; }
};

class ErnieTower final : public LoadedTower {
 public:
  ErnieTower(const Shape& shape, DType type) : s_(shape), type_(type), blocks_(static_cast<size_t>(shape.depth)) {
    info_.patch_values = s_.patch_values;
    info_.patch_type = info_.out_type = type;
    info_.hidden = s_.text_hidden;
    info_.merge = s_.merge;
  }

  void declare(TowerPlan& plan);
  Status finish(device::Device& device) override;

  int64_t tokens(const Grid& g) const override {
    return (int64_t{g.t} + 1) / 2 * (int64_t{g.h} * g.w / (int64_t{s_.merge} * s_.merge));
  }
  void index(std::span<const Grid> grids, TowerIndex& out) const override;
  size_t max_ints(int64_t rows, int items) const override;
  size_t max_floats(int64_t, int) const override { return 0; }
  size_t workspace_bytes(int64_t rows, int items, device::Stream stream) const override;
  Status encode(const TowerCall& call) const override;

 private:
  // One pass over the tower. In measuring mode (an arena without memory) parts take what they need and run nothing.
  struct Pass {
    Layout l;
    device::Arena& arena;
    device::Stream stream;
    const TowerCall* call = nullptr;
    bool measuring() const { return arena.measuring(); }
    TensorView ints(int64_t begin, int64_t n) const {
      return tensor1(call->ints.as<int32_t>() + begin, DType::kI32, n);
    }
  };

  Layout layout(std::span<const Grid> grids) const;
  Status run(Pass& pass) const;
  Status tower(Pass& pass, TensorView out) const;
  Status mlp(Pass& pass, const Linear& first, ops::Activation kind, const Linear& second, TensorView x,
             TensorView out) const;
  Status resample(Pass& pass, TensorView x) const;

  const Shape s_;
  const DType type_;
  Linear patch_;
  std::vector<Block> blocks_;
  LayerNorm last_, spatial_norm_, temporal_norm_;
  Linear spatial1_, spatial2_, temporal1_, temporal2_, project_;
  TensorView after_norm_;
  GridRope rope_;
};

void ErnieTower::declare(TowerPlan& plan) {
  const std::vector<std::string> tower = {"model.vision_model.", "vision_model.", "ernie.vision_model.",
                                          "model.vision_tower.", "vision_tower."};
  const std::vector<std::string> resampler = {"model.resampler_model.", "resampler_model.", "ernie.resampler_model."};
  const int64_t w = s_.width, joined = s_.joined();
  const auto one = [&](const std::string& leaf) { return Names{tower, {leaf}}; };
  const auto in_resampler = [&](std::vector<std::string> leaves) { return Names{resampler, std::move(leaves)}; };
  plan.linear(patch_, {one("patch_embed.proj")}, w, s_.patch_values, false);
  for (int i = 0; i < s_.depth; ++i) {
    Block& b = blocks_[static_cast<size_t>(i)];
    const std::string at = fmt::format("blocks.{}.", i);
    plan.norm(b.norm1, one(at + "norm1"), w);
    plan.norm(b.norm2, one(at + "norm2"), w);
    plan.linear(b.qkv, {one(at + "attn.qkv")}, 3 * w, w, true);
    plan.linear(b.out, {one(at + "attn.proj")}, w, w, true);
    plan.linear(b.fc1, {one(at + "mlp.fc1")}, s_.intermediate, w, true);
    plan.linear(b.fc2, {one(at + "mlp.fc2")}, w, s_.intermediate, true);
  }
  plan.norm(last_, one("ln"), w);
  // Numbers inside a Sequential, or names.
  const auto half = [&](const std::string& name, int64_t in, Linear& first, Linear& second, LayerNorm& norm) {
    plan.linear(first, {in_resampler({name + ".0", name + ".fc1"})}, joined, in, true);
    plan.linear(second, {in_resampler({name + ".2", name + ".fc2"})}, joined, joined, true);
    plan.norm(norm, in_resampler({name + ".3", name + ".ln"}), joined);
  };
  half("spatial_linear", joined, spatial1_, spatial2_, spatial_norm_);
  half("temporal_linear", 2 * joined, temporal1_, temporal2_, temporal_norm_);
  plan.linear(project_, {in_resampler({"mlp"})}, s_.text_hidden, joined, true);
  plan.scale(after_norm_, in_resampler({"after_norm"}), s_.text_hidden);
}

Status ErnieTower::finish(device::Device& device) {
  TERN_ASSIGN_OR_RETURN(rope_, make_grid_rope(s_.head_dim(), s_.theta, device));
  return {};
}

Layout ErnieTower::layout(std::span<const Grid> grids) const {
  Layout l;
  for (const Grid& g : grids) {
    l.rows += g.rows();
    l.segments += g.t;
    l.tokens += tokens(g);
    l.max_segment = std::max(l.max_segment, g.h * g.w);
  }
  return l;
}

void ErnieTower::index(std::span<const Grid> grids, TowerIndex& out) const {
  const Layout l = layout(grids);
  const int m = s_.merge;
  out.floats.clear();
  out.ints.assign(static_cast<size_t>(l.size()), 0);
  int32_t* const y = out.ints.data() + l.positions() + l.rows;
  int32_t* const x = y + l.rows;
  int32_t* const starts = out.ints.data() + l.starts();
  int32_t *even = out.ints.data() + l.even(), *odd = out.ints.data() + l.odd();
  int64_t row = 0, segment = 0, joined = 0;
  for (const Grid& g : grids) {
    for (int t = 0; t < g.t; ++t) {
      for (int block_y = 0; block_y < g.h; block_y += m)
        for (int block_x = 0; block_x < g.w; block_x += m)
          for (int i = 0; i < m * m; ++i, ++row) y[row] = block_y + i / m, x[row] = block_x + i % m;
      starts[++segment] = static_cast<int32_t>(row);
    }
    const auto frame = static_cast<int32_t>(int64_t{g.h} * g.w / (int64_t{m} * m));
    for (int t = 0; t < g.t; t += 2) {
      const int second = std::min(t + 1, g.t - 1);
      for (int32_t i = 0; i < frame; ++i) {
        *even++ = static_cast<int32_t>(joined) + t * frame + i;
        *odd++ = static_cast<int32_t>(joined) + second * frame + i;
      }
    }
    joined += int64_t{g.t} * frame;
  }
}

size_t ErnieTower::max_ints(int64_t rows, int items) const {
  // A frame has at least merge^2 rows; of frames that stay alone, each gives a token for merge^2 of its rows.
  const int64_t joined = rows / (int64_t{s_.merge} * s_.merge);
  return static_cast<size_t>(3 * rows + 3 * joined + items + 1);
}

size_t ErnieTower::workspace_bytes(int64_t rows, int items, device::Stream stream) const {
  const int64_t joined = rows / (int64_t{s_.merge} * s_.merge);
  device::Arena arena;  // measures
  Pass pass{{rows, std::max<int64_t>(joined, items), joined, static_cast<int>(rows)}, arena, stream, nullptr};
  (void)run(pass);
  return arena.peak();
}

Status ErnieTower::encode(const TowerCall& call) const {
  if (call.grids.empty()) return {};
  const size_t mark = call.workspace.mark();
  Pass pass{layout(call.grids), call.workspace, call.stream, &call};
  for (const Grid& g : call.grids)
    if (g.t < 1 || g.h < 1 || g.w < 1 || g.h % s_.merge != 0 || g.w % s_.merge != 0)
      return make_error(ErrorCode::kInvalidArgument, "a picture's patches do not form whole blocks");
  if (call.ints.rank != 1 || call.ints.dim[0] < pass.l.size() || call.patches.dim[0] != pass.l.rows)
    return make_error(ErrorCode::kInvalidArgument, "the tower's index does not belong to these pictures");
  Status status = run(pass);
  call.workspace.release(mark);
  return status;
}

Status ErnieTower::run(Pass& pass) const {
  const TensorView encoded = pass.arena.tensor(type_, pass.l.rows, s_.width);
  const size_t mark = pass.arena.mark();
  TERN_RETURN_IF_ERROR(tower(pass, encoded));
  pass.arena.release(mark);
  if (!pass.measuring() && pass.call->probe != nullptr) pass.call->probe->tensor("tower", encoded);
  // Blocks lie together, so joining their rows is a matter of shape.
  const int64_t block = int64_t{s_.merge} * s_.merge;
  return resample(pass, tensor2(encoded.data, type_, pass.l.rows / block, s_.joined()));
}

Status ErnieTower::tower(Pass& pass, TensorView out) const {
  const int64_t n = pass.l.rows, w = s_.width, half = s_.head_dim() / 2;
  const TensorView residual = pass.arena.tensor(DType::kF32, n, w), delta = pass.arena.tensor(DType::kF32, n, w);
  const TensorView cos = pass.arena.tensor(DType::kF32, n, half), sin = pass.arena.tensor(DType::kF32, n, half);
  if (!pass.measuring()) {
    const TensorView positions = tensor2(pass.call->ints.as<int32_t>() + pass.l.positions(), DType::kI32, 3, n);
    TERN_RETURN_IF_ERROR(ops::rope_table({positions, rope_.inv_freq, rope_.axis, 1.0f, cos, sin}, pass.stream));
    TERN_RETURN_IF_ERROR(ops::linear({pass.call->patches, &patch_.weight, {}, residual}, pass.stream));
  }
  // The result before is added here, in one pass with the norm.
  const auto norm = [&](const LayerNorm& weights, bool first) -> Status {
    if (pass.measuring()) return {};
    ops::LayerNormParams p{.x = residual, .weight = weights.weight, .bias = weights.bias, .out = out, .eps = s_.eps};
    if (!first) p.x = delta, p.residual = residual;
    return ops::layer_norm(p, pass.stream);
  };
  const EncoderPass encoder{pass.arena, pass.stream, type_, static_cast<int>(s_.heads), cos, sin};
  Segments segments{.count = pass.l.segments, .longest = pass.l.max_segment};
  if (!pass.measuring()) segments.starts = pass.ints(pass.l.starts(), pass.l.segments + 1);
  const auto attend = [&](const Block& b, size_t) {
    return self_attention(encoder, b.qkv, b.out, segments, out, delta);
  };
  const auto widen = [&](const Block& b) { return mlp(pass, b.fc1, ops::Activation::kQuickGelu, b.fc2, out, delta); };
  TERN_RETURN_IF_ERROR(run_blocks(blocks_, norm, attend, widen));
  return norm(last_, blocks_.empty());
}

Status ErnieTower::mlp(Pass& pass, const Linear& first, ops::Activation kind, const Linear& second, TensorView x,
                       TensorView out) const {
  const size_t mark = pass.arena.mark();
  const TensorView wide = pass.arena.tensor(DType::kF32, x.dim[0], first.weight.n);
  const TensorView active = pass.arena.tensor(type_, x.dim[0], first.weight.n);
  if (!pass.measuring()) {
    TERN_RETURN_IF_ERROR(ops::linear(first.product(x, wide), pass.stream));
    TERN_RETURN_IF_ERROR(ops::activate({wide, active, kind}, pass.stream));
    TERN_RETURN_IF_ERROR(ops::linear(second.product(active, out), pass.stream));
  }
  pass.arena.release(mark);
  return {};
}

Status ErnieTower::resample(Pass& pass, TensorView x) const {
  const int64_t blocks = x.dim[0], tokens = pass.l.tokens, width = s_.joined();
  const TensorView exact = pass.arena.tensor(DType::kF32, std::max(blocks, tokens), width);
  const TensorView spatial = pass.arena.tensor(type_, blocks, width);
  const TensorView pairs = pass.arena.tensor(type_, tokens, 2 * width);
  const TensorView temporal = pass.arena.tensor(type_, tokens, width);
  const TensorView projected = pass.arena.tensor(DType::kF32, tokens, s_.text_hidden);
  const auto norm = [&](const LayerNorm& weights, TensorView out) -> Status {
    if (pass.measuring()) return {};
    return ops::layer_norm(
        {.x = exact.first(out.dim[0]), .weight = weights.weight, .bias = weights.bias, .out = out, .eps = s_.eps},
        pass.stream);
  };
  TERN_RETURN_IF_ERROR(mlp(pass, spatial1_, ops::Activation::kGeluErf, spatial2_, x, exact.first(blocks)));
  TERN_RETURN_IF_ERROR(norm(spatial_norm_, spatial));
  if (!pass.measuring()) {
    const TensorView even = pass.ints(pass.l.even(), tokens), odd = pass.ints(pass.l.odd(), tokens);
    TERN_RETURN_IF_ERROR(ops::gather_rows({spatial, even, pairs.columns(0, width)}, pass.stream));
    TERN_RETURN_IF_ERROR(ops::gather_rows({spatial, odd, pairs.columns(width, 2 * width)}, pass.stream));
  }
  TERN_RETURN_IF_ERROR(mlp(pass, temporal1_, ops::Activation::kGeluErf, temporal2_, pairs, exact.first(tokens)));
  TERN_RETURN_IF_ERROR(norm(temporal_norm_, temporal));
  if (pass.measuring()) return {};
  TERN_RETURN_IF_ERROR(ops::linear(project_.product(temporal, projected), pass.stream));
  TERN_RETURN_IF_ERROR(
      ops::rms_norm({.x = projected, .weight = after_norm_, .out = pass.call->out, .eps = s_.text_eps}, pass.stream));
  if (pass.call->probe != nullptr) pass.call->probe->tensor("vision", pass.call->out);
  return {};
}

// Keys of the flat form (2.2) and of native exports.
Shape read_shape(ConfigReader& vision, ConfigReader& text) {
  constexpr int64_t kMaxWidth = 1 << 16;
  const auto either = [&](const char* one, const char* other, int64_t max) {
    return vision.has(one) ? vision.integer(one, 1, max) : vision.integer(other, 1, max);
  };
  Shape s;
  s.depth = either("depth", "num_hidden_layers", 1000);
  s.width = either("hidden_size", "embed_dim", kMaxWidth);
  s.heads = either("num_heads", "num_attention_heads", 4096);
  const double ratio = vision.number_or("mlp_ratio", 4.0, 1.0 / 64, 64.0);
  s.intermediate = vision.integer_or("intermediate_size", static_cast<int>(s.width * ratio), 1, 1 << 20);
  const int patch = vision.integer_or("patch_size", 14, 1, 256), channels = vision.integer_or("in_channels", 3, 1, 16);
  s.patch_values = patch * patch * channels;
  s.merge = vision.integer_or("spatial_merge_size", text.integer_or("spatial_conv_size", 2, 1, 8), 1, 8);
  const int pair = vision.integer_or("temporal_merge_size", text.integer_or("temporal_conv_size", 2, 1, 8), 1, 8);
  if (pair != 2 || !text.boolean_or("use_temporal_conv", true))
    vision.complain("frames can only be joined in pairs", ErrorCode::kUnsupported);
  if (const std::string act = vision.string_or("hidden_act", "quick_gelu"); act != "quick_gelu")
    vision.complain(fmt::format("vision_config: hidden_act {} is not supported (quick_gelu is)", act),
                    ErrorCode::kUnsupported);
  if (s.width % s.heads != 0 || s.head_dim() % 8 != 0)
    vision.complain(
        fmt::format("vision_config: {} heads do not divide a width of {} into multiples of 8", s.heads, s.width));
  if (vision.has("embed_dim") && vision.integer_or("embed_dim", 1, 1, kMaxWidth) != s.width)
    vision.complain("vision_config: embed_dim and hidden_size differ");
  if (text.integer_or("pixel_hidden_size", s.width, 1, kMaxWidth) != s.width)
    text.complain("pixel_hidden_size is not the tower's width");
  s.eps = static_cast<float>(vision.number_or("rms_norm_eps", 1e-6, 0.0, 1.0));
  if (const json::Value* rope = json::find(vision.object(), "rope_parameters"); rope != nullptr && rope->is_object()) {
    ConfigReader r{rope->get_object()};
    s.theta = r.number_or("rope_theta", 10000.0, 1.0, 1e15);
  }
  s.text_hidden = text.integer("hidden_size", 1, 1 << 20);
  s.text_eps = static_cast<float>(text.number_or("rms_norm_eps", 1e-5, 0.0, 1.0));
  return s;
}

}  // namespace

Expected<TowerParts> make_ernie_vl(const json::Object& config, DType activation) {
  ConfigReader vision{vision_config(config)}, text{model::flatten_text_config(config)};
  const Shape shape = read_shape(vision, text);
  TERN_RETURN_IF_ERROR(vision.status());
  TERN_RETURN_IF_ERROR(text.status());
  auto tower = std::make_unique<ErnieTower>(shape, activation);
  TowerParts parts;
  parts.own = {"vision_model.", "vision_tower.", "resampler_model."};
  tower->declare(parts.plan);
  parts.tower = std::move(tower);
  return parts;
}

}  // namespace tern::vision
