// Qwen2.5-VL's tower and merger (models-other.md 8.2, 8.3). Patch rows come in 2 x 2 blocks; blocks are put in the
// order of windows, inside which most layers look around, and the merged rows go back to the order of the picture.
#include <algorithm>

#include "model/config/config_reader.h"
#include "ops/activation.h"
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

constexpr float kEps = 1e-6f;

struct Spec {
  int hidden = 0, intermediate = 0, layers = 0, heads = 0, patch = 14, temporal = 2, channels = 3, merge = 2;
  int window = 0;             // merged cells of a window in height and width
  std::vector<uint8_t> full;  // by layer: a frame sees itself whole
  double theta = 10000.0;
  int text_hidden = 0;
  DType activation = DType::kBF16;

  int64_t patch_values() const { return int64_t{channels} * temporal * patch * patch; }
  int64_t head_dim() const { return hidden / heads; }
  int block() const { return merge * merge; }
  int64_t merged() const { return int64_t{block()} * hidden; }
};

struct BlockWeights {
  TensorView norm1, norm2;
  Linear qkv, out, gate_up, down;
};
struct Weights {
  Linear patches;
  std::vector<BlockWeights> blocks;
  TensorView last_norm;
  Linear linear1, linear2;
};

// What a call's grids come to, and where index() puts what. Rows are those of the window order.
struct Layout {
  int64_t rows = 0, tokens = 0, frames = 0, windows = 0;
  int longest_frame = 0, longest_window = 0;
  int64_t positions() const { return 0; }                                // [3, rows]: 0, row, column
  int64_t order() const { return 3 * rows; }                             // [tokens]: which block of the picture
  int64_t frame_starts() const { return order() + tokens; }              // [frames + 1]
  int64_t window_starts() const { return frame_starts() + frames + 1; }  // [windows + 1]
  int64_t size() const { return window_starts() + windows + 1; }
};

class QwenTower final : public LoadedTower {
 public:
  explicit QwenTower(Spec spec) : spec_(std::move(spec)) {
    info_.patch_values = static_cast<int>(spec_.patch_values());
    info_.patch_type = info_.out_type = spec_.activation;
    info_.hidden = spec_.text_hidden;
    info_.merge = spec_.merge;
    weights.blocks.resize(static_cast<size_t>(spec_.layers));
  }

  int64_t tokens(const Grid& grid) const override { return grid.rows() / spec_.block(); }
  void index(std::span<const Grid> grids, TowerIndex& out) const override;
  size_t max_ints(int64_t rows, int) const override {
    // Each frame and each window has a block of its own.
    return static_cast<size_t>(3 * rows + 3 * (rows / spec_.block()) + 2);
  }
  size_t max_floats(int64_t, int) const override { return 0; }
  size_t workspace_bytes(int64_t rows, int items, device::Stream stream) const override;
  Status encode(const TowerCall& call) const override;
  Status finish(device::Device& device) override;

  Weights weights;

 private:
  // One pass over the tower. With an arena that measures, parts take what they need and run nothing.
  struct Run {
    Layout l;
    device::Arena& arena;
    device::Stream stream;
    const TowerCall* call = nullptr;
    TensorView cos, sin;
    bool runs() const { return !arena.measuring(); }
    TensorView ints(int64_t begin, int64_t n) const {
      return tensor1(call->ints.as<int32_t>() + begin, DType::kI32, n);
    }
  };
  Layout layout(std::span<const Grid> grids) const;
  Status run(Run& r) const;
  Status embed(Run& r, TensorView residual, TensorView scratch) const;
  Status mlp(Run& r, const BlockWeights& b, TensorView x, TensorView out) const;
  Status merge(Run& r, TensorView x) const;
  TensorView act(Run& r, int64_t rows, int64_t cols) const { return r.arena.tensor(spec_.activation, rows, cols); }
  static TensorView exact(Run& r, int64_t rows, int64_t cols) { return r.arena.tensor(DType::kF32, rows, cols); }
  // The four rows of a block lie together: joining them is a matter of shape.
  TensorView joined(TensorView v) const { return tensor2(v.data, v.dtype, v.dim[0] / spec_.block(), spec_.merged()); }

  const Spec spec_;
  GridRope rope_;
};

TensorView part(TensorView v, int64_t at, int64_t n) {
  v.data = v.row_bytes(at);
  v.dim[0] = n;
  return v;
}

Layout QwenTower::layout(std::span<const Grid> grids) const {
  Layout l;
  for (const Grid& g : grids) {
    const int h = g.h / spec_.merge, w = g.w / spec_.merge, cells = spec_.window;
    l.rows += g.rows(), l.tokens += tokens(g), l.frames += g.t;
    l.windows += int64_t{g.t} * ((h + cells - 1) / cells) * ((w + cells - 1) / cells);
    l.longest_frame = std::max(l.longest_frame, g.h * g.w);
    l.longest_window = std::max(l.longest_window, std::min(h, cells) * std::min(w, cells) * spec_.block());
  }
  return l;
}

void QwenTower::index(std::span<const Grid> grids, TowerIndex& out) const {
  const Layout l = layout(grids);
  const int m = spec_.merge, cells = spec_.window;
  out.floats.clear();
  out.ints.assign(static_cast<size_t>(l.size()), 0);
  int32_t *y = out.ints.data() + l.positions() + l.rows, *x = y + l.rows;
  int32_t *order = out.ints.data() + l.order(), *frame = out.ints.data() + l.frame_starts();
  int32_t* window = out.ints.data() + l.window_starts();
  int32_t first = 0, row = 0;  // first block of the frame; next row
  const auto place = [&](int w, int by, int bx) {
    *order++ = first + by * w + bx;
    for (int i = 0; i < m * m; ++i) *y++ = by * m + i / m, *x++ = bx * m + i % m;
    row += m * m;
  };
  for (const Grid& g : grids) {
    const int h = g.h / m, w = g.w / m;
    for (int t = 0; t < g.t; ++t, first += h * w) {
      for (int top = 0; top < h; top += cells) {
        for (int left = 0; left < w; left += cells) {
          for (int by = top; by < std::min(top + cells, h); ++by)
            for (int bx = left; bx < std::min(left + cells, w); ++bx) place(w, by, bx);
          *++window = row;
        }
      }
      *++frame = row;
    }
  }
}

size_t QwenTower::workspace_bytes(int64_t rows, int, device::Stream stream) const {
  device::Arena arena;  // measures
  const int64_t blocks = rows / spec_.block();
  Run r{{rows, blocks, blocks, blocks, static_cast<int>(rows), static_cast<int>(rows)}, arena, stream, nullptr, {}, {}};
  (void)run(r);
  return arena.peak();
}

Status QwenTower::encode(const TowerCall& call) const {
  if (call.grids.empty()) return {};
  for (const Grid& g : call.grids)
    if (g.t < 1 || g.h < 1 || g.w < 1 || g.h % spec_.merge != 0 || g.w % spec_.merge != 0)
      return make_error(ErrorCode::kInvalidArgument, "a picture's patches do not form whole blocks");
  Run r{layout(call.grids), call.workspace, call.stream, &call, {}, {}};
  if (call.patches.rank != 2 || call.patches.dim[0] != r.l.rows || call.patches.dim[1] != info_.patch_values ||
      call.ints.numel() < r.l.size() || call.out.rank != 2 || call.out.dim[0] != r.l.tokens ||
      call.out.dim[1] != info_.hidden)
    return make_error(ErrorCode::kInvalidArgument, "the patches, the index or the rows do not fit the grids");
  const size_t mark = call.workspace.mark();
  Status status = run(r);
  call.workspace.release(mark);
  return status;
}

Status QwenTower::run(Run& r) const {
  const int64_t n = r.l.rows, h = spec_.hidden, half = spec_.head_dim() / 2;
  const TensorView residual = exact(r, n, h), delta = exact(r, n, h), x = act(r, n, h);
  r.cos = exact(r, n, half), r.sin = exact(r, n, half);
  // The result before is added here, in one pass with the norm.
  const auto norm = [&](TensorView weight, bool first) -> Status {
    if (!r.runs()) return {};
    ops::RmsNormParams p{.x = residual, .residual = {}, .weight = weight, .out = x, .eps = kEps};
    if (!first) p.x = delta, p.residual = residual;
    return ops::rms_norm(p, r.stream);
  };
  TERN_RETURN_IF_ERROR(embed(r, residual, delta));
  const EncoderPass encoder{r.arena, r.stream, spec_.activation, static_cast<int>(spec_.heads), r.cos, r.sin};
  Segments frames{.count = r.l.frames, .longest = r.l.longest_frame};
  Segments windows{.count = r.l.windows, .longest = r.l.longest_window};
  if (r.runs()) {
    frames.starts = r.ints(r.l.frame_starts(), r.l.frames + 1);
    windows.starts = r.ints(r.l.window_starts(), r.l.windows + 1);
  }
  const auto attend = [&](const BlockWeights& b, size_t i) {
    return self_attention(encoder, b.qkv, b.out, spec_.full[i] != 0 ? frames : windows, x, delta);
  };
  const auto widen = [&](const BlockWeights& b) { return mlp(r, b, x, delta); };
  TERN_RETURN_IF_ERROR(run_blocks(weights.blocks, norm, attend, widen));
  TERN_RETURN_IF_ERROR(norm(weights.last_norm, false));
  // As the reference shows it: before the last norm, in the order of windows.
  if (r.runs() && r.call->probe != nullptr) r.call->probe->tensor("tower", residual);
  return merge(r, x);
}

Status QwenTower::embed(Run& r, TensorView residual, TensorView scratch) const {
  if (!r.runs()) return {};
  const TensorView positions = tensor2(r.call->ints.as<int32_t>() + r.l.positions(), DType::kI32, 3, r.l.rows);
  TERN_RETURN_IF_ERROR(ops::rope_table({positions, rope_.inv_freq, rope_.axis, 1.0f, r.cos, r.sin}, r.stream));
  TERN_RETURN_IF_ERROR(ops::linear({r.call->patches, &weights.patches.weight, {}, scratch}, r.stream));
  return ops::gather_rows({joined(scratch), r.ints(r.l.order(), r.l.tokens), joined(residual)}, r.stream);
}

Status QwenTower::mlp(Run& r, const BlockWeights& b, TensorView x, TensorView out) const {
  const int64_t step = std::min(r.l.rows, ops::rows_at_once(r.stream)), width = spec_.intermediate;
  const size_t mark = r.arena.mark();
  const TensorView wide = exact(r, step, 2 * width), active = act(r, step, width);
  for (int64_t at = 0; r.runs() && at < r.l.rows; at += step) {
    const int64_t n = std::min(step, r.l.rows - at);
    TERN_RETURN_IF_ERROR(ops::linear(b.gate_up.product(part(x, at, n), wide.first(n)), r.stream));
    TERN_RETURN_IF_ERROR(ops::silu_mul({wide.first(n), active.first(n), {}}, r.stream));
    TERN_RETURN_IF_ERROR(ops::linear(b.down.product(active.first(n), part(out, at, n)), r.stream));
  }
  r.arena.release(mark);
  return {};
}

Status QwenTower::merge(Run& r, TensorView x) const {
  const int64_t step = std::min(r.l.tokens, ops::rows_at_once(r.stream)), width = spec_.merged();
  const TensorView wide = exact(r, step, width), active = act(r, step, width), rows = act(r, step, spec_.text_hidden);
  for (int64_t at = 0; r.runs() && at < r.l.tokens; at += step) {
    const int64_t n = std::min(step, r.l.tokens - at);
    TERN_RETURN_IF_ERROR(ops::linear(weights.linear1.product(part(joined(x), at, n), wide.first(n)), r.stream));
    TERN_RETURN_IF_ERROR(ops::activate({wide.first(n), active.first(n), ops::Activation::kGeluErf}, r.stream));
    TERN_RETURN_IF_ERROR(ops::linear(weights.linear2.product(active.first(n), rows.first(n)), r.stream));
    TERN_RETURN_IF_ERROR(ops::scatter_rows({rows.first(n), r.ints(r.l.order() + at, n), r.call->out}, r.stream));
  }
  if (r.runs() && r.call->probe != nullptr) r.call->probe->tensor("vision", r.call->out);
  return {};
}

Status QwenTower::finish(device::Device& device) {
  TERN_ASSIGN_OR_RETURN(rope_, make_grid_rope(spec_.head_dim(), spec_.theta, device));
  return {};
}

// Defaults of published classes differ from published files: what decides about numbers must be there.
Expected<Spec> read_spec(const json::Object& config, DType activation) {
  ConfigReader text{model::flatten_text_config(config)}, vision{vision_config(config)};
  Spec s;
  s.activation = activation;
  s.text_hidden = text.integer("hidden_size", 1, 1 << 20);
  if (!config.contains("vision_config")) text.complain("vision_config is missing");
  TERN_RETURN_IF_ERROR(text.status());
  s.hidden = vision.integer("hidden_size", 8, 1 << 16);
  s.intermediate = vision.integer("intermediate_size", 1, 1 << 18);
  s.layers = vision.integer("depth", 1, 1000);
  s.heads = vision.integer("num_heads", 1, 4096);
  s.channels = vision.integer_or("in_channels", vision.integer_or("in_chans", 3, 3, 3), 3, 3);
  s.patch = vision.integer_or("patch_size", 14, 1, 256);
  s.temporal = vision.integer_or("temporal_patch_size", 2, 1, 16);
  s.merge = vision.integer_or("spatial_merge_size", 2, 1, 8);
  s.window = vision.integer("window_size", 1, 1 << 16) / s.merge / s.patch;
  s.full.assign(static_cast<size_t>(s.layers), 0);
  if (!vision.has("fullatt_block_indexes")) vision.complain("fullatt_block_indexes is missing");
  for (const int i : vision.integers("fullatt_block_indexes", 0, s.layers - 1, 1000))
    s.full[static_cast<size_t>(i)] = 1;
  if (const json::Value* rope = json::find(vision.object(), "rope_parameters"); rope != nullptr && rope->is_object()) {
    ConfigReader r{rope->get_object()};
    s.theta = r.number_or("rope_theta", s.theta, 1.0, 1e15);
    TERN_RETURN_IF_ERROR(r.status());
  }
  if (const std::string act = vision.string_or("hidden_act", "silu"); act != "silu")
    vision.complain("vision_config.hidden_act " + act + " is not supported", ErrorCode::kUnsupported);
  if (s.hidden % s.heads != 0 || s.head_dim() % 8 != 0)
    vision.complain("the width of the tower's heads is not a multiple of 8", ErrorCode::kUnsupported);
  if (s.window < 1) vision.complain("window_size is smaller than a merged patch");
  if (vision.integer_or("out_hidden_size", s.text_hidden, 1, 1 << 20) != s.text_hidden)
    vision.complain("out_hidden_size is not the width of the text model");
  TERN_RETURN_IF_ERROR(vision.status());
  return s;
}

void plan_weights(const Spec& s, Weights& w, TowerPlan& plan) {
  const auto at = [](std::string leaf) { return Names{{"visual.", "model.visual."}, {std::move(leaf)}}; };
  plan.patches(w.patches, at("patch_embed.proj"), s.hidden, s.patch_values(), false);
  for (size_t i = 0; i < w.blocks.size(); ++i) {
    BlockWeights& b = w.blocks[i];
    const std::string layer = "blocks." + std::to_string(i) + ".";
    plan.scale(b.norm1, at(layer + "norm1"), s.hidden);
    plan.linear(b.qkv, {at(layer + "attn.qkv")}, 3 * int64_t{s.hidden}, s.hidden, true);
    plan.linear(b.out, {at(layer + "attn.proj")}, s.hidden, s.hidden, true);
    plan.scale(b.norm2, at(layer + "norm2"), s.hidden);
    plan.linear(b.gate_up, {at(layer + "mlp.gate_proj"), at(layer + "mlp.up_proj")}, s.intermediate, s.hidden, true);
    plan.linear(b.down, {at(layer + "mlp.down_proj")}, s.hidden, s.intermediate, true);
  }
  plan.scale(w.last_norm, at("merger.ln_q"), s.hidden);
  plan.linear(w.linear1, {at("merger.mlp.0")}, s.merged(), s.merged(), true);
  plan.linear(w.linear2, {at("merger.mlp.2")}, s.text_hidden, s.merged(), true);
}

}  // namespace

Expected<TowerParts> make_qwen2_5_vl(const json::Object& config, DType activation) {
  TERN_ASSIGN_OR_RETURN(Spec spec, read_spec(config, activation));
  auto tower = std::make_unique<QwenTower>(spec);
  TowerParts parts;
  plan_weights(spec, tower->weights, parts.plan);
  parts.tower = std::move(tower);
  parts.own = {"visual."};
  return parts;
}

}  // namespace tern::vision
