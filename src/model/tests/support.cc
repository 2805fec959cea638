#include "model/tests/support.h"

#include <gtest/gtest.h>

#include "model/arch/registry.h"
#include "model/run/sequence_runner.h"
#include "model/weights/weight_source.h"

namespace tern::model::testing {

std::string golden(const std::string& name) { return std::string(TERN_SOURCE_DIR) + "/tests/data/golden/" + name; }

TestTensor stacked_rows(const std::vector<TestTensor>& parts) {
  TestTensor out = parts.front();
  for (size_t i = 1; i < parts.size(); ++i) out.shape[0] += parts[i].shape[0], out.bytes += parts[i].bytes;
  return out;
}

TestTensor stack(const std::vector<TestTensor>& parts) {
  TestTensor out = parts.front();
  out.shape.insert(out.shape.begin(), static_cast<int64_t>(parts.size()));
  for (size_t i = 1; i < parts.size(); ++i) out.bytes += parts[i].bytes;
  return out;
}

void copy_config(const std::string& from, const std::string& to) {
  write_file(to + "/config.json", read_file(from + "/config.json"));
}

void write_random_model(const std::string& folder, const json::Object& config, uint64_t seed) {
  write_file(folder + "/config.json", json::dump(config));
  auto spec = read_spec(config);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  DecoderWeights places;
  Presences presences = default_presences(*spec);
  presences.correction_bias = spec->moe.experts > 0 && spec->moe.correction_bias != Presence::kAbsent;
  const auto plan = plan_weights(*spec, presences, {}, places);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const DummySource source(plan->parameters, seed);
  TestTensors tensors;
  for (size_t i = 0; i < plan->parameters.size(); ++i) {
    const Parameter& p = plan->parameters[i];
    TestTensor t{"BF16", p.is_vector() ? std::vector<int64_t>{p.rows} : std::vector<int64_t>{p.rows, p.cols},
                 std::string(static_cast<size_t>(p.elements()) * 2, '\0')};
    source.read({static_cast<int>(i), 0, p.rows, 0, p.cols}, tensor2(t.bytes.data(), DType::kBF16, p.rows, p.cols));
    tensors[p.name] = std::move(t);
  }
  write_tensors(folder + "/model.safetensors", tensors);
}

std::vector<std::pair<std::string, json::Object>> small_configs(int heads, int kv_heads) {
  const json::Object base{{"vocab_size", 96},
                          {"hidden_size", 64},
                          {"intermediate_size", 96},
                          {"num_hidden_layers", 2},
                          {"num_attention_heads", heads},
                          {"num_key_value_heads", kv_heads},
                          {"head_dim", 16},
                          {"max_position_embeddings", 512},
                          {"rms_norm_eps", 1e-5}};
  const auto with = [&](const char* architecture, const char* more) {
    json::Object o = base;
    o["architectures"] = json::Array{architecture};
    merge_json(o, json::parse(more).value().get_object());
    return std::pair<std::string, json::Object>(architecture, o);
  };
  return {
      with("Ernie4_5ForCausalLM", R"({"tie_word_embeddings":true,"use_bias":true})"),
      with(
          "Ernie4_5_MoeForCausalLM",
          R"({"tie_word_embeddings":true,"moe_num_experts":4,"moe_k":2,"moe_intermediate_size":32,"moe_num_shared_experts":2,"moe_layer_start_index":1})"),
      with("LlamaForCausalLM", R"({"attention_bias":true,"mlp_bias":true})"),
      with("Qwen2ForCausalLM", "{}"),
      with("Qwen2ForProcessRewardModel", "{}"),
      with("Qwen2ForRewardModel", "{}"),
      with(
          "Qwen2MoeForCausalLM",
          R"({"num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":32,"shared_expert_intermediate_size":64})"),
      with("Qwen3ForCausalLM", "{}"),
      with("Qwen3MoeForCausalLM", R"({"num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":32})"),
      with("MixtralForCausalLM", R"({"num_local_experts":4,"num_experts_per_tok":2})"),
      with(
          "DeepseekV2ForCausalLM",
          R"({"kv_lora_rank":32,"qk_nope_head_dim":16,"qk_rope_head_dim":8,"v_head_dim":16,"n_routed_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":32,"n_shared_experts":2,"first_k_dense_replace":1})"),
      with(
          "DeepseekV3ForCausalLM",
          R"({"q_lora_rank":24,"kv_lora_rank":32,"qk_nope_head_dim":16,"qk_rope_head_dim":8,"v_head_dim":16,"n_routed_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":32,"n_shared_experts":1,"first_k_dense_replace":1,"n_group":2,"topk_group":1})"),
      with(
          "Glm4MoeForCausalLM",
          R"({"attention_bias":true,"use_qk_norm":true,"n_routed_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":32,"n_shared_experts":1,"first_k_dense_replace":1})"),
      with("PaddleOCRVLForConditionalGeneration", R"({"rope_scaling":{"mrope_section":[2,3,3],"type":"default"}})"),
      with("Qwen2_5_VLForConditionalGeneration", R"({"rope_scaling":{"mrope_section":[2,3,3],"type":"mrope"}})"),
      // Layer 0 has no experts for pictures; both banks have them in layer 1.
      with(
          "Ernie4_5_VLMoeForConditionalGeneration",
          R"({"tie_word_embeddings":true,"moe_num_experts":[4,4],"moe_k":2,"moe_intermediate_size":[32,16],"moe_num_shared_experts":2,"moe_layer_start_index":[0,1],"moe_layer_end_index":[1,-1],"im_patch_id":60,"freq_allocation":2})"),
      with(
          "Ernie4_5_VLMoeForProcessRewardModel",
          R"({"moe_num_experts":[4,4],"moe_k":2,"moe_intermediate_size":[32,16],"moe_num_shared_experts":2,"moe_layer_start_index":[0,0],"im_patch_id":60,"freq_allocation":2})"),
  };
}

json::Object small_config(const std::string& architecture, int heads, int kv_heads) {
  for (auto& [name, config] : small_configs(heads, kv_heads)) {
    if (name == architecture) return config;
  }
  return ADD_FAILURE() << architecture << " has no small config", json::Object();
}

std::vector<float> logits_of(const Model& model, const std::vector<int32_t>& ids) {
  auto runner = SequenceRunner::make(model, cpu(), {.max_tokens = 256, .max_rows = 2, .max_length = 256});
  if (!runner.ok()) return ADD_FAILURE() << runner.error().message, std::vector<float>{};
  const SequenceRunner::Row row{0, ids, true};
  const auto logits = (*runner)->step({&row, 1});
  if (!logits.ok()) return ADD_FAILURE() << logits.error().message, std::vector<float>{};
  return {logits->begin(), logits->end()};
}

std::vector<float> logits_of(const LoadOptions& options, const std::vector<int32_t>& ids) {
  const auto model = load_model(options, cpu());
  if (!model.ok()) return ADD_FAILURE() << model.error().message, std::vector<float>{};
  return logits_of(**model, ids);
}

std::vector<int32_t> some_ids(int n, int vocab) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back((i * 37 + 11) % vocab);
  return ids;
}

}  // namespace tern::model::testing
