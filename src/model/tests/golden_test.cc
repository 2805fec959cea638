// Reference cases through the model code, in both types: tests/data/golden (every architecture), tests/data/golden_s
// (every rope scaling and structural option) and tests/data/golden_quantized (checkpoints that other libraries
// quantized).
#include <gtest/gtest.h>

#include <filesystem>

#include "model/verify/golden_case.h"
#include "model/verify/verify_case.h"

namespace tern::model {
namespace {

namespace fs = std::filesystem;

// Picture cases need a tower: vision/tests runs them.
bool is_text(const fs::path& folder) {
  const auto golden = read_golden_case(folder.string());
  return !golden.ok() || golden->kind == "text";
}

std::vector<std::string> cases() {
  std::vector<std::string> out;
  for (const char* set : {"golden", "golden_s", "golden_quantized"}) {
    const fs::path base = fs::path(TERN_SOURCE_DIR) / "tests/data" / set;
    if (!fs::exists(base)) continue;
    for (const auto& e : fs::directory_iterator(base))
      if (fs::exists(e.path() / "golden.json") && is_text(e.path()))
        out.push_back(std::string(set) + "/" + e.path().filename().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

device::Device& cpu() {
  static auto device = device::make_cpu_device({.threads = 2, .pin = false});
  return **device;
}

class Golden : public ::testing::TestWithParam<std::tuple<std::string, DType>> {};

TEST_P(Golden, Passes) {
  const auto& [name, type] = GetParam();
  const std::string folder = std::string(TERN_SOURCE_DIR) + "/tests/data/" + name;
  const auto report = verify_case(folder, {.activation = type, .tolerance = VerifyTolerance::of(type)}, cpu());
  ASSERT_TRUE(report.ok()) << report.error().message;
  for (const auto& c : report->tensors)
    EXPECT_TRUE(c.ok) << c.name << ": relative " << c.relative << ", rms " << c.rms << ", tolerance " << c.tolerance;
  for (const auto& c : report->prompts) EXPECT_EQ(c.matched, c.checked) << c.name;
  for (const auto& c : report->statements) EXPECT_TRUE(c.ok) << c.name << ": " << c.detail;
  // Three prompts of one to eight tensors each: nothing was skipped.
  EXPECT_GE(report->tensors.size(), 6u);
  EXPECT_EQ(report->prompts.size(), 3u);
  int drawn = 0, checked = 0;  // nothing is drawn in cases of pooling models
  for (const auto& c : report->prompts) drawn += c.steps, checked += c.checked;
  if (drawn > 0) {
    EXPECT_GT(checked, type == DType::kF32 ? 50 : 10);
  } else {
    EXPECT_TRUE(name.ends_with("reward") || name.ends_with("embedding"));
  }
}

std::string test_name(const ::testing::TestParamInfo<std::tuple<std::string, DType>>& info) {
  std::string name = std::get<0>(info.param) + "_" + dtype_name(std::get<1>(info.param));
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden,
                         ::testing::Combine(::testing::ValuesIn(cases()), ::testing::Values(DType::kF32, DType::kBF16)),
                         test_name);

}  // namespace
}  // namespace tern::model
