// What a checkpoint's quantization_config says about weights that its files keep as codes (models-other.md 16,
// fastdeploy.md 7.3).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "json/json.h"
#include "model/quantization.h"
#include "model/quantized/module_names.h"

namespace tern::model {

// How codes, scales and zero points of a matrix [N, K] lie in a file.
enum class CodeLayout : uint8_t {
  kGptq,    // qweight [K / n, N] int32 of n codes, lowest first; qzeros [K / group, N / n]; scales [K / group, N]
  kAwq,     // qweight [K, N / 8] int32, whose eight codes are interleaved; qzeros [K / group, N / 8]; scales
  kPacked,  // weight_packed [N, K / n] int32; weight_scale [N, K / group]; weight_zero_point [N / n, K / group]
  kInt8,    // weight [N, K] int8; weight_scale; weight_zero_point int8
  kFloat8,  // weight [N, K] e4m3; weight_scale or weight_scale_inv
  kPaddle,  // quant_weight [N, K] int8; weight_scale [N]
};

struct CodeScheme {
  CodeLayout layout = CodeLayout::kPacked;
  int bits = 8;
  int64_t rows = 1;      // that a scale serves; 0: all
  int64_t group = 0;     // columns that a scale serves; 0: all
  bool zeros = false;    // there are zero points
  bool neutral = false;  // GPTQ: zero points are stored although all of them are 2^(bits - 1)
  bool pow2 = false;     // all scales are powers of two
  int zero_shift = 0;    // is added to stored zero points: 1 in GPTQ's first version

  // Name of the format that holds such codes (ops::find_weight_format).
  std::string format() const;
};

// Modules with codes, by name.
struct StoredCodes {
  struct Group {
    ModuleNames targets;
    CodeScheme scheme;
  };
  std::string method;         // for people: "gptq, 4 bits, groups of 128"
  std::vector<Group> groups;  // the first that names a module is its own
  ModuleNames ignore;         // modules that are stored as values
  bool complete = false;      // whatever is targeted and not ignored is stored as codes

  // Null: the module is stored as values.
  const CodeScheme* scheme_of(std::string_view module) const;
};

struct FileQuantization {
  std::optional<StoredCodes> codes;
  Quantization made;  // else: what is to be made of values while loading
  std::vector<std::string> notes;
  bool any() const { return codes.has_value() || made.any() || !made.cache.empty(); }
};

// `config`: the value of quantization_config, null: there is none. An error says what works instead.
Expected<FileQuantization> read_quantization_config(const json::Value& config, const std::string& architecture);

// The formats of quantize-while-loading that come nearest to stored codes: for weights that are made from a seed.
Quantization made_instead(const StoredCodes& codes);

}  // namespace tern::model
