// Towers for tests: folders of weights, and a tower's rows for given patches.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "json/json.h"
#include "vision/tower.h"

namespace tern::vision::testing {

// A folder below the system's temporary one, removed at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct TestTensor {
  std::string dtype = "BF16";
  std::vector<int64_t> shape;
  std::string bytes;
};
using TestTensors = std::map<std::string, TestTensor>;

std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view text);
TestTensors read_tensors(const std::string& path);
void write_tensors(const std::string& path, const TestTensors& tensors);
TestTensor transposed(const TestTensor& t);  // [a, b] to [b, a]
// Seeded bfloat16 values of this standard deviation around `mean`.
TestTensor random_tensor(const std::vector<int64_t>& shape, uint64_t seed, float deviation, float mean = 0.0f);
std::vector<float> floats(const TestTensor& t);  // of F32 or BF16

device::Device& cpu();  // two threads

// What a call leaves: output rows and what the probe saw, in float32. `items` gives each item's patches in order, in
// float32. Workspace and index have exactly the sizes that the tower promises.
struct Encoded {
  std::vector<float> rows;
  std::map<std::string, std::vector<float>, std::less<>> seen;
};
Expected<Encoded> encode(const Tower& tower, std::span<const Grid> grids, std::span<const float> patches);
Expected<Encoded> encode(const model::LoadOptions& options, std::span<const Grid> grids,
                         std::span<const float> patches);
std::vector<float> random_patches(int64_t rows, int values, uint64_t seed);

}  // namespace tern::vision::testing
