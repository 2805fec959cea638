#include "model/static/static_quantization.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tern::model {
namespace {

bool has_type(const StaticFolder& folder, FileType type) {
  return std::ranges::any_of(folder.parameters, [&](const auto& p) { return p.second.type() == type; });
}

// Scales are float32 here, and nothing of theirs is lost.
bool is_scale(std::string_view name) { return name.ends_with("_weight_scale"); }

}  // namespace

FileQuantization static_quantization(const StaticFolder& folder, const json::Object& config) {
  FileQuantization files;
  const bool floats = has_type(folder, FileType::kF8E4M3), whole = has_type(folder, FileType::kI8);
  if (!floats && !whole) return files;
  const auto said = json::get_string(config, "quant_type");
  const std::string method = said.ok() && *said && !(*said)->empty() ? **said : floats ? "a8w8_fp8" : "weight_only";
  StoredCodes& codes = files.codes.emplace();
  codes.method = fmt::format("a static export of type {}", method);
  CodeScheme scheme{.layout = CodeLayout::kPacked, .bits = method.find("int4") == method.npos ? 8 : 4};
  if (floats) scheme = {.layout = CodeLayout::kFloat8, .rows = 128, .group = 128};
  (void)codes.groups.emplace_back(StoredCodes::Group{{}, scheme}).targets.add("Linear");
  if (floats)
    files.notes.push_back(
        fmt::format("the export ({}) wants activations in 8 bits; they stay in bfloat16 here", method));
  return files;
}

std::vector<std::string> static_notes(const StaticFolder& folder, DType activation) {
  std::vector<std::string> notes;
  size_t halves = 0;
  for (const auto& [name, p] : folder.parameters) halves += p.type() == FileType::kF16 && !is_scale(name);
  if (halves > 0 && activation == DType::kBF16)
    notes.push_back(
        fmt::format("{} tensors of the export are float16 and are rounded to bfloat16; --dtype float32 keeps "
                    "them as they are",
                    halves));
  if (folder.names.cache_scales)
    notes.push_back("the export wants a quantized cache (cache_k_scale); it stays in bfloat16 here");
  return notes;
}

}  // namespace tern::model
