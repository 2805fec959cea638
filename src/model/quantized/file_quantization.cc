#include "model/quantized/file_quantization.h"

#include <fmt/format.h>

#include "model/config/config_reader.h"
#include "model/static/static_quantization.h"

namespace tern::model {
namespace {

constexpr json::Limits kSmall{.max_bytes = 4u << 20};

// An older folder's own file, as a quantization_config; null when there is none.
Expected<json::Value> older_file(const std::string& folder) {
  constexpr std::pair<const char*, const char*> kFiles[] = {{"quantize_config.json", "gptq"},
                                                            {"quant_config.json", "awq"}};
  for (const auto& [name, method] : kFiles) {
    auto value = json::parse_file(folder + "/" + name, kSmall);
    if (!value.ok()) {
      if (value.error().code == ErrorCode::kNotFound) continue;
      return value.error();
    }
    if (!value->is_object()) return make_error(ErrorCode::kCorrupt, fmt::format("{} is not a JSON object", name));
    if (json::find(value->get_object(), "quant_method") == nullptr) value->get_object()["quant_method"] = method;
    return value;
  }
  return json::Value();
}

}  // namespace

Expected<FileQuantization> find_file_quantization(const std::string& folder, const json::Object& config,
                                                  const std::string& architecture) {
  if (has_static_weights(folder)) {
    TERN_ASSIGN_OR_RETURN(const StaticFolder exported, StaticFolder::open(folder, config));
    return static_quantization(exported, config);
  }
  const json::Object flat = flatten_text_config(config);
  if (const json::Value* said = json::find(flat, "quantization_config"); said != nullptr)
    return read_quantization_config(*said, architecture);
  // An override of null says that the weights are not quantized.
  if (config.contains("quantization_config")) return FileQuantization{};
  TERN_ASSIGN_OR_RETURN(const json::Value older, older_file(folder));
  return read_quantization_config(older, architecture);
}

Expected<FileQuantization> read_file_quantization(const std::string& folder) {
  TERN_ASSIGN_OR_RETURN(const json::Object config, read_config(folder, "config.json", {}));
  TERN_ASSIGN_OR_RETURN(const std::string architecture, architecture_of(config));
  return find_file_quantization(folder, config, architecture);
}

void settle_quantization(FileQuantization& files, LoadOptions& options) {
  if (!files.any()) return;
  const std::string method = files.codes ? files.codes->method : files.made.method;
  if (options.quantization.any())
    files.notes.push_back(
        fmt::format("--quantization {} is not used: config.json says {}", options.quantization.method, method));
  // The cache's type is a choice of its own: files that say nothing about it leave it to the command line.
  const std::string asked = options.quantization.cache;
  const bool pow2 = options.quantization.pow2_scales;  // whoever names the format
  options.quantization = !files.codes ? files.made : options.dummy ? made_instead(*files.codes) : Quantization{};
  options.quantization.pow2_scales = options.quantization.pow2_scales || (pow2 && files.made.any());
  std::string& cache = options.quantization.cache;
  if (!asked.empty() && !cache.empty() && asked != cache)
    files.notes.push_back(fmt::format("kv_cache_quant_type {} is not used: config.json says {}", asked, cache));
  if (cache.empty()) cache = asked;
}

}  // namespace tern::model
