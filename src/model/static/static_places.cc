#include "model/static/static_places.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>

#include "base/checked.h"
#include "model/static/static_names.h"

namespace tern::model {
namespace {

constexpr size_t kShown = 16;  // lines per kind of complaint
constexpr int64_t kBlock = 128;

// Where one parameter is in every rank.
struct Rule {
  std::string leaf;                    // empty: the name is none that an export has
  std::vector<int64_t> sections = {};  // rows of what lies together in one rank's tensor, as q, k and v
  size_t section = 0;                  // which of them this is
  bool by_columns = false;             // ranks share columns, else rows
  bool replicated = false;             // all ranks have the whole
  bool straight = false;               // values lie [out, in]
  int64_t copies = 1;                  // neighbouring ranks that have the same rows
};

struct LayerName {
  int layer = -1, expert = -1;
  std::string_view rest;
};

// "model.layers.N.rest", or nothing.
std::optional<LayerName> split_layer(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  LayerName out;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), out.layer);
  if (error != std::errc() || *end != '.') return std::nullopt;
  out.rest = name.substr(static_cast<size_t>(end - name.data()) + 1);
  return out;
}

// For which compute capability weight-only codes are laid out. Experts' products do not say it; FP8 beside them does,
// which needs one newer than 7.5.
std::optional<int64_t> arch_of(const StaticFolder& folder) {
  if (folder.arch) return folder.arch;
  const auto is_float8 = [](const auto& p) { return p.second.type() == FileType::kF8E4M3; };
  return std::ranges::any_of(folder.parameters, is_float8) ? std::optional<int64_t>(89) : std::nullopt;
}

class Finder {
 public:
  Finder(const DecoderSpec& spec, const StaticFolder& folder, StaticTables tables)
      : spec_(spec), folder_(folder), tables_(std::move(tables)), ranks_(folder.ranks()), arch_(arch_of(folder)) {}

  Expected<std::vector<StaticPlace>> run(const std::vector<Parameter>& parameters) {
    std::vector<StaticPlace> out(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) out[i] = place(parameters[i]);
    for (const auto& [name, p] : folder_.parameters) {
      const auto fused = split_fused_name(name);
      if (fused && fused->layer >= spec_.layers)
        wrong_.push_back(fmt::format("{} is of a layer beyond the last", name));
    }
    TERN_RETURN_IF_ERROR(report());
    return out;
  }

 private:
  StaticPlace complain(std::vector<std::string>& list, std::string line) {
    // Parameters of one tensor complain alike.
    if (complaints_.insert(line).second) list.push_back(std::move(line));
    return {};
  }

  StaticPlace place(const Parameter& p) {
    if (p.name == "model.embed_tokens.weight") return table(p, tables_.embedding);
    if (p.name == "lm_head.weight") return table(p, tables_.head);
    if (p.name == "model.norm.weight") return whole_vector(p, *tables_.norm);
    const auto at = split_layer(p.name, "model.layers.");
    if (!at) return complain(missing_, p.name);
    LayerName name = *at;
    const Rule rule = rule_of(p, name);
    const StaticParameter* found = rule.leaf.empty() ? nullptr : folder_.find(name.layer, rule.leaf);
    if (found == nullptr)
      return p.optional ? StaticPlace()
                        : complain(missing_, fmt::format("fuse{}.{}.{} ({})", folder_.names.family, name.layer,
                                                         rule.leaf.empty() ? "?" : rule.leaf, p.name));
    return parts(p, name, rule, *found);
  }

  StaticPlace whole_vector(const Parameter& p, const StaticParameter& found) {
    return {{{0, p.rows, 0, 1, 0, 0, values(found.ranks[0], false, p.rows, 1)}}};
  }

  // A table of the vocabulary, by rows in all ranks or whole in each.
  StaticPlace table(const Parameter& p, const StaticParameter* found) {
    if (found == nullptr) return complain(missing_, p.name);
    const auto& d = found->dims();
    // A square one is told by its use.
    const bool square = d[0] == d[1];
    const bool swapped = p.kind != ParameterKind::kTable &&
                         (square ? !found->uses.transposed : d[0] == spec_.hidden_size && d[1] != spec_.hidden_size);
    const int64_t rows = swapped ? d[1] : d[0];
    StaticPlace out;
    for (int64_t r = 0; r < (rows == p.rows ? 1 : ranks_); ++r)
      out.parts.push_back(
          {r * rows, rows, 0, p.cols, 0, 0, values(found->ranks[static_cast<size_t>(r)], swapped, rows, p.cols)});
    return out;
  }

  // ---- names
  Rule rule_of(const Parameter& p, LayerName& name) const {
    const MoeSpec& m = spec_.moe;
    const std::string_view rest = name.rest;
    if (rest == "input_layernorm.weight") return {.leaf = "ln_scale", .replicated = true};
    if (rest == "post_attention_layernorm.weight") return {.leaf = "ffn_ln_scale", .replicated = true};
    if (rest.starts_with("self_attn.")) return attention(p, rest.substr(10));
    if (rest == m.block + ".gate.weight") return {.leaf = "gate_weight", .replicated = true};
    if (rest.starts_with("mlp.") && rest.ends_with("e_score_correction_bias"))
      return {.leaf = "e_score_correction_bias", .replicated = true};
    if (const auto expert = split_layer(rest, m.block + ".experts.")) {
      name.expert = expert->layer;
      return mlp(p, "", expert->rest, {m.gate + ".weight", m.up + ".weight", m.down + ".weight"});
    }
    const std::vector<std::string> plain = {"gate_proj.weight", "up_proj.weight", "down_proj.weight"};
    const std::string shared = m.block + "." + m.shared + ".";
    if (m.experts > 0 && rest.starts_with(shared)) return mlp(p, "shared_expert_", rest.substr(shared.size()), plain);
    if (rest.starts_with("mlp.")) return mlp(p, "", rest.substr(4), plain);
    return {};
  }

  Rule attention(const Parameter& p, std::string_view rest) const {
    const AttentionSpec& a = spec_.attention;
    if (rest == "o_proj.weight") return {.leaf = "out_proj_weight", .by_columns = true};
    if (a.kind == AttentionKind::kGqa) {
      const bool bias = rest.ends_with(".bias");
      for (size_t i = 0; i < 3; ++i) {
        if (rest.substr(0, rest.find('.')) != std::vector<std::string_view>{"q_proj", "k_proj", "v_proj"}[i]) continue;
        // With more ranks than KV heads, neighbours have the same one.
        const int64_t kv_heads = std::max<int64_t>(a.kv_heads / ranks_, 1);
        const int64_t q = a.heads / ranks_ * a.head_dim, kv = kv_heads * a.head_dim;
        return {.leaf = bias ? "qkv_bias" : "qkv_weight",
                .sections = {q, kv, kv},
                .section = i,
                .straight = true,
                .copies = i == 0 ? 1 : std::max<int64_t>(ranks_ / a.kv_heads, 1)};
      }
      return {};
    }
    for (const char* name : {"q_a_proj", "kv_a_proj_with_mqa"})
      if (rest == std::string(name) + ".weight") return {.leaf = std::string(name) + "_weight", .replicated = true};
    for (const char* name : {"q_a_layernorm", "kv_a_layernorm"})
      if (rest == std::string(name) + ".weight") return {.leaf = std::string(name) + "_weight", .replicated = true};
    for (const char* name : {"q_proj", "q_b_proj", "kv_b_proj"})
      if (rest == std::string(name) + ".weight")
        return {.leaf = std::string(name) + "_weight", .sections = {p.rows / ranks_}};
    return {};
  }

  // `leaves`: of gate, up and down.
  Rule mlp(const Parameter& p, const std::string& prefix, std::string_view rest,
           const std::vector<std::string>& leaves) const {
    if (rest == leaves[2]) return {.leaf = prefix + "ffn2_weight", .by_columns = true};
    const int64_t rows = p.rows / ranks_;
    for (size_t i = 0; i < 2; ++i)
      if (rest == leaves[i]) return {.leaf = prefix + "ffn1_weight", .sections = {rows, rows}, .section = i};
    return {};
  }

  // ---- tensors
  StaticPlace parts(const Parameter& p, const LayerName& name, Rule rule, const StaticParameter& found) {
    if (rule.sections.empty()) rule.sections = {p.rows};
    const int64_t share = rule.sections[rule.section], count = rule.replicated ? 1 : ranks_ / rule.copies;
    const int64_t k = rule.by_columns ? p.cols / ranks_ : p.cols;
    if (rule.by_columns ? k * ranks_ != p.cols : share * count != p.rows)
      return complain(wrong_, fmt::format("{} of {} rows and {} columns cannot be that of {} ranks", p.name, p.rows,
                                          p.cols, ranks_));
    const int64_t n = std::accumulate(rule.sections.begin(), rule.sections.end(), int64_t{0});
    const int64_t first = std::accumulate(
        rule.sections.begin(), rule.sections.begin() + static_cast<std::ptrdiff_t>(rule.section), int64_t{0});
    StaticPlace out;
    for (int64_t i = 0; i < count; ++i) {
      const auto rank = static_cast<size_t>(i * rule.copies);
      StaticPart part{rule.by_columns ? 0 : i * share, share, rule.by_columns ? i * k : 0, k, first, 0, {}};
      if (!matrix(p, name, rule, found, rank, n, k, part.matrix)) return {};
      out.parts.push_back(part);
    }
    return joined(p, std::move(out));
  }

  // Columns of several ranks share a row's scales no more: groups that divide a rank's columns do.
  StaticPlace joined(const Parameter& p, StaticPlace place) {
    const StaticMatrix& m = place.parts.front().matrix;
    place.group = m.group;
    if (!m.coded() || place.parts.size() == 1 || place.parts.back().col == 0) return place;
    for (const int64_t width : {kBlock, int64_t{64}, int64_t{32}}) {
      place.group = width;
      if (m.k % width == 0 && (m.group == 0 || m.group % width == 0)) return place;
      if (m.kind == StaticMatrix::Kind::kFloat8) break;
    }
    return complain(wrong_,
                    fmt::format("{}: the {} columns of each of {} ranks have scales of their own, and no groups "
                                "of 32, 64 or 128 hold them (of FP8: 128)",
                                p.name, m.k, ranks_));
  }

  static StaticMatrix values(const StoredTensor& t, bool swapped, int64_t n, int64_t k) {
    StaticMatrix m;
    m.kind = swapped ? StaticMatrix::Kind::kSwapped : StaticMatrix::Kind::kStraight;
    m.tensor = &t, m.data = t.data, m.n = n, m.k = k;
    return m;
  }

  bool matrix(const Parameter& p, const LayerName& name, const Rule& rule, const StaticParameter& found, size_t rank,
              int64_t n, int64_t k, StaticMatrix& out) {
    const StoredTensor& t = found.ranks[rank];
    const bool swapped = !rule.straight && !p.is_vector();
    if (is_float_weight(t.dtype)) {
      out = values(t, swapped, n, k);
      if (!shaped(name, rule, t, p.is_vector() ? std::vector{n} : swapped ? std::vector{k, n} : std::vector{n, k}))
        return false;
      out.data += std::max(name.expert, 0) * n * k * static_cast<int64_t>(file_type_bytes(t.dtype));
      return true;
    }
    out.tensor = &t, out.n = n, out.k = k;
    const StaticParameter* scales = folder_.find(name.layer, rule.leaf + "_scale");
    if (p.is_vector() || scales == nullptr) {
      complain(wrong_, fmt::format("{} holds {} without scales", label(name, rule), file_type_name(t.dtype)));
      return false;
    }
    out.scales = &scales->ranks[rank];
    if (!is_float_weight(out.scales->dtype)) {
      complain(wrong_, fmt::format("{}_scale has type {}", label(name, rule), file_type_name(out.scales->dtype)));
      return false;
    }
    if (t.dtype == FileType::kF8E4M3) return float8(name, rule, out);
    if (t.dtype == FileType::kI8) return weight_only(name, rule, out);
    complain(wrong_, fmt::format("{} has type {}, which is not read", label(name, rule), file_type_name(t.dtype)));
    return false;
  }

  std::string label(const LayerName& name, const Rule& rule) const {
    return fmt::format("fuse{}.{}.{}", folder_.names.family, name.layer, rule.leaf);
  }

  bool shaped(const LayerName& name, const Rule& rule, const StoredTensor& t, std::vector<int64_t> want) {
    if (name.expert >= 0) want.insert(want.begin(), spec_.moe.experts);
    if (t.shape == want) return true;
    complain(wrong_, fmt::format("{} has shape {} in each of {} ranks, not {}", label(name, rule), shape_text(t.shape),
                                 ranks_, shape_text(want)));
    return false;
  }

  // Scales of one matrix lie together; those of experts one behind the other.
  bool scales(const LayerName& name, const Rule& rule, int64_t count, StaticMatrix& out) {
    const int64_t experts = name.expert < 0 ? 1 : spec_.moe.experts;
    const auto have = static_cast<int64_t>(out.scales->bytes / file_type_bytes(out.scales->dtype));
    out.first_scale = std::max(name.expert, 0) * count;
    if (have == experts * count) return true;
    complain(wrong_, fmt::format("{}_scale has shape {}, which is not {} scales", label(name, rule),
                                 shape_text(out.scales->shape), experts * count));
    return false;
  }

  bool float8(const LayerName& name, const Rule& rule, StaticMatrix& out) {
    out.kind = StaticMatrix::Kind::kFloat8;
    out.group = kBlock;
    out.section_rows = out.n;
    // Scales of gate and up lie one behind the other, whatever their rows.
    int64_t blocks = 0;
    for (const int64_t rows : rule.sections) blocks += ceil_div(rows, kBlock);
    const auto& shape = out.scales->shape;
    const int64_t rows = shape.size() < 2 ? 0 : shape[shape.size() - 2];
    if (rows == blocks) out.section_rows = rule.sections.front();
    const int64_t want = rows == blocks ? blocks : ceil_div(out.n, kBlock);
    if (shape.size() < 2) {
      complain(wrong_, fmt::format("{} has FP8 codes without a scale for each block of 128 x 128", label(name, rule)));
      return false;
    }
    if (!shaped(name, rule, *out.tensor, {out.n, out.k})) return false;
    out.data = out.tensor->data + std::max(name.expert, 0) * out.n * out.k;
    return scales(name, rule, want * ceil_div(out.k, kBlock), out);
  }

  bool weight_only(const LayerName& name, const Rule& rule, StaticMatrix& out) {
    out.kind = StaticMatrix::Kind::kWeightOnly;
    const int64_t experts = name.expert < 0 ? 1 : spec_.moe.experts, all = experts * out.n * out.k;
    const auto bytes = static_cast<int64_t>(out.tensor->bytes);
    out.layout = {bytes == all ? 8 : 4, arch_ && *arch_ < 75, out.n, out.k};
    const bool led = name.expert < 0 || out.tensor->shape.front() == experts;
    if (!led || bytes != experts * out.layout.bytes() || !out.layout.possible() || !arch_) {
      complain(wrong_, arch_ ? fmt::format("{} has shape {}, which is no {} x {} matrix of weight-only codes",
                                           label(name, rule), shape_text(out.tensor->shape), out.n, out.k)
                             : fmt::format("{} has weight-only codes, but no weight_only_linear says for which "
                                           "architecture they are laid out",
                                           label(name, rule)));
      return false;
    }
    out.data = out.tensor->data + std::max(name.expert, 0) * out.layout.bytes();
    const auto have = static_cast<int64_t>(out.scales->bytes / file_type_bytes(out.scales->dtype)) / experts / out.n;
    for (const int64_t group : {int64_t{64}, kBlock})
      if (have > 1 && have == ceil_div(out.k, group)) out.group = group;
    return scales(name, rule, out.scale_groups() * out.n, out);
  }

  Status report() const {
    if (missing_.empty() && wrong_.empty()) return {};
    std::vector<std::string> lines;
    for (const auto& [what, list] : {std::pair{"missing", &missing_}, std::pair{"wrong:", &wrong_}}) {
      for (size_t i = 0; i < std::min(list->size(), kShown); ++i)
        lines.push_back(fmt::format("{} {}", what, (*list)[i]));
      if (list->size() > kShown) lines.push_back(fmt::format("and {} more {}", list->size() - kShown, what));
    }
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("the static export does not fit config.json ({} tensors missing, {} wrong):\n  {}",
                                  missing_.size(), wrong_.size(), fmt::join(lines, "\n  ")));
  }

  const DecoderSpec& spec_;
  const StaticFolder& folder_;
  const StaticTables tables_;
  const int64_t ranks_;
  const std::optional<int64_t> arch_;
  std::set<std::string> complaints_;
  std::vector<std::string> missing_, wrong_;
};

}  // namespace

Expected<std::vector<StaticPlace>> find_static_places(const DecoderSpec& spec, const StaticFolder& folder,
                                                      const std::vector<Parameter>& parameters) {
  TERN_ASSIGN_OR_RETURN(StaticTables tables, find_static_tables(spec, folder));
  return Finder(spec, folder, std::move(tables)).run(parameters);
}

}  // namespace tern::model
