#include "model/static/static_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace tern::model {
namespace {

constexpr std::array<std::string_view, 5> kFamilies = {"llama", "qwen2", "mixtral", "deepseek_v2", "deepseek_v3"};
constexpr std::array<std::string_view, 6> kVectors = {
    "ln_scale", "ffn_ln_scale", "qkv_bias", "e_score_correction_bias", "q_a_layernorm_weight", "kv_a_layernorm_weight"};
// Each may have a "_scale" beside it. The last three are products of others, for a short cut of MLA.
constexpr std::array<std::string_view, 15> kMatrices = {"qkv_weight",
                                                        "out_proj_weight",
                                                        "ffn1_weight",
                                                        "ffn2_weight",
                                                        "gate_weight",
                                                        "shared_expert_ffn1_weight",
                                                        "q_proj_weight",
                                                        "q_a_proj_weight",
                                                        "q_b_proj_weight",
                                                        "kv_b_proj_weight",
                                                        "kv_a_proj_with_mqa_weight",
                                                        "shared_expert_ffn2_weight",
                                                        "q_nope_k_b_proj_weight",
                                                        "q_rope_proj_weight",
                                                        "v_b_o_proj_weight"};

template <class List>
bool is_in(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != list.end();
}

bool is_known(std::string_view leaf) {
  if (is_in(kVectors, leaf) || is_in(kMatrices, leaf)) return true;
  return leaf.ends_with("_scale") && is_in(kMatrices, leaf.substr(0, leaf.size() - 6));
}

bool is_cache_scale(std::string_view leaf) {
  return leaf == "cache_k_scale" || leaf == "cache_v_scale" || leaf == "cache_k_out_scale" ||
         leaf == "cache_v_out_scale";
}

// What an export needs that is not there; empty: the leaf is of no export that is known.
std::string missing_for(std::string_view leaf) {
  for (const char* tail : {"_shift", "_smooth"})
    if (leaf.ends_with(tail)) return "shifted and smoothed activations";
  for (const char* bias : {"ln_bias", "ffn_ln_bias", "ffn1_bias", "ffn2_bias", "out_proj_bias"})
    if (leaf == bias) return "shifted activations";
  if (leaf.ends_with("_out_scale")) return "products of int8 activations with calibrated scales (a8w8)";
  if (leaf.starts_with("ffn1_0_") || leaf.starts_with("ffn1_1_"))
    return "products of FP8 activations with calibrated scales (a8w8_fp8 with one scale per tensor)";
  return "";
}

}  // namespace

std::optional<FusedName> split_fused_name(std::string_view name) {
  if (!name.starts_with("fuse")) return std::nullopt;
  const size_t first = name.find('.'), second = first == name.npos ? first : name.find('.', first + 1);
  if (second == name.npos || first == 4) return std::nullopt;
  FusedName out{name.substr(4, first - 4), name.substr(second + 1), 0};
  const std::string_view number = name.substr(first + 1, second - first - 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out.layer);
  if (error != std::errc() || end != number.data() + number.size() || out.layer < 0) return std::nullopt;
  return out;
}

Expected<StaticNames> check_static_names(const std::vector<std::string_view>& names, const std::string& original) {
  const auto refused = [&](std::string what) {
    return make_error(ErrorCode::kUnsupported, fmt::format("{}; take {}", what, original));
  };
  StaticNames out;
  for (const std::string_view name : names) {
    const auto fused = split_fused_name(name);
    if (!fused) continue;
    if (!is_in(kFamilies, fused->family))
      return refused(fmt::format("static exports of the family {} are not read; those of {} are", fused->family,
                                 fmt::join(kFamilies, ", ")));
    if (out.family.empty()) out.family = fused->family;
    if (out.family != fused->family)
      return make_error(ErrorCode::kCorrupt,
                        fmt::format("the export has parameters of two families, {} and {}", out.family, fused->family));
    out.cache_scales = out.cache_scales || is_cache_scale(fused->leaf);
    if (is_known(fused->leaf) || is_cache_scale(fused->leaf)) continue;
    const std::string missing = missing_for(fused->leaf);
    if (missing.empty()) return refused(fmt::format("the export has a parameter {}, which is not known", name));
    return refused(fmt::format("the export needs {}, which are not built (it has a parameter {})", missing, name));
  }
  if (out.family.empty())
    return refused("the export has no parameters named fuse<family>.<layer>.<name>, as PaddleNLP's have");
  return out;
}

}  // namespace tern::model
