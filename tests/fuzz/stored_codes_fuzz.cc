// A quantization_config with "n" and "k" of a matrix "m", a line break, and a safetensors file: what is found of the
// matrix fills its shape, and any block of it can be read.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.h"
#include "model/files/checkpoint.h"
#include "model/quantized/coded_tensor.h"
#include "model/quantized/scheme.h"

namespace {

using namespace tern;

// One folder for the whole run, removed at its end.
const std::string& folder() {
  static const std::string* const path = [] {
    auto* name = new std::string("/tmp/stored_codes_fuzz_XXXXXX");  // lives as long as what removes it
    if (mkdtemp(name->data()) == nullptr) std::abort();
    std::atexit([] { std::filesystem::remove_all(folder()); });
    return name;
  }();
  return *path;
}

int64_t size_of(const json::Object& o, std::string_view key) {
  const auto v = json::get_int(o, key);
  return v.ok() && *v && **v > 0 && **v <= 1024 ? **v : 64;
}

void read_blocks(const model::CodedTensor& t) {
  for (const auto& [row, col] : {std::pair<int64_t, int64_t>{0, 0}, {t.n / 2, t.k / 3}, {t.n - 1, t.k - 1}}) {
    const int64_t rows = std::min<int64_t>(t.n - row, 9), cols = t.k - col;
    std::vector<uint8_t> codes(static_cast<size_t>(rows * cols));
    std::vector<float> values(codes.size());
    (void)t.read_codes(row, col, tensor2(codes.data(), t.code_type(), rows, cols)).ok();
    const bool good = t.read_values(row, col, tensor2(values.data(), DType::kF32, rows, cols)).ok();
    for (const float v : values)
      if (good && v != v) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t line = all.find('\n');
  if (line == std::string_view::npos) return 0;
  const auto config = json::parse(all.substr(0, line), {.max_bytes = 1 << 14, .max_depth = 16});
  if (!config.ok() || !config->is_object()) return 0;
  const auto read = model::read_quantization_config(*config, "LlamaForCausalLM");
  if (!read.ok() || !read->codes) return 0;
  (void)model::made_instead(*read->codes);
  {
    std::ofstream file(folder() + "/model.safetensors", std::ios::binary | std::ios::trunc);
    file << all.substr(line + 1);
  }
  const auto checkpoint = model::Checkpoint::open(folder());
  if (!checkpoint.ok()) return 0;
  std::set<std::string> used;
  std::vector<std::string> wrong;
  const auto found = model::CodedFinder(*read->codes, *checkpoint)
                         .find({"m", size_of(config->get_object(), "n"), size_of(config->get_object(), "k"), 1,
                                json::find(config->get_object(), "stack") != nullptr ? 3 : 0},
                               used, wrong);
  if (found != nullptr) {
    if (!wrong.empty()) std::abort();
    read_blocks(*found);
  }
  return 0;
}
