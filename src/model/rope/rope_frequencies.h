// Rotary frequencies as data: every scaling rule of models-other.md 1.2 ends in one table and one factor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/config/config_reader.h"
#include "ops/rope.h"

namespace tern::model {

enum class RopeScaling : uint8_t { kDefault, kLinear, kDynamic, kLlama3, kYarn };

struct RopeSpec {
  ops::RopeStyle style = ops::RopeStyle::kHalfSplit;
  int dim = 0;  // rotated values of a head
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kDefault;
  double factor = 1.0;
  double original_max_position = 0.0;                    // llama3, yarn
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  std::optional<double> attention_factor;
  double mscale = 0.0, mscale_all_dim = 0.0;  // 0: not given
  bool truncate = true;
  double position_divisor = 1.0;  // ERNIE's compression_ratio
  int max_position = 0;           // max_position_embeddings
  std::vector<int> sections;      // M-RoPE: pairs that read the t, h and w positions; empty: all read t
  bool interleaved_sections = false;
  std::vector<uint8_t> pair_axis;  // [dim / 2], in place of sections: the position row of each pair; empty: not given
};

struct RopeTable {
  std::vector<float> inv_freq;  // [dim / 2]
  std::vector<uint8_t> axis;    // [dim / 2]: 0 t, 1 h, 2 w
  float factor = 1.0f;          // multiplies cos and sin
};

// Reads rope_theta with rope_scaling, or rope_parameters, in every spelling; rotated width is
// int(head_dim * partial_rotary_factor). Complaints go to `config`.
RopeSpec read_rope(ConfigReader& config, ops::RopeStyle style, int head_dim, double default_theta = 10000.0,
                   double default_partial = 1.0);

// `length` is the longest context that will be run (0: max_position). Only the dynamic rule depends on it: the
// reference recomputes frequencies as a text grows, which would invalidate the cached keys, so Tern fixes them at load
// for the largest length, when it exceeds max_position.
RopeTable make_rope_table(const RopeSpec& spec, int length);

// YaRN's magnitude rule: 1 for s <= 1, else 0.1 m ln(s) + 1.
double yarn_mscale(double s, double m);

}  // namespace tern::model
