// What architecture files share.
#pragma once

#include "model/config/config_reader.h"
#include "model/decoder_spec.h"

namespace tern::model {

// Limits of single config values: far above any model there is, low enough that no product overflows.
inline constexpr int64_t kMaxWidth = 1 << 20, kMaxVocab = 1 << 24, kMaxLayers = 1000, kMaxHeads = 4096,
                         kMaxHeadDim = 1024, kMaxExperts = 4096;

// hidden_size, layers, vocabulary, epsilon, tie, ids, activation: the keys every decoder has (models-other.md 0).
void read_base(ConfigReader& config, DecoderSpec& spec, double default_eps, bool tied_by_default);

// Heads of grouped-query attention with their rotation; scale head_dim^-0.5.
void read_gqa(ConfigReader& config, DecoderSpec& spec, ops::RopeStyle style, double default_theta = 10000.0,
              double default_partial = 1.0);

// attention_bias as Llama reads it: on q, k, v and o.
void read_attention_bias(ConfigReader& config, DecoderSpec& spec);

void read_dense_width(ConfigReader& config, DecoderSpec& spec);

// A window that could cut off context is refused: layers here see everything.
void refuse_sliding_window(ConfigReader& config, const DecoderSpec& spec, bool in_use);

// Which layers hold experts: Qwen's mlp_only_layers and decoder_sparse_step.
void read_sparse_step(ConfigReader& config, DecoderSpec& spec);
// DeepSeek's and GLM's first_k_dense_replace and moe_layer_freq.
void read_first_dense(ConfigReader& config, DecoderSpec& spec);

// Scoring by sigmoid with a correction bias and groups (models-other.md 7.4).
void read_noaux_routing(ConfigReader& config, DecoderSpec& spec);

}  // namespace tern::model
