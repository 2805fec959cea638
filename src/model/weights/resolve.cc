// From names in files to parameters.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/nearest_name.h"
#include "model/weights/output_layer.h"
#include "model/weights/weight_source.h"

namespace tern::model {
namespace {

constexpr std::string_view kCanonicalRoot = "model.";
constexpr size_t kShown = 16;  // lines per kind of complaint

bool ends_with(std::string_view s, std::string_view tail) {
  return s.size() >= tail.size() && s.substr(s.size() - tail.size()) == tail;
}

class Resolver {
 public:
  Resolver(const std::vector<Parameter>& parameters, const Checkpoint& checkpoint, const ResolveOptions& options)
      : parameters_(parameters),
        checkpoint_(checkpoint),
        options_(options),
        finder_(options.codes != nullptr ? *options.codes : no_codes(), checkpoint),
        // Names of another part than the decoder are looked for as they stand.
        root_(options.own.empty() ? find_root(checkpoint) : std::string(kCanonicalRoot)) {}

  Expected<std::vector<Stored>> run() {
    std::vector<Match> matches(parameters_.size());
    for (size_t i = 0; i < parameters_.size(); ++i) matches[i] = match(parameters_[i]);
    const Usual usual = usual_orientation(matches);
    std::vector<Stored> stored(parameters_.size());
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (matches[i].tensor != nullptr) stored[i] = place(parameters_[i], matches[i], usual);
    find_unexpected();
    // A stack is looked at once for each of its matrices.
    std::set<std::string> said;
    std::erase_if(wrong_, [&](const std::string& line) { return !said.insert(line).second; });
    if (Status s = report(); !s.ok()) return std::move(s).error();
    return stored;
  }

 private:
  struct Match {
    const StoredTensor* tensor = nullptr;
    Location at;
    std::shared_ptr<const CodedTensor> coded = {};
    int straight = -1;  // 1: stored [out, in]; 0: [in, out]; -1: its shape fits both or it is a vector
  };

  std::string spelled(const std::string& canonical) const {
    if (canonical.compare(0, kCanonicalRoot.size(), kCanonicalRoot) != 0) return canonical;
    return root_ + canonical.substr(kCanonicalRoot.size());
  }

  Match match(const Parameter& p) {
    std::vector<const Location*> places;
    const Location own{p.name, 0, p.rows, 0, 0, p.across};
    places.push_back(&own);
    for (const Location& l : p.others) places.push_back(&l);
    const size_t complaints = wrong_.size();
    std::string found;
    for (const Location* l : places) {
      const std::string name = spelled(l->name);
      // Only the name that was found first is tried in other shapes.
      if (!found.empty() && name != found) continue;
      const size_t before = wrong_.size();
      if (Match coded = match_codes(p, *l, name); coded.tensor != nullptr) {
        wrong_.resize(complaints);
        return coded;
      }
      if (wrong_.size() > before) return {};
      const StoredTensor* t = checkpoint_.find(name);
      if (t == nullptr) continue;
      found = name;
      used_.insert(name);
      Match m{t, *l, {}, -1};
      if (m.at.total_rows == 0) m.at.total_rows = p.rows;
      m.at.name = name;
      if (!fits(p, m)) continue;
      wrong_.resize(complaints);
      check_promise(p, name, *t);
      return m;
    }
    if (found.empty() && !p.optional) missing_.push_back(spelled(p.name));
    return {};
  }

  static const StoredCodes& no_codes() {
    static const StoredCodes none;
    return none;
  }

  // A matrix that is stored as codes, whose places are always [out, in].
  Match match_codes(const Parameter& p, const Location& l, const std::string& name) {
    const bool matrix = p.kind == ParameterKind::kLinear || p.kind == ParameterKind::kRouter;
    if (options_.codes == nullptr || !matrix || (l.count == 0 && !ends_with(name, ".weight"))) return {};
    Match m{nullptr, l, {}, -1};
    if (m.at.total_rows == 0) m.at.total_rows = p.rows;
    const std::string module = l.count > 0 ? name : name.substr(0, name.size() - 7);
    m.coded = finder_.find({module, m.at.total_rows, p.cols, l.index, l.count}, used_, wrong_);
    if (m.coded != nullptr) m.tensor = m.coded->codes;
    return m;
  }

  void check_promise(const Parameter& p, const std::string& name, const StoredTensor& t) {
    if (p.kind != ParameterKind::kLinear || !ends_with(name, ".weight") || p.name == "lm_head.weight") return;
    if (options_.codes != nullptr && finder_.promised(name.substr(0, name.size() - 7)))
      wrong_.push_back(fmt::format("{} is stored as {}, but quantization_config names it and does not ignore it", name,
                                   file_type_name(t.dtype)));
  }

  // Checks type and shape; sets the orientation when the shape tells it.
  bool fits(const Parameter& p, Match& m) {
    const StoredTensor& t = *m.tensor;
    if (!is_float_weight(t.dtype)) {
      wrong_.push_back(
          fmt::format("{} has type {}; F32, F16 and BF16 can be loaded", m.at.name, file_type_name(t.dtype)));
      return false;
    }
    std::vector<int64_t> shape = t.shape;
    if (p.kind == ParameterKind::kTable) {
      // A convolution over whole patches is a matrix whose columns run through channel, row and column.
      for (; shape.size() > 2; shape.pop_back()) shape[shape.size() - 2] *= shape.back();
    }
    if (p.is_vector() && m.at.count > 0) {
      if (shape == std::vector<int64_t>{m.at.count, m.at.total_rows}) return true;
      return shape_complaint(m, {m.at.count, m.at.total_rows}, t);
    }
    if (p.is_vector()) {
      // Some files keep a leading 1.
      shape.erase(std::remove(shape.begin(), shape.end(), 1), shape.end());
      const std::vector<int64_t> want =
          m.at.total_rows == 1 ? std::vector<int64_t>{} : std::vector<int64_t>{m.at.total_rows};
      if (shape == want) return true;
      return shape_complaint(m, {m.at.total_rows}, t);
    }
    if (m.at.count > 0) {
      if (shape.size() != 3 || shape[0] != m.at.count)
        return shape_complaint(m, {m.at.count, m.at.total_rows, p.cols}, t);
      shape.erase(shape.begin());
    }
    const bool straight = shape.size() == 2 && shape[0] == m.at.total_rows && shape[1] == p.cols;
    const bool across =
        p.kind != ParameterKind::kTable && shape.size() == 2 && shape[0] == p.cols && shape[1] == m.at.total_rows;
    if (!straight && !across) return shape_complaint(m, {m.at.total_rows, p.cols}, t);
    if (p.kind == ParameterKind::kTable) {
      m.straight = 1;
    } else if (straight != across) {
      m.straight = straight;
    }
    return true;
  }

  bool shape_complaint(const Match& m, const std::vector<int64_t>& want, const StoredTensor& t) {
    const std::string line = fmt::format("{} has shape {}, not {}", m.at.name, shape_text(t.shape), shape_text(want));
    if (std::find(wrong_.begin(), wrong_.end(), line) == wrong_.end()) wrong_.push_back(line);
    return false;
  }

  // The orientation that square matrices follow, for plain matrices and for stacks of experts, which some files store
  // the other way round. Down projections decide, else any matrix of the class whose shape tells, else the other class;
  // where none does, names written by Paddle mean [in, out].
  struct Usual {
    bool swapped[2] = {false, false};  // plain, stacked
  };
  Usual usual_orientation(const std::vector<Match>& matches) {
    int straight[2][2] = {}, across[2][2] = {};  // by class and by being a down projection
    bool square[2] = {}, paddle = root_ == "ernie.";
    for (size_t i = 0; i < matches.size(); ++i) {
      const Match& m = matches[i];
      if (m.tensor == nullptr || m.coded != nullptr || parameters_[i].kind != ParameterKind::kLinear) continue;
      const size_t stacked = m.at.count > 0, down = m.at.name.find("down_proj") != std::string::npos;
      straight[stacked][down] += m.straight == 1;
      across[stacked][down] += m.straight == 0;
      square[stacked] = square[stacked] || m.straight < 0;
      paddle = paddle || m.at.name.find("up_gate_proj") != std::string::npos;
    }
    Usual usual;
    for (size_t stacked = 0; stacked < 2; ++stacked) {
      usual.swapped[stacked] = paddle;
      for (const size_t from : {stacked, 1 - stacked}) {
        const size_t down = straight[from][1] + across[from][1] > 0 ? 1 : 0;
        if (straight[from][down] + across[from][down] == 0) continue;
        if (square[stacked] && from == stacked && straight[from][down] > 0 && across[from][down] > 0)
          wrong_.push_back("matrices are stored in both orientations, so that square ones cannot be told");
        usual.swapped[stacked] = across[from][down] > straight[from][down];
        break;
      }
    }
    return usual;
  }

  Stored place(const Parameter& p, const Match& m, const Usual& usual) const {
    const auto bytes = static_cast<int64_t>(file_type_bytes(m.tensor->dtype));
    Stored s{m.tensor, m.tensor->data, p.cols, false, m.coded, m.at.row};
    if (m.coded != nullptr) return s;
    if (p.is_vector()) {
      s.stride = 1;
      s.data += (m.at.index * m.at.total_rows + m.at.row) * bytes;
      return s;
    }
    // A router's square matrix cannot ask the others; its place tells.
    const bool unknown_swapped = p.kind == ParameterKind::kLinear ? usual.swapped[m.at.count > 0] : m.at.across;
    s.swapped = m.straight < 0 ? unknown_swapped : m.straight == 0;
    s.data += m.at.index * m.at.total_rows * p.cols * bytes;
    s.stride = s.swapped ? m.at.total_rows : p.cols;
    s.data += m.at.row * (s.swapped ? 1 : s.stride) * bytes;
    return s;
  }

  // Index N of "...layers.N....", or -1.
  static int layer_index(std::string_view name) {
    const size_t at = name.find("layers.");
    if (at == std::string_view::npos) return -1;
    const char* begin = name.data() + at + 7;
    int n = -1;
    std::from_chars(begin, name.data() + name.size(), n);
    return n;
  }

  // Tensors that models-other.md 0 and models-ernie-paddleocr.md 3 call optional.
  bool ignorable(const std::string& name) const {
    for (const char* part :
         {"rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", ".mtp_emb_norm.",
          ".mtp_hidden_norm.", ".mtp_linear_proj.", ".mtp_block.", "packing_position_embedding", "vision_model.head."})
      if (name.find(part) != std::string::npos) return true;
    // Scales of a quantized cache, of which the configuration has spoken.
    if (options_.codes != nullptr && (ends_with(name, ".k_scale") || ends_with(name, ".v_scale"))) return true;
    if (ends_with(name, "lm_head.weight")) return true;  // find_output_layer() has said whether it is used
    const auto holds = [&](const std::string& part) { return name.find(part) != std::string::npos; };
    if (std::any_of(options_.foreign.begin(), options_.foreign.end(), holds)) return true;
    if (!options_.own.empty() && std::none_of(options_.own.begin(), options_.own.end(), holds)) return true;
    const int layer = layer_index(name);
    return layer >= options_.layers && (options_.cut || layer < options_.layers + options_.mtp_layers);
  }

  void find_unexpected() {
    for (const auto& [name, tensor] : checkpoint_.tensors())
      if (used_.count(name) == 0 && !ignorable(name)) unexpected_.push_back(name);
  }

  static void list(std::vector<std::string>& lines, const char* what, const std::vector<std::string>& names,
                   const std::vector<std::string>& others) {
    const std::vector<std::string_view> candidates(others.begin(), others.end());
    for (size_t i = 0; i < std::min(names.size(), kShown); ++i) {
      const std::string_view near = nearest_name(names[i], candidates);
      lines.push_back(near.empty() ? fmt::format("{} {}", what, names[i])
                                   : fmt::format("{} {} (nearest: {})", what, names[i], near));
    }
    if (names.size() > kShown) lines.push_back(fmt::format("and {} more {}", names.size() - kShown, what));
  }

  Status report() const {
    std::vector<std::string> lines;
    std::vector<std::string> expected;
    for (const Parameter& p : parameters_) expected.push_back(spelled(p.name));
    list(lines, "missing", missing_, unexpected_);
    list(lines, "unexpected", unexpected_, missing_.empty() ? expected : missing_);
    list(lines, "wrong:", wrong_, {});
    if (lines.empty()) return {};
    return make_error(
        ErrorCode::kCorrupt,
        fmt::format("the weights do not fit config.json ({} tensors missing, {} unexpected, {} wrong):\n  {}",
                    missing_.size(), unexpected_.size(), wrong_.size(), fmt::join(lines, "\n  ")));
  }

  const std::vector<Parameter>& parameters_;
  const Checkpoint& checkpoint_;
  const ResolveOptions options_;
  const CodedFinder finder_;
  const std::string root_;
  std::set<std::string> used_;
  std::vector<std::string> missing_, unexpected_, wrong_;
};

}  // namespace

Expected<std::vector<Stored>> resolve_parameters(const std::vector<Parameter>& parameters, const Checkpoint& checkpoint,
                                                 const ResolveOptions& options) {
  return Resolver(parameters, checkpoint, options).run();
}

Presences default_presences(const DecoderSpec& spec) {
  OutputLayer output;
  output.tied = spec.tied.value_or(spec.tied_by_default);
  return {std::move(output), spec.moe.experts > 0 && spec.moe.correction_bias == Presence::kRequired};
}

Presences detect_presences(const DecoderSpec& spec, const Checkpoint& checkpoint) {
  Presences p = default_presences(spec);
  if (spec.head == HeadKind::kVocabulary) p.output = find_output_layer(spec, checkpoint);
  if (spec.moe.correction_bias == Presence::kOptional)
    for (const auto& [name, tensor] : checkpoint.tensors())
      p.correction_bias = p.correction_bias || ends_with(name, "e_score_correction_bias");
  return p;
}

}  // namespace tern::model
