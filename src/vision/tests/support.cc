#include "vision/tests/support.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/bf16.h"

namespace tern::vision::testing {
TestTensor random_tensor(const std::vector<int64_t>& shape, uint64_t seed, float deviation, float mean) {
  TestTensor t{"BF16", shape, ""};
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(mean, deviation);
  for (int64_t i = 0; i < n; ++i) {
    const bf16 v = to_bf16(normal(random));
    t.bytes.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  return t;
}

std::vector<float> floats(const TestTensor& t) {
  const size_t size = t.dtype == "F32" ? 4 : 2;
  std::vector<float> out(t.bytes.size() / size);
  for (size_t i = 0; i < out.size(); ++i) {
    if (size == 4) {
      std::memcpy(&out[i], &t.bytes[i * size], size);
    } else {
      bf16 v;
      std::memcpy(&v, &t.bytes[i * size], size);
      out[i] = to_float(v);
    }
  }
  return out;
}

namespace {

std::vector<float> copy_of(TensorView v) {
  std::vector<float> out;
  for (int64_t i = 0; i < v.dim[0]; ++i)
    for (int64_t j = 0; j < v.dim[1]; ++j)
      out.push_back(v.dtype == DType::kF32 ? reinterpret_cast<const float*>(v.row_bytes(i))[j]
                                           : to_float(reinterpret_cast<const bf16*>(v.row_bytes(i))[j]));
  return out;
}

class Watcher final : public model::Probe {
 public:
  explicit Watcher(Encoded& out) : out_(out) {}
  void tensor(std::string_view name, TensorView value) override { out_.seen[std::string(name)] = copy_of(value); }
  bool routing(int, TensorView) override { return false; }

 private:
  Encoded& out_;
};

}  // namespace

Expected<Encoded> encode(const Tower& tower, std::span<const Grid> grids, std::span<const float> patches) {
  const TowerInfo& info = tower.info();
  int64_t rows = 0, tokens = 0;
  for (const Grid& g : grids) rows += g.rows(), tokens += tower.tokens(g);
  TowerIndex index;
  tower.index(grids, index);
  const auto items = static_cast<int>(grids.size());
  EXPECT_LE(index.ints.size(), tower.max_ints(rows, items));
  EXPECT_LE(index.floats.size(), tower.max_floats(rows, items));
  const auto row_bytes = [&](DType t, int n) { return static_cast<size_t>(n) * dtype_bytes(t); };
  std::vector<char> input(static_cast<size_t>(rows) * row_bytes(info.patch_type, info.patch_values));
  std::vector<char> output(static_cast<size_t>(tokens) * row_bytes(info.out_type, info.hidden));
  for (size_t i = 0; i < patches.size(); ++i) {
    const bf16 rounded = to_bf16(patches[i]);
    if (info.patch_type == DType::kF32) std::memcpy(&input[4 * i], &patches[i], 4);
    if (info.patch_type == DType::kBF16) std::memcpy(&input[2 * i], &rounded, 2);
  }
  const device::Stream stream = cpu().stream();
  const size_t bytes = tower.workspace_bytes(rows, items, stream);
  TERN_ASSIGN_OR_RETURN(const device::Buffer memory, cpu().allocate(bytes));
  device::Arena workspace(memory.data(), bytes);
  Encoded result;
  Watcher watcher(result);
  TERN_RETURN_IF_ERROR(tower.encode({.grids = grids,
                                     .patches = tensor2(input.data(), info.patch_type, rows, info.patch_values),
                                     .ints = tensor1(index.ints.data(), DType::kI32, std::ssize(index.ints)),
                                     .floats = tensor1(index.floats.data(), DType::kF32, std::ssize(index.floats)),
                                     .out = tensor2(output.data(), info.out_type, tokens, info.hidden),
                                     .stream = stream,
                                     .workspace = workspace,
                                     .probe = &watcher}));
  EXPECT_EQ(workspace.mark(), 0u);
  result.rows = copy_of(tensor2(output.data(), info.out_type, tokens, info.hidden));
  return result;
}

Expected<Encoded> encode(const model::LoadOptions& options, std::span<const Grid> grids,
                         std::span<const float> patches) {
  TERN_ASSIGN_OR_RETURN(const std::unique_ptr<Tower> tower, load_tower(options, cpu()));
  return encode(*tower, grids, patches);
}

std::vector<float> random_patches(int64_t rows, int values, uint64_t seed) {
  return floats(random_tensor({rows, values}, seed, 1.0f));
}

}  // namespace tern::vision::testing
