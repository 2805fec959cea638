#include "model/reload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tern::model {
namespace {

// Keys that say nothing about the weights' use.
bool says_nothing(std::string_view key) {
  static constexpr std::array kKeys = {"_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

}  // namespace

Status check_same_config(const json::Object& now, const json::Object& then) {
  const auto differs = [](std::string_view key) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{} of config.json is not as when the model was loaded", key), "model_path");
  };
  // A key with null is as if it were not there, and find() says so.
  for (const auto& [key, value] : then) {
    const std::string_view name(key);
    if (says_nothing(name) || json::find(then, name) == nullptr) continue;
    const json::Value* other = json::find(now, name);
    if (other == nullptr || !(*other == value)) return differs(name);
  }
  for (const auto& [key, value] : now) {
    const std::string_view name(key);
    if (!says_nothing(name) && json::find(now, name) != nullptr && json::find(then, name) == nullptr) {
      return differs(name);
    }
  }
  return {};
}

Status place_again(const WeightPlan& plan, const PackOptions& options, const WeightMemory& memory) {
  if (packed_bytes(plan, options) == memory.bytes && lay_out(plan, options, memory.data()) == memory.layout) return {};
  return make_error(ErrorCode::kInvalidArgument, "the weights differ in shapes or formats from those that are loaded",
                    "model_path");
}

Status fill_again(const WeightPlan& plan, const WeightSource& source, const PackOptions& options,
                  device::Device& device, WeightMemory& memory) {
  TERN_RETURN_IF_ERROR(memory.give_back());  // packing wants zeros
  if (const size_t available = device.memory_available(); memory.bytes > available) {
    return make_error(ErrorCode::kResourceExhausted,
                      fmt::format("the weights take {:.2f} GB, but only {:.2f} "
                                  "GB of memory are available",
                                  static_cast<double>(memory.bytes) / 1e9, static_cast<double>(available) / 1e9));
  }
  Status filled = memory.range->grow(memory.bytes);
  if (filled.ok()) filled = fill_plan(plan, source, options, device);
  if (!filled.ok()) (void)memory.give_back();
  return filled;
}

}  // namespace tern::model
