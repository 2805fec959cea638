// Folders of weights made for tests, and a model's logits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "json/json.h"
#include "model/decoder_spec.h"
#include "model/loader.h"
#include "model/tests/weight_files.h"

namespace tern::model::testing {

std::string golden(const std::string& name);                    // a folder of tests/data/golden
TestTensor stacked_rows(const std::vector<TestTensor>& parts);  // matrices or vectors below each other
TestTensor stack(const std::vector<TestTensor>& parts);         // [n, ...]

// Copies the small files of a model folder.
void copy_config(const std::string& from, const std::string& to);

// Writes config.json and one safetensors file with Hugging Face names and random bfloat16 values.
void write_random_model(const std::string& folder, const json::Object& config, uint64_t seed = 1);
// A small config of each architecture, with `heads` heads and `kv_heads` KV heads and widths that four ranks can share.
std::vector<std::pair<std::string, json::Object>> small_configs(int heads, int kv_heads);
json::Object small_config(const std::string& architecture, int heads, int kv_heads);

// Logits of every position, in the activation type given.
std::vector<float> logits_of(const LoadOptions& options, const std::vector<int32_t>& ids);
std::vector<float> logits_of(const Model& model, const std::vector<int32_t>& ids);
std::vector<int32_t> some_ids(int n, int vocab);

}  // namespace tern::model::testing
