// What an architecture is, as values: an arch file turns config.json into this, and the one decoder runs it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/rope/rope_frequencies.h"
#include "ops/moe.h"

namespace tern::model {

enum class AttentionKind : uint8_t { kGqa, kMla };

struct AttentionSpec {
  AttentionKind kind = AttentionKind::kGqa;
  int heads = 0, kv_heads = 0, head_dim = 0;
  bool qkv_bias = false, out_bias = false;
  bool qk_norm = false;  // RMS norm of q and k per head, before rotation
  float scale = 1.0f;
  // MLA (models-other.md 7.3); q_lora_rank 0: one q projection.
  int q_lora_rank = 0, kv_lora_rank = 0, nope_dim = 0, rope_dim = 0, v_dim = 0;
  float latent_eps = 1e-6f;
};

enum class Presence : uint8_t { kAbsent, kOptional, kRequired };

struct MoeSpec {
  int experts = 0, top_k = 0, intermediate = 0;
  ops::MoeScoring scoring = ops::MoeScoring::kSoftmax;
  int n_group = 1, topk_group = 1;
  bool renormalize = true;
  float renorm_eps = 0.0f, renorm_min = 0.0f;
  float scale = 1.0f;
  Presence correction_bias = Presence::kAbsent;
  int shared_intermediate = 0;  // 0: no shared expert
  bool shared_gate = false;     // sigmoid gate on the shared expert
  // Names below "model.layers.N.", where architectures differ; what all of them share is in weights/weight_plan.cc.
  std::string block = "mlp", gate = "gate_proj", up = "up_proj", down = "down_proj", shared = "shared_experts";
  std::string bias_name = "gate.e_score_correction_bias";
  // A second bank for the tokens in `second_tokens` (models-ernie-paddleocr.md 5.3), with a router, a bias and experts
  // of its own, numbered on after the first's; scoring, top_k and shared experts are common to both.
  int second_experts = 0, second_intermediate = 0;
  ops::TokenSet second_tokens;
};

// What a layer's MLP is: dense, or the banks that have experts in it. In a layer of experts, a bank without any is a
// dense MLP of width `intermediate`.
inline constexpr uint8_t kDenseLayer = 0, kFirstBank = 1, kSecondBank = 2;

// What reads the last hidden states.
enum class HeadKind : uint8_t {
  kVocabulary,  // logits
  kHidden,      // nothing: they are the result (--convert embed)
  kReluMlp,     // score.0 [h, h], relu, score.2 [labels, h], with biases (models-newer.md 3)
  kGatedMlp,    // rm_head.up_gate_proj [2h, h], gate and up, rm_head.down_proj [labels, h]
};

struct DecoderSpec {
  std::string architecture;
  int vocab_size = 0, hidden_size = 0, layers = 0, max_position = 0;
  float norm_eps = 1e-6f;
  // Nothing: the checkpoint decides (lm_head.weight there or not), `tied_by_default` where there is none to ask.
  std::optional<bool> tied;
  bool tied_by_default = false;
  AttentionSpec attention;
  int intermediate = 0;  // dense MLP
  bool mlp_bias = false;
  MoeSpec moe;
  std::vector<uint8_t> moe_layer;  // [layers]: kDenseLayer, kFirstBank, kSecondBank or both banks
  int mtp_layers = 0;              // extra layers a checkpoint may hold after the decoder's; not loaded
  HeadKind head = HeadKind::kVocabulary;
  int labels = 0;  // of a head that scores
  // Values of a pooled row; 0: the model generates.
  int pooled() const { return head == HeadKind::kHidden ? hidden_size : labels; }
  RopeSpec rope;
  // Parts of names by which tensors of a vision tower are told; they are not this decoder's business.
  std::vector<std::string> tower_names;
  std::vector<int32_t> eos_token_ids;
  int32_t bos_token_id = -1;
};

}  // namespace tern::model
