#include "app/config/graph_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace tern::app {
namespace {

constexpr const char* kFlag = "graph-optimization-config";

Error wrong(const std::string& message) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("--{} {}", kFlag, message), kFlag);
}

Expected<int64_t> number(const json::Object& config, std::string_view key, int64_t fallback, int64_t most) {
  const auto value = json::get_int(config, key);
  if (!value.ok()) return wrong(value.error().message);
  const int64_t n = value.value().value_or(fallback);
  if (n < 0 || n > most) return wrong(fmt::format("{} {} is not between 0 and {}", key, n, most));
  return n;
}

Expected<bool> truth(const json::Object& config, std::string_view key, bool fallback) {
  const auto value = json::get_bool(config, key);
  if (!value.ok()) return wrong(value.error().message);
  return value.value().value_or(fallback);
}

// A list; null and a missing key are an empty one.
Expected<const json::Array*> list(const json::Object& config, std::string_view key) {
  static const json::Array none;
  const json::Value* value = config.if_contains(key);
  if (value == nullptr || value->is_null()) return &none;
  const json::Array* array = value->if_array();
  if (array == nullptr) return wrong(fmt::format("{} must be a list", key));
  return array;
}

Expected<std::vector<int>> sizes(const json::Object& config, std::string_view key) {
  TERN_ASSIGN_OR_RETURN(const json::Array* array, list(config, key));
  std::vector<int> out;
  for (const json::Value& v : *array) {
    const int64_t* n = v.if_int64();
    if (n == nullptr || *n < 1 || *n > std::numeric_limits<int>::max()) {
      return wrong(fmt::format("{} must be a list of whole numbers of 1 or more", key));
    }
    out.push_back(static_cast<int>(*n));
  }
  return out;
}

Status check_keys(const json::Object& config) {
  constexpr std::array<std::string_view, 13> kKeys = {"graph_opt_level",           "use_cudagraph",
                                                      "cudagraph_capture_sizes",   "cudagraph_capture_sizes_prefill",
                                                      "max_capture_shape_prefill", "cudagraph_only_prefill",
                                                      "cudagraph_num_of_warmups",  "cudagraph_copy_inputs",
                                                      "full_cuda_graph",           "use_unique_memory_pool",
                                                      "draft_model_use_cudagraph", "cudagraph_splitting_ops",
                                                      "sot_warmup_sizes"};
  for (const auto& member : config) {
    if (std::find(kKeys.begin(), kKeys.end(), std::string_view(member.key())) != kKeys.end()) continue;
    return wrong(
        fmt::format("has no key \"{}\"; its keys are {}", std::string_view(member.key()), fmt::join(kKeys, ", ")));
  }
  return {};
}

Status check_others(const json::Object& config) {
  TERN_RETURN_IF_ERROR(check_keys(config));
  TERN_RETURN_IF_ERROR(number(config, "graph_opt_level", 0, 2));
  TERN_RETURN_IF_ERROR(number(config, "cudagraph_num_of_warmups", 2, 1000));
  for (const char* key :
       {"cudagraph_copy_inputs", "full_cuda_graph", "use_unique_memory_pool", "draft_model_use_cudagraph"}) {
    TERN_RETURN_IF_ERROR(truth(config, key, false));
  }
  for (const char* key : {"cudagraph_splitting_ops", "sot_warmup_sizes"}) {
    TERN_RETURN_IF_ERROR(list(config, key));
  }
  return {};
}

}  // namespace

Expected<engine::GraphConfig> graph_settings(const FlagSet& flags) {
  engine::GraphConfig c;
  c.use = !flags.has("use-cudagraph") || flags.boolean("use-cudagraph");
  const json::Object* config = flags.get(kFlag).if_object();
  if (config == nullptr) return c;
  TERN_RETURN_IF_ERROR(check_others(*config));
  TERN_ASSIGN_OR_RETURN(c.use, truth(*config, "use_cudagraph", c.use));
  TERN_ASSIGN_OR_RETURN(c.only_prefill, truth(*config, "cudagraph_only_prefill", false));
  TERN_ASSIGN_OR_RETURN(c.sizes, sizes(*config, "cudagraph_capture_sizes"));
  TERN_ASSIGN_OR_RETURN(c.prefill_sizes, sizes(*config, "cudagraph_capture_sizes_prefill"));
  TERN_ASSIGN_OR_RETURN(const int64_t most, number(*config, "max_capture_shape_prefill", c.max_prefill, 1 << 20));
  c.max_prefill = static_cast<int>(most);
  return c;
}

}  // namespace tern::app
