// Scales of a quantized cache that a model folder brings (fastdeploy.md 7.6): tensors among its weights, or
// kv_cache_scale.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/decoder_spec.h"
#include "model/files/checkpoint.h"
#include "model/weights/parameter.h"

namespace tern::model {

// Parts of the names of such tensors.
inline constexpr const char* kKeyScaleName = ".cachek_matmul.";
inline constexpr const char* kValueScaleName = ".cachev_matmul.";

struct CacheScales {
  bool channels = false;    // one per value of a head, else per head
  std::vector<float> k, v;  // [layers][KV heads, or KV heads * head size]: what a code is to be multiplied with
  std::string source;       // where they are from; empty: there are none
};

// What they must fit. `bound`: the largest code.
struct CacheScaleShape {
  int layers = 0, spare_layers = 0;  // spare: layers behind them whose scales nobody needs
  int64_t kv_heads = 0, head_dim = 0;
  float bound = 127.0f;
};

// The text of kv_cache_scale.json: an object of lists by name, each the largest magnitude over 448, whatever the type
// of the cache. Errors name what is missing, doubled, misshapen, not a positive number, or unknown.
Expected<CacheScales> parse_cache_scales(std::string_view text, const CacheScaleShape& shape);

// Those of the folder: its tensors (largest magnitudes), or the file beside them; none where it has neither.
Expected<CacheScales> find_cache_scales(const std::string& folder, const Checkpoint& checkpoint,
                                        const CacheScaleShape& shape);

// The heads of one rank.
Expected<CacheScales> slice_cache_scales(const CacheScales& all, const CacheScaleShape& shape, const Shard& shard);

}  // namespace tern::model
