#include "model/arch/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace tern::model {

// Every architecture: one file, one line here.
#define TERN_ARCHITECTURES(ARCHITECTURE)                                       \
  ARCHITECTURE("DeepseekV2ForCausalLM", read_deepseek_v2)                      \
  ARCHITECTURE("DeepseekV3ForCausalLM", read_deepseek_v3)                      \
  ARCHITECTURE("Ernie4_5ForCausalLM", read_ernie4_5)                           \
  ARCHITECTURE("Ernie4_5_ForCausalLM", read_ernie4_5)                          \
  ARCHITECTURE("Ernie4_5_MoeForCausalLM", read_ernie4_5_moe)                   \
  ARCHITECTURE("Ernie4_5_VLMoeForConditionalGeneration", read_ernie4_5_vl_moe) \
  ARCHITECTURE("Ernie4_5_VLMoeForProcessRewardModel", read_ernie4_5_vl_reward) \
  ARCHITECTURE("Glm4MoeForCausalLM", read_glm4_moe)                            \
  ARCHITECTURE("LlamaForCausalLM", read_llama)                                 \
  ARCHITECTURE("MixtralForCausalLM", read_mixtral)                             \
  ARCHITECTURE("PaddleOCRVLForConditionalGeneration", read_paddleocr_vl)       \
  ARCHITECTURE("Qwen2ForCausalLM", read_qwen2)                                 \
  ARCHITECTURE("Qwen2ForProcessRewardModel", read_qwen2_reward)                \
  ARCHITECTURE("Qwen2ForRewardModel", read_qwen2_reward)                       \
  ARCHITECTURE("Qwen2MoeForCausalLM", read_qwen2_moe)                          \
  ARCHITECTURE("Qwen2_5_VLForConditionalGeneration", read_qwen2_5_vl)          \
  ARCHITECTURE("Qwen3ForCausalLM", read_qwen3)                                 \
  ARCHITECTURE("Qwen3MoeForCausalLM", read_qwen3_moe)

#define TERN_DECLARE(name, read) void read(ConfigReader& config, DecoderSpec& spec);
TERN_ARCHITECTURES(TERN_DECLARE)
#undef TERN_DECLARE

namespace {

#define TERN_ENTRY(name, read) Architecture{name, read},
constexpr std::array kArchitectures = {TERN_ARCHITECTURES(TERN_ENTRY)};
#undef TERN_ENTRY

// What no architecture file may get wrong, whatever the config said.
void check(const DecoderSpec& s, ConfigReader& config) {
  const AttentionSpec& a = s.attention;
  if (a.kind == AttentionKind::kGqa && a.kv_heads > 0 && a.heads % a.kv_heads != 0)
    config.complain(fmt::format("{} attention heads cannot share {} KV heads", a.heads, a.kv_heads));
  if (s.rope.dim > (a.kind == AttentionKind::kGqa ? a.head_dim : a.rope_dim))
    config.complain(fmt::format("the rotary width {} exceeds the head", s.rope.dim));
  const bool has_moe =
      std::any_of(s.moe_layer.begin(), s.moe_layer.end(), [](uint8_t banks) { return banks != kDenseLayer; });
  if (!has_moe) return;
  const MoeSpec& m = s.moe;
  if (m.top_k > m.experts)
    config.complain(fmt::format("{} experts per token exceed the {} there are", m.top_k, m.experts));
  if (m.second_experts > 0 && m.top_k > m.second_experts)
    config.complain(fmt::format("{} experts per token exceed the {} of the second bank", m.top_k, m.second_experts));
  if (m.experts % m.n_group != 0 || m.topk_group > m.n_group)
    config.complain(
        fmt::format("{} experts do not form {} groups of which {} are kept", m.experts, m.n_group, m.topk_group));
  else if (m.top_k > m.experts / m.n_group * m.topk_group)
    config.complain(fmt::format("{} experts per token exceed those of {} groups", m.top_k, m.topk_group));
}

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

Expected<DecoderSpec> read_spec(const json::Object& object) {
  TERN_ASSIGN_OR_RETURN(const std::string name, architecture_of(object));
  const auto* found =
      std::find_if(kArchitectures.begin(), kArchitectures.end(), [&](const Architecture& a) { return a.name == name; });
  if (found == kArchitectures.end()) {
    std::vector<std::string_view> known;
    for (const Architecture& a : kArchitectures) known.push_back(a.name);
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("architecture {} is not known; known are {}", name, fmt::join(known, ", ")));
  }
  ConfigReader config{flatten_text_config(object)};
  DecoderSpec spec;
  spec.architecture = name;
  found->read(config, spec);
  if (config.status().ok()) check(spec, config);
  TERN_RETURN_IF_ERROR(config.status());
  return spec;
}

Expected<std::string> read_architecture(const std::string& folder, const std::string& config_name,
                                        const json::Object& overrides) {
  TERN_ASSIGN_OR_RETURN(const json::Object config, read_config(folder, config_name, overrides));
  return architecture_of(config);
}

}  // namespace tern::model
