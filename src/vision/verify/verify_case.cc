#include "vision/verify/verify_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "model/arch/registry.h"
#include "model/config/config_reader.h"
#include "model/decoder.h"
#include "model/verify/checks.h"
#include "model/verify/golden_case.h"
#include "model/verify/probes.h"
#include "model/verify/widened.h"
#include "vision/verify/case_setup.h"

namespace tern::vision {
namespace {

using model::GoldenPrompt;
using model::GoldenTensor;
using model::RoutingRecord;
using model::SequenceRunner;
using model::StatementCheck;
using model::VerifyProbe;
using Row = SequenceRunner::Row;
using Logits = std::vector<float>;

class VisionRun {
 public:
  VisionRun(model::GoldenCase golden, const model::VerifyOptions& options, device::Device& device)
      : golden_(std::move(golden)), options_(options), device_(device), widened_(device.info().kind) {}

  Expected<model::CaseReport> run() {
    report_.folder = golden_.folder;
    TERN_ASSIGN_OR_RETURN(const std::string architecture, model::read_architecture(golden_.folder, "config.json", {}));
    TERN_ASSIGN_OR_RETURN(quantization_, model::read_quantization(options_.quantization, architecture));
    TERN_RETURN_IF_ERROR(read_rules());
    TERN_RETURN_IF_ERROR(load(options_.activation, main_));
    TERN_RETURN_IF_ERROR(pictures());
    TERN_RETURN_IF_ERROR(encode_all(main_, prompts_, device_));
    TERN_RETURN_IF_ERROR(quantize());
    report_.architecture = main_.model->info().architecture;
    const auto& moe = static_cast<const model::Decoder&>(*main_.model).spec().moe_layer;
    forces_ =
        options_.activation != DType::kF32 && std::any_of(moe.begin(), moe.end(), [](uint8_t b) { return b != 0; });
    if (forces_ && exact_.model == nullptr) {
      TERN_RETURN_IF_ERROR(load(DType::kF32, exact_));
      TERN_RETURN_IF_ERROR(encode_all(exact_, prompts_, device_));
    }
    for (const Prompt& p : prompts_) TERN_RETURN_IF_ERROR(prompt(p));
    if (forces_) report_.statements.push_back(routing_.statement());
    if (options_.variations) {
      TERN_RETURN_IF_ERROR(tower_calls());
      TERN_RETURN_IF_ERROR(batched());
    }
    return std::move(report_);
  }

 private:
  // ---- what the case says
  Status read_rules() {
    TERN_ASSIGN_OR_RETURN(processor_, read_processor(golden_.processor));
    TERN_ASSIGN_OR_RETURN(const json::Object config, model::read_config(golden_.folder, "config.json", {}));
    model::ConfigReader reader{config};
    for (const char* key : {"image_token_id", "im_patch_id", "video_token_id"})
      for (const int32_t id : model::token_ids(reader, key)) placeholders_.push_back(id);
    TERN_RETURN_IF_ERROR(reader.status());
    const auto says = [&](const char* key, const char* value) {
      const json::Value* v = json::find(golden_.reference_options, key);
      return v != nullptr && *v == value;
    };
    if (says("video_advance", "max(h,w)")) positions_.advance = image::AdvanceRule::kMaxHw;
    if (const json::Value* v = json::find(golden_.reference_options, "video_t_step"); v != nullptr && v->is_number())
      positions_.t_step = v->to_number<double>();
    if (const json::Value* v = json::find(golden_.reference_options, "expert_predicate"))
      overrides_["expert_predicate"] = *v;
    return {};
  }

  Status load(DType activation, Setup& out, bool widened = false) {
    model::LoadOptions o;
    o.path = golden_.folder;
    o.activation = activation;
    o.overrides = overrides_;
    o.quantization = quantization_;
    if (widened) o.instead = [this](const ops::WeightFormat& codes) { return widened_.of(codes); };
    if (activation == options_.activation) o.format = options_.format;
    TERN_ASSIGN_OR_RETURN(out, load_setup(o, device_));
    return {};
  }

  // With quantized weights, made while loading or stored, the reference is the same codes as float32 weights.
  Status quantize() {
    if (main_.model->info().formats.empty()) return {};
    TERN_RETURN_IF_ERROR(load(DType::kF32, exact_, true));
    TERN_RETURN_IF_ERROR(encode_all(exact_, prompts_, device_));
    return widen_case(golden_, exact_, prompts_, device_);
  }

  Status pictures() {
    for (const GoldenPrompt& g : golden_.prompts) {
      TERN_ASSIGN_OR_RETURN(Prompt p,
                            make_prompt(golden_.folder, g, processor_, *main_.tower, placeholders_, positions_));
      p.first_row = total_rows_;
      total_rows_ += p.rows;
      for (const auto* list : {&g.ids, &g.greedy})
        for (const int32_t id : *list)
          if (id >= main_.model->info().vocab_size)
            return make_error(ErrorCode::kCorrupt, "a prompt's token id is out of range");
      prompts_.push_back(std::move(p));
    }
    return {};
  }

  // ---- one prompt
  Status prompt(const Prompt& p) {
    TERN_RETURN_IF_ERROR(check_pictures(p));
    check_positions(p);
    RoutingRecord reference;
    if (forces_) TERN_RETURN_IF_ERROR(routing(p, reference));
    TERN_ASSIGN_OR_RETURN(auto run, runner(main_, 1));
    VerifyProbe probe(device_, forces_ ? VerifyProbe::Mode::kForce : VerifyProbe::Mode::kWatch, &reference);
    const Chunk whole = p.chunk(0, p.golden->ids.size());
    const Row row = whole.row(0, true);
    TERN_ASSIGN_OR_RETURN(const auto view, run->step({&row, 1}, &probe));
    const Logits logits(view.begin(), view.end());
    TERN_RETURN_IF_ERROR(check_merged(p, probe));
    if (const GoldenTensor* t = golden_.find(p.golden->name + ".logits")) {
      const size_t count = std::min(t->values.size(), logits.size());
      compare(p.golden->name + ".logits", *t, {logits.data() + (logits.size() - count), count});
    }
    TERN_RETURN_IF_ERROR(greedy(p, *run, logits, probe));
    routing_.add(probe);
    if (options_.variations) TERN_RETURN_IF_ERROR(chunked(p, reference));
    references_.push_back(std::move(reference));
    return {};
  }

  void compare(const std::string& name, const GoldenTensor& want, std::span<const float> got) {
    report_.tensors.push_back(model::compare_tensor(name, want, got, options_.tolerance));
  }
  const GoldenTensor* rows_tensor(const Prompt& p) const {
    const GoldenTensor* t = golden_.find(p.golden->name + ".image_embeds");
    return t != nullptr ? t : golden_.find(p.golden->name + ".embeds");
  }

  // Pixels must be equal bit for bit; tower and projector within the tolerance.
  Status check_pictures(const Prompt& p) {
    const std::string& name = p.golden->name;
    if (const GoldenTensor* t = golden_.find(name + ".pixel_values"))
      report_.tensors.push_back(model::compare_tensor(name + ".pixel_values", *t, p.pictures.patches, {0.0, 0.0}));
    VerifyProbe probe(device_);
    TERN_ASSIGN_OR_RETURN(const Encoded own,
                          encode_items(*main_.tower, device_, p.pictures.grids,
                                       patches_of(p.pictures, main_.tower->info().patch_type), &probe));
    const auto shown = [&](const char* tensor) {
      const auto found = probe.tensors().find(tensor);
      return found == probe.tensors().end() ? std::span<const float>() : std::span<const float>(found->second);
    };
    if (const GoldenTensor* t = golden_.find(name + ".vision_last_hidden"))
      compare(name + ".vision_last_hidden", *t, shown("tower"));
    if (const GoldenTensor* t = rows_tensor(p)) compare(name + ".picture_rows", *t, shown("vision"));
    return {};
  }

  void check_positions(const Prompt& p) {
    StatementCheck c{p.golden->name + " positions", "", true};
    const auto found = golden_.integers.find(p.golden->name + ".position_ids");
    const auto& mine = p.layout.positions.values;
    if (found != golden_.integers.end())
      c.ok = std::equal(mine.begin(), mine.end(), found->second.begin(), found->second.end());
    c.detail = fmt::format("{} tokens {}, delta {}", p.golden->ids.size(), c.ok ? "equal" : "differ",
                           p.layout.positions.delta);
    if (p.layout.positions.delta != p.golden->rope_delta) {
      c.ok = false;
      c.detail += fmt::format(" instead of {}", p.golden->rope_delta);
    }
    report_.statements.push_back(std::move(c));
  }

  // The decoder's input: rows of pictures at their placeholders, embeddings elsewhere.
  Status check_merged(const Prompt& p, const VerifyProbe& probe) {
    TERN_ASSIGN_OR_RETURN(auto run, runner(main_, 3));
    VerifyProbe text(device_);
    const Row row{0, p.golden->ids, false};
    TERN_RETURN_IF_ERROR(run->step({&row, 1}, &text));
    const auto& merged = probe.tensors().find("hidden.0")->second;
    const auto& plain = text.tensors().find("hidden.0")->second;
    const auto h = static_cast<size_t>(main_.model->info().hidden_size);
    std::vector<float> rows;
    StatementCheck c{p.golden->name + " text embeddings", "", true};
    size_t others = 0;
    for (size_t t = 0; t < p.golden->ids.size(); ++t) {
      const float* mine = merged.data() + t * h;
      if (p.layout.picture_rows[t] >= 0) {
        rows.insert(rows.end(), mine, mine + h);
      } else {
        ++others;
        c.ok = c.ok && std::memcmp(mine, plain.data() + t * h, h * sizeof(float)) == 0;
      }
    }
    c.detail = fmt::format("{} rows beside {} of pictures {}", others, p.rows, c.ok ? "untouched" : "changed");
    report_.statements.push_back(std::move(c));
    if (const GoldenTensor* t = rows_tensor(p)) compare(p.golden->name + ".merged", *t, rows);
    return {};
  }

  Status greedy(const Prompt& p, SequenceRunner& run, const Logits& prompt_logits, VerifyProbe& probe) {
    const GoldenPrompt& g = *p.golden;
    if (g.greedy.empty()) return {};
    const double clear = model::clear_margin(golden_.find(g.name + ".logits"), options_.tolerance);
    model::PromptCheck c{g.name, static_cast<int>(g.greedy.size()), 0, 0};
    Logits last(prompt_logits.end() - main_.model->info().outputs(), prompt_logits.end());
    for (size_t i = 0; i < g.greedy.size(); ++i) {
      if (i > 0) {
        const Chunk next = p.chunk(g.ids.size() + i - 1, 1);
        const Row row = next.row(0, false);
        TERN_ASSIGN_OR_RETURN(const auto view, run.step({&row, 1}, &probe));
        last.assign(view.begin(), view.end());
      }
      if (g.margins[i] <= clear) continue;
      ++c.checked;
      c.matched += model::arg_max(last, golden_.banned) == g.greedy[i];
    }
    report_.prompts.push_back(std::move(c));
    return {};
  }

  // ---- steps
  Expected<std::unique_ptr<SequenceRunner>> runner(const Setup& s, uint64_t seed) {
    return make_runner(s, prompts_, device_, seed);
  }

  // ---- experts: in bfloat16 near ties fall either way, so the float32 pass decides
  Status routing(const Prompt& p, RoutingRecord& record) {
    const Chunk all = p.chunk(0, p.golden->ids.size() + std::max<size_t>(p.golden->greedy.size(), 1) - 1);
    const Row row = all.row(0, false);
    TERN_ASSIGN_OR_RETURN(auto run, runner(exact_, 1));
    VerifyProbe probe(device_);
    TERN_RETURN_IF_ERROR(run->step({&row, 1}, &probe));
    record = probe.record();
    return routing_.disturb(*run, row, device_, record, options_.tolerance.rms);
  }

  // ---- results must not depend on how the work is cut
  Expected<Logits> last_logits(const Prompt& p, const std::vector<size_t>& ends, uint64_t seed,
                               const RoutingRecord& reference) {
    TERN_ASSIGN_OR_RETURN(auto run, runner(main_, seed));
    VerifyProbe probe(device_, VerifyProbe::Mode::kForce, &reference);
    Logits last;
    size_t at = 0;
    for (const size_t end : ends) {
      const Chunk part = p.chunk(at, end - at);
      const Row row = part.row(0, false);
      TERN_ASSIGN_OR_RETURN(const auto view, run->step({&row, 1}, imposed(probe)));
      last.assign(view.begin(), view.end());
      at = end;
    }
    return last;
  }

  // The reference's experts where a choice of others would be no fault of the cut.
  model::Probe* imposed(VerifyProbe& probe) const { return forces_ && !options_.exact ? &probe : nullptr; }

  bool same(const Logits& a, const Logits& b, std::string& detail) const {
    const auto how = options_.exact ? model::Agreement::kBits : model::Agreement::kTolerance;
    return model::agree(a, b, how, options_.tolerance, golden_.banned, detail);
  }

  Status chunked(const Prompt& p, const RoutingRecord& reference) {
    const size_t n = p.golden->ids.size();
    TERN_ASSIGN_OR_RETURN(Logits base, last_logits(p, {n}, 1, reference));
    StatementCheck c{p.golden->name + " in chunks", "", true};
    const auto check = [&](const std::string& name, std::vector<size_t> ends, uint64_t seed) -> Status {
      TERN_ASSIGN_OR_RETURN(const Logits cut, last_logits(p, ends, seed, reference));
      std::string detail;
      c.ok = same(base, cut, detail) && c.ok;
      c.detail += fmt::format("{}{}: {}", c.detail.empty() ? "" : ", ", name, detail);
      return {};
    };
    std::vector<size_t> borders;
    for (size_t t = 1; t < n; ++t)
      if ((p.layout.picture_rows[t] < 0) != (p.layout.picture_rows[t - 1] < 0)) borders.push_back(t);
    borders.push_back(n);
    TERN_RETURN_IF_ERROR(check("at pictures", borders, 2));
    for (const size_t step : {size_t{17}, size_t{1}}) {
      std::vector<size_t> ends;
      for (size_t t = step; t < n; t += step) ends.push_back(t);
      ends.push_back(n);
      TERN_RETURN_IF_ERROR(check(fmt::format("of {}", step), ends, 2 + step));
    }
    alone_.push_back(std::move(base));
    report_.statements.push_back(std::move(c));
    return {};
  }

  Status tower_calls() {
    const Tower& tower = *main_.tower;
    StatementCheck c{"pictures alone", "", true};
    int items = 0;
    int64_t row = 0;
    for (const Prompt& p : prompts_) {
      size_t value = 0;
      for (size_t i = 0; i < p.pictures.grids.size(); ++i, ++items) {
        const Grid& g = p.pictures.grids[i];
        const bool narrow = tower.info().patch_type == DType::kBF16;
        const void* patches =
            narrow ? static_cast<const void*>(p.pictures.patches16.data() + value) : p.pictures.patches.data() + value;
        TERN_ASSIGN_OR_RETURN(const Encoded one, encode_items(tower, device_, {&g, 1}, patches));
        TERN_ASSIGN_OR_RETURN(const std::vector<float> mine, one.values(device_, 0, p.tokens[i]));
        TERN_ASSIGN_OR_RETURN(const std::vector<float> packed, main_.pictures.values(device_, row, p.tokens[i]));
        std::string detail;
        const auto how = options_.exact ? model::Agreement::kBits : model::Agreement::kTolerance;
        c.ok = model::agree(packed, mine, how, options_.tolerance, {}, detail) && c.ok;
        value += static_cast<size_t>(g.rows() * tower.info().patch_values);
        row += p.tokens[i];
      }
    }
    c.detail = fmt::format("rows of {} items {} packed into one call", items, c.ok ? "agree when" : "differ when");
    report_.statements.push_back(std::move(c));
    return {};
  }

  Status batched() {
    TERN_ASSIGN_OR_RETURN(auto run, runner(main_, 7));
    std::vector<Chunk> chunks;
    for (const Prompt& p : prompts_) chunks.push_back(p.chunk(0, p.golden->ids.size()));
    std::vector<Row> rows;
    for (size_t i = 0; i < chunks.size(); ++i) rows.push_back(chunks[i].row(static_cast<int>(i), false));
    const RoutingRecord reference = model::joined(references_, rows);
    VerifyProbe probe(device_, VerifyProbe::Mode::kForce, &reference);
    TERN_ASSIGN_OR_RETURN(const auto view, run->step(rows, imposed(probe)));
    const auto v = static_cast<size_t>(main_.model->info().outputs());
    StatementCheck c{"all prompts in one batch", "", true};
    for (size_t i = 0; i < rows.size(); ++i) {
      std::string detail;
      const auto at = view.begin() + static_cast<std::ptrdiff_t>(i * v);
      c.ok = same(alone_[i], Logits(at, at + static_cast<std::ptrdiff_t>(v)), detail) && c.ok;
      c.detail += fmt::format("{}{}: {}", i == 0 ? "" : ", ", prompts_[i].golden->name, detail);
    }
    report_.statements.push_back(std::move(c));
    return {};
  }

  model::GoldenCase golden_;
  const model::VerifyOptions& options_;
  device::Device& device_;
  CaseProcessor processor_;
  std::vector<int32_t> placeholders_;
  PositionRule positions_;
  json::Object overrides_;
  model::Quantization quantization_;
  model::WidenedFormats widened_;  // before what is made with them
  Setup main_, exact_;
  bool forces_ = false;
  std::vector<Prompt> prompts_;
  int64_t total_rows_ = 0;
  std::vector<Logits> alone_;
  std::vector<RoutingRecord> references_;
  model::RoutingFlips routing_;
  model::CaseReport report_;
};

}  // namespace

Expected<model::CaseReport> verify_case(const std::string& folder, const model::VerifyOptions& options,
                                        device::Device& device) {
  TERN_ASSIGN_OR_RETURN(model::GoldenCase golden, model::read_golden_case(folder));
  if (golden.kind != "vision") return model::verify_case(folder, options, device);
  return VisionRun(std::move(golden), options, device).run();
}

}  // namespace tern::vision
