// Folders of weights made for tests, and a model's logits.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "json/json.h"
#include "model/decoder_spec.h"
#include "model/loader.h"

namespace tern::model::testing {

// A folder below the system's temporary one, removed at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string golden(const std::string& name);  // a folder of tests/data/golden
void write_file(const std::string& path, std::string_view text);
std::string read_file(const std::string& path);

struct TestTensor {
  std::string dtype = "BF16";
  std::vector<int64_t> shape;
  std::string bytes;
};
using TestTensors = std::map<std::string, TestTensor>;

TestTensors read_tensors(const std::string& path);
void write_tensors(const std::string& path, const TestTensors& tensors);
// A safetensors file with any header at all.
std::string raw_safetensors(const std::string& header, size_t data_bytes);

TestTensor transposed(const TestTensor& t);                     // [a, b] to [b, a]
TestTensor stacked_rows(const std::vector<TestTensor>& parts);  // matrices or vectors below each other
TestTensor stack(const std::vector<TestTensor>& parts);         // [n, ...]

// Copies the small files of a model folder.
void copy_config(const std::string& from, const std::string& to);

// Writes config.json and one safetensors file with Hugging Face names and random bfloat16 values.
void write_random_model(const std::string& folder, const json::Object& config, uint64_t seed = 1);
// A small config of each architecture, with `heads` heads and `kv_heads` KV heads and widths that four ranks can share.
std::vector<std::pair<std::string, json::Object>> small_configs(int heads, int kv_heads);

device::Device& cpu();  // two threads
// Logits of every position, in the activation type given.
std::vector<float> logits_of(const LoadOptions& options, const std::vector<int32_t>& ids);
std::vector<float> logits_of(const Model& model, const std::vector<int32_t>& ids);
std::vector<int32_t> some_ids(int n, int vocab);

}  // namespace tern::model::testing
