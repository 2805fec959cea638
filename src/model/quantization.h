// Which weight format each part of a decoder gets when weights are quantized while they are loaded: --quantization, by
// the rules of fastdeploy.md 7.2 and 7.3.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "json/json.h"

namespace tern::model {

// Names of formats (ops::find_weight_format); an empty one stays in the activation type.
struct Quantization {
  std::string method;  // as asked; empty: nothing is quantized
  std::string dense;   // attention, dense MLPs, shared experts
  std::string experts, picture_experts;
  std::string head;                 // the output layer
  std::string cache;                // kv_cache_quant_type; empty: keys and values stay in the activation type
  std::vector<std::string> ignore;  // modules left alone: names, or "re:" before a pattern that a name begins with
  bool pow2_scales = false;         // of block_wise_fp8: rounded up to powers of two

  // Whether weights are.
  bool any() const { return !dense.empty() || !experts.empty() || !picture_experts.empty() || !head.empty(); }
};

// `asked`: null, a method's name or an object of keys. Errors are one line, without the flag's name.
Expected<Quantization> read_quantization(const json::Value& asked, const std::string& architecture);

}  // namespace tern::model
