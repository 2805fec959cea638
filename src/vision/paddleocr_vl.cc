// PaddleOCR-VL's tower and projector (models-ernie-paddleocr.md 3.5, 6.2, 6.3): a SigLIP-like encoder whose positions
// are a resampled table and a rotation by row and column, then 2 x 2 patches to a token.

#include "model/config/config_reader.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/rope.h"
#include "ops/vision.h"
#include "vision/encoder.h"
#include "vision/grid_rope.h"
#include "vision/position_table.h"
#include "vision/tower_plan.h"

namespace tern::vision {
namespace {

using model::ConfigReader;

constexpr float kProjectorEps = 1e-5f;

struct Spec {
  int hidden = 0, intermediate = 0, layers = 0, heads = 0, patch = 14, channels = 3, table_side = 0, merge = 2;
  float eps = 1e-6f;
  double theta = 10000.0;
  ops::Activation act = ops::Activation::kGeluTanh;
  int text_hidden = 0;
  DType activation = DType::kBF16;

  int64_t patch_values() const { return int64_t{channels} * patch * patch; }
  int64_t head_dim() const { return hidden / heads; }
  int64_t merged() const { return int64_t{merge} * merge * hidden; }
};

struct BlockWeights {
  LayerNorm norm1, norm2;
  Linear qkv, out, fc1, fc2;
};
struct Weights {
  Linear patches;
  TensorView positions;  // [side * side, hidden]
  std::vector<BlockWeights> blocks;
  LayerNorm final_norm, pre_norm;
  Linear linear1, linear2;
};

// Where index() puts what. All but `starts` are per patch row.
struct IndexViews {
  TensorView positions;  // [3, N]: 0, row, column
  TensorView table;      // [N, 4]: rows of the position table
  TensorView order;      // [N]: patch rows by merged block
  TensorView starts;     // [segments + 1]
  TensorView weights;    // [N, 4]
};

class PaddleOcrTower final : public LoadedTower {
 public:
  explicit PaddleOcrTower(Spec spec) : spec_(spec) {
    info_.patch_values = static_cast<int>(spec.patch_values());
    info_.patch_type = info_.out_type = spec.activation;
    info_.hidden = spec.text_hidden;
    info_.merge = spec.merge;
    weights.blocks.resize(static_cast<size_t>(spec.layers));
  }

  int64_t tokens(const Grid& grid) const override { return grid.rows() / (spec_.merge * spec_.merge); }
  void index(std::span<const Grid> grids, TowerIndex& out) const override;
  size_t max_ints(int64_t rows, int) const override {
    return static_cast<size_t>(8 * rows + rows / (spec_.merge * spec_.merge) + 1);
  }
  size_t max_floats(int64_t rows, int) const override { return static_cast<size_t>(4 * rows); }
  size_t workspace_bytes(int64_t rows, int items, device::Stream stream) const override;
  Status encode(const TowerCall& call) const override;
  Status finish(device::Device& device) override;

  Weights weights;

 private:
  struct Run {
    device::Arena& arena;
    device::Stream stream;
    int64_t rows, segments;
    int longest;
    IndexViews index;
    model::Probe* probe;
    bool runs() const { return !arena.measuring(); }
  };
  Status run(Run& r, TensorView patches, TensorView out) const;
  Status mlp(Run& r, const Linear& fc1, const Linear& fc2, ops::Activation act, TensorView x, TensorView out) const;
  TensorView middle(Run& r, int64_t rows, int64_t cols) const {
    return r.arena.tensor(ops::between_products(r.stream, spec_.activation), rows, cols);
  }
  TensorView act(Run& r, int64_t rows, int64_t cols) const { return r.arena.tensor(spec_.activation, rows, cols); }
  static TensorView exact(Run& r, int64_t rows, int64_t cols) { return r.arena.tensor(DType::kF32, rows, cols); }

  const Spec spec_;
  GridRope rope_;
};

void PaddleOcrTower::index(std::span<const Grid> grids, TowerIndex& out) const {
  int64_t rows = 0, segments = 0;
  for (const Grid& g : grids) rows += g.rows(), segments += g.t;
  const auto n = static_cast<size_t>(rows);
  out.ints.assign(8 * n + static_cast<size_t>(segments) + 1, 0);
  out.floats.assign(4 * n, 0.0f);
  int32_t *ys = out.ints.data() + n, *xs = ys + n, *table = xs + n, *order = table + 4 * n, *starts = order + n;
  int32_t at = 0;
  const int m = spec_.merge;
  for (const Grid& g : grids) {
    for (int frame = 0; frame < g.t; ++frame) {
      for (int i = 0; i < g.h * g.w; ++i) {
        const auto row = static_cast<size_t>(at + i);
        ys[row] = i / g.w, xs[row] = i % g.w;
        const Neighbours near = resampled(spec_.table_side, g.h, g.w, i / g.w, i % g.w);
        for (size_t j = 0; j < 4; ++j) table[4 * row + j] = near.row[j], out.floats[4 * row + j] = near.weight[j];
      }
      for (int by = 0; by < g.h; by += m) {
        for (int bx = 0; bx < g.w; bx += m) {
          for (int p = 0; p < m * m; ++p) *order++ = at + (by + p / m) * g.w + bx + p % m;
        }
      }
      at += g.h * g.w;
      *++starts = at;
    }
  }
}

size_t PaddleOcrTower::workspace_bytes(int64_t rows, int, device::Stream stream) const {
  device::Arena arena;  // measures
  Run r{arena, stream, rows, rows / (spec_.merge * spec_.merge), static_cast<int>(rows), {}, nullptr};
  (void)run(r, {}, {});
  return arena.peak();
}

Status PaddleOcrTower::encode(const TowerCall& call) const {
  int64_t rows = 0, segments = 0;
  int longest = 0;
  for (const Grid& g : call.grids) {
    rows += g.rows(), segments += g.t;
    longest = std::max(longest, g.h * g.w);
  }
  if (rows == 0) return {};
  const int64_t tokens_out = rows / (spec_.merge * spec_.merge);
  if (call.patches.rank != 2 || call.patches.dim[0] != rows || call.patches.dim[1] != info_.patch_values ||
      call.ints.numel() < 8 * rows + segments + 1 || call.floats.numel() < 4 * rows || call.out.rank != 2 ||
      call.out.dim[0] != tokens_out || call.out.dim[1] != info_.hidden)
    return make_error(ErrorCode::kInvalidArgument, "the patches, the index or the rows do not fit the grids");
  auto* ints = call.ints.as<int32_t>();
  IndexViews index;
  index.positions = tensor2(ints, DType::kI32, 3, rows);
  index.table = tensor2(ints + 3 * rows, DType::kI32, rows, 4);
  index.order = tensor1(ints + 7 * rows, DType::kI32, rows);
  index.starts = tensor1(ints + 8 * rows, DType::kI32, segments + 1);
  index.weights = tensor2(call.floats.data, DType::kF32, rows, 4);
  Run r{call.workspace, call.stream, rows, segments, longest, index, call.probe};
  const size_t mark = call.workspace.mark();
  Status status = run(r, call.patches, call.out);
  call.workspace.release(mark);
  return status;
}

Status PaddleOcrTower::mlp(Run& r, const Linear& fc1, const Linear& fc2, ops::Activation kind, TensorView x,
                           TensorView out) const {
  const int64_t rows = r.runs() ? x.dim[0] : r.rows, step = std::min(rows, ops::rows_at_once(r.stream));
  const int64_t width = &fc1 == &weights.linear1 ? spec_.merged() : spec_.intermediate;
  const size_t mark = r.arena.mark();
  const TensorView wide = middle(r, step, width), active = act(r, step, width);
  for (int64_t at = 0; r.runs() && at < rows; at += step) {
    const int64_t n = std::min(step, rows - at);
    const auto part = [&](TensorView v) {
      v.data = v.row_bytes(at);
      v.dim[0] = n;
      return v;
    };
    TERN_RETURN_IF_ERROR(ops::active_linear(fc1.product(part(x), wide.first(n)), kind, active.first(n), r.stream));
    TERN_RETURN_IF_ERROR(ops::linear(fc2.product(active.first(n), part(out)), r.stream));
  }
  r.arena.release(mark);
  return {};
}

Status PaddleOcrTower::run(Run& r, TensorView patches, TensorView out) const {
  const int64_t n = r.rows, h = spec_.hidden, half = spec_.head_dim() / 2;
  const TensorView residual = exact(r, n, h), delta = middle(r, n, h), x = act(r, n, h);
  EncoderPass encoder{r.arena, r.stream, spec_.activation, static_cast<int>(spec_.heads), {}, {}};
  Segments segments{.starts = r.index.starts, .count = r.segments, .longest = r.longest, .shared = true};
  segments.workspace = r.arena.take(attention_workspace(encoder, segments, n, h));
  encoder.cos = exact(r, n, half), encoder.sin = exact(r, n, half);
  const auto norm = [&](const LayerNorm& w, TensorView from, TensorView sum, TensorView to, float eps) -> Status {
    if (!r.runs()) return {};
    return ops::layer_norm({from, sum, w.weight, w.bias, to, eps}, r.stream);
  };
  if (r.runs()) {
    TERN_RETURN_IF_ERROR(
        ops::rope_table({r.index.positions, rope_.inv_freq, rope_.axis, 1.0f, encoder.cos, encoder.sin}, r.stream));
    TERN_RETURN_IF_ERROR(ops::linear(weights.patches.product(patches, residual), r.stream));
    TERN_RETURN_IF_ERROR(
        ops::interpolate_rows({weights.positions, r.index.table, r.index.weights, residual}, r.stream));
  }
  const auto block_norm = [&](const LayerNorm& w, bool first) {
    return first ? norm(w, residual, {}, x, spec_.eps) : norm(w, delta, residual, x, spec_.eps);
  };
  const auto attend = [&](const BlockWeights& b, size_t) {
    return self_attention(encoder, b.qkv, b.out, segments, x, delta);
  };
  const auto widen = [&](const BlockWeights& b) { return mlp(r, b.fc1, b.fc2, spec_.act, x, delta); };
  TERN_RETURN_IF_ERROR(run_blocks(weights.blocks, block_norm, attend, widen));
  // In float32: the projector normalises it once more before it meets a product.
  const TensorView last = exact(r, n, h);
  TERN_RETURN_IF_ERROR(norm(weights.final_norm, delta, residual, last, spec_.eps));
  if (r.runs() && r.probe != nullptr) r.probe->tensor("tower", last);
  TERN_RETURN_IF_ERROR(norm(weights.pre_norm, last, {}, x, kProjectorEps));
  const TensorView blocks = act(r, n, h);
  TensorView merged = blocks;
  merged.dim[0] = n / (spec_.merge * spec_.merge);
  merged.dim[1] = merged.stride[0] = spec_.merged();
  if (r.runs()) TERN_RETURN_IF_ERROR(ops::gather_rows({x, r.index.order, blocks}, r.stream));
  TERN_RETURN_IF_ERROR(mlp(r, weights.linear1, weights.linear2, ops::Activation::kGeluErf, merged, out));
  if (r.runs() && r.probe != nullptr) r.probe->tensor("vision", out);
  return {};
}

Status PaddleOcrTower::finish(device::Device& device) {
  TERN_ASSIGN_OR_RETURN(rope_, make_grid_rope(spec_.head_dim(), spec_.theta, device));
  return {};
}

Expected<Spec> read_spec(const json::Object& config, DType activation) {
  ConfigReader text{model::flatten_text_config(config)}, vision{vision_config(config)};
  Spec s;
  s.activation = activation;
  s.text_hidden = text.integer("hidden_size", 1, 1 << 20);
  if (!config.contains("vision_config")) text.complain("vision_config is missing");
  TERN_RETURN_IF_ERROR(text.status());
  s.hidden = vision.integer("hidden_size", 8, 1 << 16);
  s.intermediate = vision.integer("intermediate_size", 1, 1 << 18);
  s.layers = vision.integer("num_hidden_layers", 1, 1000);
  s.heads = vision.integer("num_attention_heads", 1, 4096);
  s.channels = vision.integer_or("num_channels", 3, 3, 3);
  s.patch = vision.integer_or("patch_size", 14, 1, 256);
  s.merge = vision.integer_or("spatial_merge_size", 2, 1, 8);
  const int side = vision.integer_or("image_size", 384, 1, 1 << 16);
  s.table_side = side / s.patch;
  s.eps = static_cast<float>(vision.number_or("layer_norm_eps", 1e-6, 0.0, 1.0));
  if (const json::Value* rope = json::find(vision.object(), "rope_parameters"); rope != nullptr && rope->is_object()) {
    ConfigReader r{rope->get_object()};
    s.theta = r.number_or("rope_theta", s.theta, 1.0, 1e15);
    TERN_RETURN_IF_ERROR(r.status());
  }
  const std::string act = vision.string_or("hidden_act", "gelu_pytorch_tanh");
  if (act == "gelu") {
    s.act = ops::Activation::kGeluErf;
  } else if (act != "gelu_pytorch_tanh" && act != "gelu_new") {
    vision.complain("vision_config.hidden_act " + act + " is not supported", ErrorCode::kUnsupported);
  }
  if (s.hidden % s.heads != 0 || s.head_dim() % 8 != 0)
    vision.complain("the width of the tower's heads is not a multiple of 8", ErrorCode::kUnsupported);
  if (s.table_side < 1) vision.complain("image_size is smaller than a patch");
  if (s.table_side > 4096) vision.complain("image_size holds more than 4096 patches a side");
  TERN_RETURN_IF_ERROR(vision.status());
  return s;
}

void plan_weights(const Spec& s, Weights& w, TowerPlan& plan) {
  const std::vector<std::string> tower{"visual.vision_model.", "model.visual.vision_model."};
  const std::vector<std::string> projector{"mlp_AR.", "model.projector.", "model.mlp_AR."};
  const auto at = [&](std::string leaf) { return Names{tower, {std::move(leaf)}}; };
  plan.patches(w.patches, at("embeddings.patch_embedding"), s.hidden, s.patch_values(), true);
  plan.table(w.positions, at("embeddings.position_embedding"), int64_t{s.table_side} * s.table_side, s.hidden);
  for (size_t i = 0; i < w.blocks.size(); ++i) {
    BlockWeights& b = w.blocks[i];
    const std::string layer = "encoder.layers." + std::to_string(i) + ".", attn = layer + "self_attn.";
    plan.norm(b.norm1, at(layer + "layer_norm1"), s.hidden);
    plan.linear(b.qkv, {at(attn + "q_proj"), at(attn + "k_proj"), at(attn + "v_proj")}, s.hidden, s.hidden, true);
    plan.linear(b.out, {at(attn + "out_proj")}, s.hidden, s.hidden, true);
    plan.norm(b.norm2, at(layer + "layer_norm2"), s.hidden);
    plan.linear(b.fc1, {at(layer + "mlp.fc1")}, s.intermediate, s.hidden, true);
    plan.linear(b.fc2, {at(layer + "mlp.fc2")}, s.hidden, s.intermediate, true);
  }
  plan.norm(w.final_norm, at("post_layernorm"), s.hidden);
  plan.norm(w.pre_norm, {projector, {"pre_norm"}}, s.hidden);
  plan.linear(w.linear1, {{projector, {"linear_1"}}}, s.merged(), s.merged(), true);
  plan.linear(w.linear2, {{projector, {"linear_2"}}}, s.text_hidden, s.merged(), true);
}

}  // namespace

Expected<TowerParts> make_paddleocr_vl(const json::Object& config, DType activation) {
  TERN_ASSIGN_OR_RETURN(const Spec spec, read_spec(config, activation));
  auto tower = std::make_unique<PaddleOcrTower>(spec);
  TowerParts parts;
  plan_weights(spec, tower->weights, parts.plan);
  parts.tower = std::move(tower);
  parts.own = {"visual.", "mlp_AR.", "projector."};
  return parts;
}

}  // namespace tern::vision
