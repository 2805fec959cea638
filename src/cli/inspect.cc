#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "app/config/quantization_flag.h"
#include "app/options.h"
#include "app/report.h"
#include "cli/commands.h"
#include "cli/engines_summary.h"
#include "cli/tools/model_folder.h"
#include "device/device.h"
#include "json/json.h"
#include "model/arch/registry.h"
#include "model/loader.h"
#include "vision/tower.h"

namespace tern::cli {
namespace {

// "24GiB", "24G", "24000MB", "25769803776": bytes.
std::optional<double> parse_size(const std::string& text) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  std::string unit(end, text.data() + text.size());
  unit.erase(std::remove(unit.begin(), unit.end(), ' '), unit.end());
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (unit.empty() || unit == "b") return number;
  const size_t power = std::string("kmgt").find(unit[0]);
  if (power == std::string::npos) return std::nullopt;
  const std::string rest = unit.substr(1);
  if (rest.empty() || rest == "ib") return number * std::pow(1024.0, static_cast<double>(power) + 1);
  return rest == "b" ? std::optional(number * std::pow(1000.0, static_cast<double>(power) + 1)) : std::nullopt;
}

std::string human(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.2f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.1f} MB", bytes / 1e6);
  return fmt::format("{:.1f} kB", bytes / 1e3);
}

std::string count(double n) {
  if (n >= 1e9) return fmt::format("{:.2f} B", n / 1e9);
  return n >= 1e6 ? fmt::format("{:.2f} M", n / 1e6) : fmt::format("{:.0f}", n);
}

// Activations, logits and the like: a rough tenth of the memory stays free for them.
constexpr double kUsable = 0.9;

struct Fit {
  std::string precision;
  double weights = 0.0, cache_tokens = 0.0;
};

// In the memory of each of so many ranks.
std::vector<Fit> fits(const model::RankSummary& s, const model::RankSummary& wide, double memory) {
  std::vector<Fit> out;
  for (const auto& [name, bytes] : s.weight_bytes) {
    const auto per_token = static_cast<double>(name == "float32" ? wide.kv_bytes_per_token : s.kv_bytes_per_token);
    const double left = memory * kUsable - static_cast<double>(bytes);
    out.push_back({name, static_cast<double>(bytes), left > 0 ? std::floor(left / per_token) : 0.0});
  }
  return out;
}

void add_tower(std::vector<std::pair<std::string, size_t>>& weights, const vision::TowerSummary& tower) {
  for (auto& [name, bytes] : weights)
    for (const auto& [precision, more] : tower.weight_bytes)
      if (precision == (name == "float32" ? name : std::string("bfloat16"))) bytes += more;
}

// Weights of both parts lie in memory together, the tower's whole on every rank.
void add_tower(model::ModelSummary& s, const vision::TowerSummary& tower) {
  add_tower(s.weight_bytes, tower);
  for (model::RankSummary& rank : s.ranks) add_tower(rank.weight_bytes, tower);
  s.parameters += tower.info.parameters;
  s.active_parameters += tower.info.parameters;
}

void print_fits(const model::ModelSummary& s, const model::RankSummary& ranks, const model::RankSummary& wide,
                double memory) {
  if (ranks.count == 1) {
    fmt::print("in {} of memory (a tenth kept for working space):\n", human(memory));
  } else {
    fmt::print("over {} ranks, in {} of memory each:\n", ranks.count, human(memory));
  }
  for (const Fit& f : fits(ranks, wide, memory)) {
    if (f.cache_tokens < 1) {
      fmt::print("  {:<10} does not fit: the weights take {}\n", f.precision, human(f.weights));
      continue;
    }
    const std::string weights = ranks.count == 1 ? "" : human(f.weights) + " of weights, ";
    fmt::print("  {:<10} {}{:.0f} tokens of cache, {:.1f} sequences of {} tokens\n", f.precision, weights,
               f.cache_tokens, f.cache_tokens / s.max_position_embeddings, s.max_position_embeddings);
  }
}

json::Object fit_object(const model::RankSummary& ranks, const model::RankSummary& wide, double memory) {
  json::Object fit;
  for (const Fit& f : fits(ranks, wide, memory)) fit[f.precision] = static_cast<int64_t>(f.cache_tokens);
  return fit;
}

json::Object weights_object(const std::vector<std::pair<std::string, size_t>>& weight_bytes) {
  json::Object weights;
  for (const auto& [name, bytes] : weight_bytes) weights[name] = bytes;
  return weights;
}

// What each of several ranks takes and holds, for every number of them that can share the model.
json::Array ranks_array(const model::ModelSummary& s, const model::ModelSummary& wide, double memory) {
  json::Array out;
  for (size_t i = 0; i < s.ranks.size(); ++i) {
    const model::RankSummary &r = s.ranks[i], &w = wide.ranks[i];
    out.emplace_back(json::Object{
        {"count", r.count},
        {"weight_bytes", weights_object(r.weight_bytes)},
        {"cache_bytes_per_token", json::Object{{"bfloat16", r.kv_bytes_per_token}, {"float32", w.kv_bytes_per_token}}},
        {"cache_tokens_that_fit", fit_object(r, w, memory)}});
  }
  return out;
}

// What was asked for beside the model.
struct Asked {
  std::string name, overrides, quantization, memory;
  int ranks = 0;  // 0: every number that can share the model
  int engines = 1;
  bool as_json = false;
};

void print_text(const model::ModelSummary& s, const model::ModelSummary& wide, const vision::TowerSummary& tower,
                double memory, const Asked& asked) {
  fmt::print("architecture     {}\n", s.architecture);
  fmt::print("parameters       {}{}\n", count(static_cast<double>(s.parameters)),
             s.active_parameters == s.parameters
                 ? ""
                 : fmt::format(" ({} active per token)", count(static_cast<double>(s.active_parameters))));
  if (tower.info.parameters > 0)
    fmt::print("vision tower     {} of them, {} values a patch, {}x{} patches a token\n",
               count(static_cast<double>(tower.info.parameters)), tower.info.patch_values, tower.info.merge,
               tower.info.merge);
  fmt::print("layers           {}\nvocabulary       {}\ncontext          {} tokens\n", s.layers, s.vocab_size,
             s.max_position_embeddings);
  fmt::print("output layer     {}\n", s.tied ? "the embedding" : "its own weights");
  for (const std::string& note : s.notes) fmt::print("note             {}\n", note);
  if (!s.formats.empty()) fmt::print("formats          {}\n", s.formats);
  for (const auto& [name, bytes] : s.weight_bytes)
    fmt::print("weights          {} in {}\n", human(static_cast<double>(bytes)), name);
  const std::string bytes = human(static_cast<double>(s.kv_bytes_per_token));
  if (s.kv.front().quantized()) {
    fmt::print("cache            {} per token ({})\n", bytes, s.cache_format);
  } else {
    fmt::print("cache            {} per token in bfloat16, {} in float32\n", bytes,
               human(static_cast<double>(wide.kv_bytes_per_token)));
  }
  if (asked.engines > 1) fmt::print("engines          {}\n", engines_line(s, asked.engines, std::max(asked.ranks, 1)));
  for (size_t i = 0; i < s.ranks.size(); ++i) print_fits(s, s.ranks[i], wide.ranks[i], memory);
}

json::Object cache_bytes(const model::ModelSummary& s, const model::ModelSummary& wide) {
  if (s.kv.front().quantized()) return {{dtype_name(s.kv.front().dtype), s.kv_bytes_per_token}};
  return {{"bfloat16", s.kv_bytes_per_token}, {"float32", wide.kv_bytes_per_token}};
}

void print_json(const model::ModelSummary& s, const model::ModelSummary& wide, const vision::TowerSummary& tower,
                double memory, const Asked& asked) {
  json::Object out{{"architecture", s.architecture},
                   {"parameters", s.parameters},
                   {"active_parameters", s.active_parameters},
                   {"vision_parameters", tower.info.parameters},
                   {"layers", s.layers},
                   {"vocab_size", s.vocab_size},
                   {"max_position_embeddings", s.max_position_embeddings},
                   {"tied_embeddings", s.tied},
                   {"notes", json::Array(s.notes.begin(), s.notes.end())},
                   {"formats", s.formats},
                   {"weight_bytes", weights_object(s.weight_bytes)},
                   {"cache_bytes_per_token", cache_bytes(s, wide)},
                   {"cache_format", s.cache_format},
                   {"memory_bytes", static_cast<int64_t>(memory)},
                   {"cache_tokens_that_fit", fit_object(s.ranks[0], wide.ranks[0], memory)},
                   {"ranks", ranks_array(s, wide, memory)}};
  if (asked.engines > 1) out["data_parallel"] = describe_engines(s, asked.engines, std::max(asked.ranks, 1));
  fmt::print("{}\n", json::dump(out));
}

Expected<double> memory_of(const std::string& text) {
  if (!text.empty()) {
    const auto bytes = parse_size(text);
    if (!bytes)
      return make_error(ErrorCode::kInvalidArgument, fmt::format("--memory {} is not a size like 24GiB", text),
                        "memory");
    return *bytes;
  }
  TERN_ASSIGN_OR_RETURN(const auto device, device::make_cpu_device({.threads = 1, .pin = false}));
  return static_cast<double>(device->info().memory_total);
}

Expected<model::Quantization> quantization_of(const std::string& text, const model::LoadOptions& options) {
  TERN_ASSIGN_OR_RETURN(const json::Value asked, app::quantization_value(text));
  TERN_ASSIGN_OR_RETURN(const std::string architecture,
                        model::read_architecture(options.path, options.config_name, options.overrides));
  auto read = model::read_quantization(asked, architecture);
  if (!read.ok())
    return make_error(ErrorCode::kInvalidArgument, "--quantization " + read.error().message, "quantization");
  return read;
}

Status inspect(const Asked& asked) {
  model::LoadOptions options;
  TERN_ASSIGN_OR_RETURN(options.path, model_folder(asked.name));
  if (!asked.overrides.empty()) {
    TERN_ASSIGN_OR_RETURN(const json::Value value, json::parse(asked.overrides));
    if (!value.is_object())
      return make_error(ErrorCode::kInvalidArgument, "--model-override must be a JSON object", "model-override");
    options.overrides = value.get_object();
  }
  options.shard.ranks = std::max(asked.ranks, 1);
  TERN_ASSIGN_OR_RETURN(options.quantization, quantization_of(asked.quantization, options));
  TERN_ASSIGN_OR_RETURN(const double memory, memory_of(asked.memory));
  TERN_ASSIGN_OR_RETURN(model::ModelSummary summary, model::summarize_model(options));
  TERN_ASSIGN_OR_RETURN(const vision::TowerSummary tower, vision::summarize_tower(options));
  add_tower(summary, tower);
  options.activation = DType::kF32;
  TERN_ASSIGN_OR_RETURN(model::ModelSummary wide, model::summarize_model(options));
  if (asked.ranks > 0)  // only these
    for (auto* all : {&summary.ranks, &wide.ranks})
      std::erase_if(*all, [&](const model::RankSummary& r) { return r.count != asked.ranks; });
  (asked.as_json ? print_json : print_text)(summary, wide, tower, memory, asked);
  return {};
}

}  // namespace

int run_inspect(const std::vector<std::string>& args) {
  app::Options parser("Says what a model is and what it takes; config.json is enough", "tern inspect");
  Asked asked;
  parser.add_option("model,--model,-m", asked.name, "Folder of the model").required();
  parser.add_option("--model-override", asked.overrides, "JSON that replaces values of config.json");
  parser.add_option("--quantization", asked.quantization, "Weights made so while loading, as serve has it");
  parser
      .add_option("--tensor-parallel-size", asked.ranks,
                  "Only over so many ranks; every number that can share the model")
      .range(1, model::kMostRanks);
  parser.add_option("--data-parallel-size", asked.engines, "So many engines with a copy of the model each").range(1, 8);
  parser.add_option("--memory", asked.memory, "What must suffice, like 24GiB; this machine's when left out");
  parser.add_flag("--json", asked.as_json, "Prints one JSON object");
  if (const auto status = app::parse_options(parser, args)) return *status;
  const Status status = inspect(asked);
  std::fflush(stdout);
  return status.ok() ? 0 : app::report(status.error());
}

}  // namespace tern::cli
