#include "model/verify/verify_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "model/arch/registry.h"
#include "model/decoder.h"
#include "model/loader.h"
#include "model/quantized/file_quantization.h"
#include "model/run/sequence_runner.h"
#include "model/verify/checks.h"
#include "model/verify/golden_case.h"
#include "model/verify/probes.h"
#include "model/verify/ranked_model.h"
#include "model/verify/widened.h"

namespace tern::model {
namespace {

using Row = SequenceRunner::Row;
using Logits = std::vector<float>;

// Longer prompts are not also given token by token: thousands of steps.
constexpr int kMostSingles = 1024;

double log_prob(std::span<const float> row, int32_t id) {
  const double top = *std::max_element(row.begin(), row.end());
  double sum = 0.0;
  for (float v : row) sum += std::exp(static_cast<double>(v) - top);
  return static_cast<double>(row[static_cast<size_t>(id)]) - top - std::log(sum);
}

// Errors of a quantized cache over those of its oracle, at most.
constexpr double kOfOracle = 1.25;

class CaseRun {
 public:
  CaseRun(GoldenCase golden, const VerifyOptions& options, device::Device& device)
      : golden_(std::move(golden)),
        options_(options),
        device_(device),
        widened_(device.info().kind),
        dynamic_(golden_.reference_options.contains("dynamic_rope") && options.quantization.is_null()) {}

  Expected<CaseReport> run() {
    report_.folder = golden_.folder;
    for (const GoldenPrompt& p : golden_.prompts) {
      longest_ = std::max(longest_, static_cast<int>(p.ids.size() + p.greedy.size()));
      total_ += static_cast<int>(p.ids.size());
    }
    TERN_RETURN_IF_ERROR(quantize());
    TERN_RETURN_IF_ERROR(load(options_.activation, 0, model_));
    report_.architecture = model_->info().architecture;
    const auto& decoder = options_.ranks * options_.engines > 1 ? static_cast<const RankedModel&>(*model_).rank(0)
                                                                : static_cast<const Decoder&>(*model_);
    const auto& moe = decoder.spec().moe_layer;
    has_experts_ = std::any_of(moe.begin(), moe.end(), [](uint8_t banks) { return banks != kDenseLayer; });
    exact_ = decoder.spec().attention.kind == AttentionKind::kGqa;
    for (const GoldenPrompt& p : golden_.prompts)
      for (int32_t id : p.ids)
        if (id >= model_->info().vocab_size)
          return make_error(ErrorCode::kCorrupt, "a prompt's token id is out of range");
    if (forces() && exact_model_ == nullptr) TERN_RETURN_IF_ERROR(load(DType::kF32, 0, exact_model_));
    for (const GoldenPrompt& p : golden_.prompts) TERN_RETURN_IF_ERROR(prompt(p));
    if (forces()) report_.statements.push_back(routing_.statement());
    if (options_.variations) TERN_RETURN_IF_ERROR(batched());
    return std::move(report_);
  }

 private:
  // In bfloat16 near ties of the router fall either way; the choice of the float32 pass is then imposed.
  bool forces() const { return has_experts_ && options_.activation != DType::kF32; }
  // Whether it makes no difference to a bit how the work is cut.
  bool bits() const { return exact_ && options_.exact; }

  // With quantized weights, made while loading or stored, the reference is the same codes as float32 weights, unless
  // another implementation has computed the case of the codes that are stored.
  Status quantize() {
    if (golden_.reference_options.contains("of_codes")) return {};
    TERN_ASSIGN_OR_RETURN(const std::string architecture, read_architecture(golden_.folder, "config.json", {}));
    TERN_ASSIGN_OR_RETURN(const FileQuantization files, read_file_quantization(golden_.folder));
    if (options_.quantization.is_null() && !files.any()) return {};
    dynamic_ = false;
    TERN_ASSIGN_OR_RETURN(quantization_, read_quantization(options_.quantization, architecture));
    const std::string cache = files.made.cache.empty() ? quantization_.cache : files.made.cache;
    if (quantization_.any() || files.codes || files.made.any()) {
      LoadOptions o = load_options(DType::kF32, 0);
      o.quantization.cache.clear();
      o.instead = [this](const ops::WeightFormat& codes) { return widened_.of(codes); };
      TERN_ASSIGN_OR_RETURN(exact_model_, load_model(o, device_));
      TERN_ASSIGN_OR_RETURN(golden_, widened_case(std::move(golden_), *exact_model_, device_));
    }
    return cache.empty() ? Status() : round_cache();
  }

  // With a quantized cache the oracle is the same model on a CPU whose cache holds float32, rounded to what the codes
  // would hold: it says how far rounding alone takes results from those of the case.
  Status round_cache() {
    TERN_ASSIGN_OR_RETURN(oracle_device_, device::make_cpu_device({.threads = 2, .pin = false}));
    LoadOptions o = load_options(DType::kF32, 0);
    o.instead = [this](const ops::WeightFormat& codes) { return oracle_widened_.of(codes); };
    o.rounded_cache = true;
    TERN_ASSIGN_OR_RETURN(const auto oracle, load_model(o, *oracle_device_));
    TERN_ASSIGN_OR_RETURN(GoldenCase rounded, widened_case(golden_, *oracle, *oracle_device_));
    for (const auto& [name, tensor] : golden_.tensors) {
      const GoldenTensor* off = name.find(".hidden.") != std::string::npos ? rounded.find(name) : nullptr;
      if (off == nullptr) continue;
      cache_error_ = std::max(cache_error_, compare_tensor("", tensor, off->values, options_.tolerance).rms);
    }
    rounded_.emplace(std::move(rounded));
    return {};
  }

  LoadOptions load_options(DType activation, int length) const {
    LoadOptions o;
    o.quantization = quantization_;
    o.path = golden_.folder;
    o.embed = golden_.reference_options.contains("embed");
    o.activation = activation;
    o.max_model_len = length;
    return o;
  }

  Status load(DType activation, int length, std::unique_ptr<Model>& out) {
    LoadOptions o = load_options(activation, length);
    if (activation == options_.activation) o.format = options_.format;
    if (options_.ranks * options_.engines > 1 && &out != &exact_model_) {
      o.shard = {0, options_.ranks, options_.expert_parallel, 0, options_.engines};
      TERN_ASSIGN_OR_RETURN(out, RankedModel::load(o, device_, options_.others_idle));
      return {};
    }
    TERN_ASSIGN_OR_RETURN(out, load_model(o, device_));
    return {};
  }

  Expected<std::unique_ptr<SequenceRunner>> runner(const Model& model, uint64_t seed) {
    return SequenceRunner::make(model, device_,
                                {.block_size = 64,
                                 .max_tokens = std::max(total_, longest_),
                                 .max_rows = static_cast<int>(golden_.prompts.size()),
                                 .max_length = longest_ + 1,
                                 .block_seed = seed});
  }

  Status prompt(const GoldenPrompt& p) {
    // A rule by which frequencies depend on the length is followed for the prompt as it stands.
    std::unique_ptr<Model> own;
    if (dynamic_) TERN_RETURN_IF_ERROR(load(options_.activation, static_cast<int>(p.ids.size()), own));
    const Model& model = dynamic_ ? *own : *model_;
    RoutingRecord reference;
    if (forces()) TERN_RETURN_IF_ERROR(record_routing(p, reference));
    TERN_ASSIGN_OR_RETURN(auto run, runner(model, 1));
    VerifyProbe probe(device_, forces() ? VerifyProbe::Mode::kForce : VerifyProbe::Mode::kWatch, &reference);
    const Row row{0, p.ids, true};
    TERN_ASSIGN_OR_RETURN(const auto view, run->step({&row, 1}, &probe));
    const Logits logits(view.begin(), view.end());
    check_tensors(p, logits, probe);
    TERN_RETURN_IF_ERROR(greedy(p, *run, logits, probe));
    routing_.add(probe);
    if (options_.variations) TERN_RETURN_IF_ERROR(chunked(p, model, reference));
    if (!dynamic_) references_.push_back(std::move(reference));
    return {};
  }

  // ---- tensors
  void check_tensors(const GoldenPrompt& p, const Logits& logits, const VerifyProbe& probe) {
    for (const auto& [name, values] : probe.tensors()) {
      const std::string full = p.name + "." + name;
      if (const GoldenTensor* t = golden_.find(full)) compare(full, *t, values);
    }
    if (const GoldenTensor* t = golden_.find(p.name + ".logits")) {
      const size_t n = std::min(t->values.size(), logits.size());  // the last rows
      compare(p.name + ".logits", *t, {logits.data() + (logits.size() - n), n});
    }
    if (const GoldenTensor* t = golden_.find(p.name + ".logprob_sum"); t != nullptr && t->values.size() == 1)
      log_prob_sum(p, *t, logits);
  }

  void compare(const std::string& name, const GoldenTensor& want, std::span<const float> got) {
    TensorCheck c = compare_tensor(name, want, got, options_.tolerance);
    if (const GoldenTensor* rounded = rounded_ ? rounded_->find(name) : nullptr) {
      // What activations round and what the cache does are independent: squares add up.
      const double most = std::hypot(options_.tolerance.rms,
                                     kOfOracle * compare_tensor(name, want, rounded->values, options_.tolerance).rms);
      c.ok = c.ok || c.rms <= most;
      c.tolerance = std::max(c.tolerance, most);
    }
    report_.tensors.push_back(std::move(c));
  }

  // How far off a logit of the prompt may be because of what the cache rounds.
  double rounding(const GoldenPrompt& p) const {
    const GoldenTensor* want = golden_.find(p.name + ".logits");
    const GoldenTensor* rounded = rounded_ ? rounded_->find(p.name + ".logits") : nullptr;
    if (want == nullptr || rounded == nullptr) return 0.0;
    return kOfOracle * compare_tensor("", *want, rounded->values, options_.tolerance).max_abs;
  }

  // The sum may be off by the tolerance for each of its tokens, relative to it where it is more than one a token.
  void log_prob_sum(const GoldenPrompt& p, const GoldenTensor& want, const Logits& logits) {
    const auto v = static_cast<size_t>(model_->info().outputs());
    double sum = 0.0;
    for (size_t i = 0; i + 1 < p.ids.size(); ++i) sum += log_prob({logits.data() + i * v, v}, p.ids[i + 1]);
    TensorCheck c{p.name + ".logprob_sum", std::fabs(sum - static_cast<double>(want.values[0])), 0.0, 0.0, 0.0, false};
    c.relative = c.rms = c.max_abs / std::max(want.max_abs(), 1e-30);
    c.tolerance = options_.tolerance.max * std::max(static_cast<double>(p.ids.size()), want.max_abs());
    c.tolerance += 2.0 * rounding(p) * static_cast<double>(p.ids.size());
    c.ok = c.max_abs <= c.tolerance;
    report_.tensors.push_back(std::move(c));
  }

  // ---- greedy tokens, each step fed with the recorded ones
  Status greedy(const GoldenPrompt& p, SequenceRunner& run, const Logits& prompt_logits, VerifyProbe& probe) {
    const auto v = static_cast<size_t>(model_->info().outputs());
    const GoldenTensor* reference = golden_.find(p.name + ".logits");
    const double clear = clear_margin(reference, options_.tolerance) + 2.0 * rounding(p);
    PromptCheck c{p.name, static_cast<int>(p.greedy.size()), 0, 0};
    Logits last(prompt_logits.end() - static_cast<std::ptrdiff_t>(v), prompt_logits.end());
    for (size_t i = 0; i < p.greedy.size(); ++i) {
      if (i > 0) TERN_RETURN_IF_ERROR(dynamic_ ? whole(p, i, last) : decode(p, i, run, probe, last));
      if (p.margins[i] <= clear) continue;
      ++c.checked;
      c.matched += arg_max(last, golden_.banned) == p.greedy[i];
    }
    report_.prompts.push_back(std::move(c));
    return {};
  }

  Status decode(const GoldenPrompt& p, size_t i, SequenceRunner& run, VerifyProbe& probe, Logits& last) {
    const Row row{0, {&p.greedy[i - 1], 1}, false};
    TERN_ASSIGN_OR_RETURN(const auto view, run.step({&row, 1}, &probe));
    last.assign(view.begin(), view.end());
    return {};
  }

  // As the reference did it under reference_options.dynamic_rope: all positions anew with the frequencies of this
  // length.
  Status whole(const GoldenPrompt& p, size_t i, Logits& last) {
    std::vector<int32_t> ids = p.ids;
    ids.insert(ids.end(), p.greedy.begin(), p.greedy.begin() + static_cast<std::ptrdiff_t>(i));
    std::unique_ptr<Model> model;
    TERN_RETURN_IF_ERROR(load(options_.activation, static_cast<int>(ids.size()), model));
    TERN_ASSIGN_OR_RETURN(auto run, runner(*model, 1));
    const Row row{0, ids, false};
    TERN_ASSIGN_OR_RETURN(const auto view, run->step({&row, 1}));
    last.assign(view.begin(), view.end());
    return {};
  }

  // ---- experts
  std::vector<int32_t> forced_ids(const GoldenPrompt& p) const {
    std::vector<int32_t> ids = p.ids;
    if (!p.greedy.empty()) ids.insert(ids.end(), p.greedy.begin(), p.greedy.end() - 1);
    return ids;
  }

  Status record_routing(const GoldenPrompt& p, RoutingRecord& out) {
    TERN_ASSIGN_OR_RETURN(auto run, runner(*exact_model_, 1));
    VerifyProbe probe(device_);
    const std::vector<int32_t> ids = forced_ids(p);
    const Row row{0, ids, false};
    TERN_RETURN_IF_ERROR(run->step({&row, 1}, &probe));
    out = probe.record();
    // A quantized cache rounds values that differ a little to codes that differ: each of two right passes has its
    // error.
    return routing_.disturb(*run, row, device_, out, std::hypot(options_.tolerance.rms, std::sqrt(2.0) * cache_error_));
  }

  // ---- results must not depend on how the work is cut
  Expected<Logits> last_logits(const GoldenPrompt& p, const Model& model, int chunk, uint64_t seed,
                               const RoutingRecord& reference) {
    TERN_ASSIGN_OR_RETURN(auto run, runner(model, seed));
    VerifyProbe probe(device_, VerifyProbe::Mode::kForce, &reference);
    Logits last;
    for (size_t at = 0; at < p.ids.size(); at += static_cast<size_t>(chunk)) {
      const size_t n = std::min(static_cast<size_t>(chunk), p.ids.size() - at);
      const Row row{0, {p.ids.data() + at, n}, false};
      TERN_ASSIGN_OR_RETURN(const auto view, run->step({&row, 1}, imposed(probe)));
      last.assign(view.begin(), view.end());
    }
    return last;
  }

  // The reference's experts where a choice of others would be no fault of the cut.
  Probe* imposed(VerifyProbe& probe) const { return forces() && !bits() ? &probe : nullptr; }

  // The few values of one pooled row may all be small by chance, and errors come from the sums that make them: they are
  // compared with the largest of the prompt.
  double scale_of(const GoldenPrompt& p) const {
    const GoldenTensor* t = model_->info().pooled > 0 ? golden_.find(p.name + ".logits") : nullptr;
    return t == nullptr ? 0.0 : t->max_abs();
  }

  bool same(const GoldenPrompt& p, const Logits& a, const Logits& b, std::string& detail) const {
    const bool close = (exact_ || forces()) && !rounded_;  // a rounding more or less flips codes
    const Agreement how = bits() ? Agreement::kBits : close ? Agreement::kTolerance : Agreement::kToken;
    return agree(a, b, how, options_.tolerance, golden_.banned, detail, scale_of(p));
  }

  Status chunked(const GoldenPrompt& p, const Model& model, const RoutingRecord& reference) {
    const int whole_prompt = static_cast<int>(p.ids.size());
    TERN_ASSIGN_OR_RETURN(const Logits base, last_logits(p, model, whole_prompt, 1, reference));
    StatementCheck c{p.name + " in chunks", "", true};
    uint64_t seed = 2;
    for (int chunk : {64, 17, 1}) {
      if (chunk >= whole_prompt || (chunk == 1 && whole_prompt > kMostSingles)) continue;
      TERN_ASSIGN_OR_RETURN(const Logits cut, last_logits(p, model, chunk, seed++, reference));
      std::string detail;
      c.ok = same(p, base, cut, detail) && c.ok;
      c.detail += fmt::format("{}of {}: {}", c.detail.empty() ? "" : ", ", chunk, detail);
    }
    if (!dynamic_) alone_.push_back(base);
    report_.statements.push_back(std::move(c));
    return {};
  }

  Status batched() {
    if (dynamic_ || golden_.prompts.size() < 2) return {};
    TERN_ASSIGN_OR_RETURN(auto run, runner(*model_, 7));
    std::vector<Row> rows;
    for (size_t i = 0; i < golden_.prompts.size(); ++i)
      rows.push_back({static_cast<int>(i), golden_.prompts[i].ids, false});
    const RoutingRecord reference = joined(references_, rows);
    VerifyProbe probe(device_, VerifyProbe::Mode::kForce, &reference);
    TERN_ASSIGN_OR_RETURN(const auto view, run->step(rows, imposed(probe)));
    const auto v = static_cast<size_t>(model_->info().outputs());
    StatementCheck c{"all prompts in one batch", "", true};
    for (size_t i = 0; i < rows.size(); ++i) {
      std::string detail;
      c.ok = same(golden_.prompts[i], alone_[i],
                  Logits(view.begin() + static_cast<std::ptrdiff_t>(i * v),
                         view.begin() + static_cast<std::ptrdiff_t>((i + 1) * v)),
                  detail) &&
             c.ok;
      c.detail += fmt::format("{}{}: {}", i == 0 ? "" : ", ", golden_.prompts[i].name, detail);
    }
    report_.statements.push_back(std::move(c));
    return {};
  }

  GoldenCase golden_;
  const VerifyOptions& options_;
  device::Device& device_;
  Quantization quantization_;
  WidenedFormats widened_, oracle_widened_{device::DeviceKind::kCpu};
  std::unique_ptr<device::Device> oracle_device_;
  std::optional<GoldenCase> rounded_;  // the case as the oracle of a quantized cache computes it
  double cache_error_ = 0.0;           // rms of its hidden states' error, of the worst tensor
  bool dynamic_;
  bool has_experts_ = false;
  bool exact_ = true;  // bit-equal whatever the batch; latent attention promises the same tokens only
  int longest_ = 0, total_ = 0;
  std::unique_ptr<Model> model_, exact_model_;
  std::vector<Logits> alone_;
  std::vector<RoutingRecord> references_;
  RoutingFlips routing_;
  CaseReport report_;
};

}  // namespace

int CaseReport::passed() const {
  int n = 0;
  for (const auto& c : tensors) n += c.ok;
  for (const auto& c : prompts) n += c.ok();
  for (const auto& c : statements) n += c.ok;
  return n;
}

int CaseReport::failed() const {
  return static_cast<int>(tensors.size() + prompts.size() + statements.size()) - passed();
}

Expected<CaseReport> verify_case(const std::string& folder, const VerifyOptions& options, device::Device& device) {
  TERN_ASSIGN_OR_RETURN(GoldenCase golden, read_golden_case(folder));
  if (golden.kind != "text")
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{}: {} cases cannot be verified by this build", folder, golden.kind));
  return CaseRun(std::move(golden), options, device).run();
}

}  // namespace tern::model
