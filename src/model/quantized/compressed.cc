#include "model/quantized/compressed.h"

#include <cstring>

#include "base/checked.h"

namespace tern::model {

void pack_words(const uint8_t* codes, int64_t n, int64_t k, int bits, char* out) {
  const int64_t per = 32 / bits, words = ceil_div(k, per);
  const uint32_t middle = 1u << (bits - 1), mask = (1u << bits) - 1;
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t w = 0; w < words; ++w) {
      uint32_t word = 0;
      for (int64_t i = 0; i < per && w * per + i < k; ++i)
        word |= ((codes[r * k + w * per + i] + middle) & mask) << (i * bits);
      std::memcpy(out + (r * words + w) * 4, &word, sizeof word);
    }
  }
}

json::Object compressed_group(int bits, int64_t group, json::Array targets) {
  json::Object weights{{"num_bits", bits},
                       {"type", "int"},
                       {"symmetric", true},
                       {"strategy", group == 0 ? "channel" : "group"},
                       {"group_size", group == 0 ? json::Value() : json::Value(group)},
                       {"actorder", nullptr},
                       {"block_structure", nullptr},
                       {"dynamic", false},
                       {"observer", "minmax"},
                       {"observer_kwargs", json::Object{}}};
  return {{"targets", std::move(targets)},
          {"weights", std::move(weights)},
          {"input_activations", nullptr},
          {"output_activations", nullptr}};
}

json::Object compressed_config(std::string_view format, json::Object groups, json::Array ignore) {
  return {{"quant_method", "compressed-tensors"}, {"format", format},           {"quantization_status", "compressed"},
          {"global_compression_ratio", nullptr},  {"kv_cache_scheme", nullptr}, {"config_groups", std::move(groups)},
          {"ignore", std::move(ignore)}};
}

}  // namespace tern::model
