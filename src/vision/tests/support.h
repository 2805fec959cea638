// Towers for tests: folders of weights, and a tower's rows for given patches.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "json/json.h"
#include "model/tests/weight_files.h"
#include "vision/tower.h"

namespace tern::vision::testing {

using model::testing::cpu;
using model::testing::read_file;
using model::testing::read_tensors;
using model::testing::TempFolder;
using model::testing::TestTensor;
using model::testing::TestTensors;
using model::testing::transposed;
using model::testing::write_file;
using model::testing::write_tensors;

// Seeded bfloat16 values of this standard deviation around `mean`.
TestTensor random_tensor(const std::vector<int64_t>& shape, uint64_t seed, float deviation, float mean = 0.0f);
std::vector<float> floats(const TestTensor& t);  // of F32 or BF16

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
