// Picture cases of tests/data/golden through tower and decoder, in both types.
#include <gtest/gtest.h>

#include <filesystem>

#include "model/verify/golden_case.h"
#include "vision/verify/verify_case.h"

namespace tern::vision {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> cases() {
  std::vector<std::string> out;
  for (const auto& e : fs::directory_iterator(fs::path(TERN_SOURCE_DIR) / "tests/data/golden")) {
    const auto golden = model::read_golden_case(e.path().string());
    if (golden.ok() && golden->kind == "vision") out.push_back(e.path().filename().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

class PictureCase : public ::testing::TestWithParam<std::tuple<std::string, DType>> {};

TEST_P(PictureCase, Passes) {
  const auto& [name, type] = GetParam();
  const std::string folder = std::string(TERN_SOURCE_DIR) + "/tests/data/golden/" + name;
  static auto device = device::make_cpu_device({.threads = 2, .pin = false});
  const auto report =
      verify_case(folder, {.activation = type, .tolerance = model::VerifyTolerance::of(type)}, **device);
  ASSERT_TRUE(report.ok()) << report.error().message;
  for (const auto& c : report->tensors)
    EXPECT_TRUE(c.ok) << c.name << ": relative " << c.relative << ", rms " << c.rms << ", tolerance " << c.tolerance;
  for (const auto& c : report->prompts) EXPECT_EQ(c.matched, c.checked) << c.name;
  for (const auto& c : report->statements) EXPECT_TRUE(c.ok) << c.name << ": " << c.detail;
  // Pixels, tower, rows, merged embeddings and logits of three prompts at least; nothing was skipped.
  EXPECT_GE(report->tensors.size(), 15u);
  EXPECT_GE(report->statements.size(), 11u);
  EXPECT_EQ(report->prompts.size(), 3u);
  int checked = 0;
  for (const auto& c : report->prompts) checked += c.checked;
  EXPECT_GT(checked, type == DType::kF32 ? 30 : 8);
}

// The decoder's codes against the same ones as float32 weights. Tower and projector are left alone: what they compute
// is held against the other implementation, as ever.
class QuantizedPictureCase : public ::testing::TestWithParam<std::tuple<std::string, const char*>> {};

TEST_P(QuantizedPictureCase, IsWithinTheToleranceOfItsTwin) {
  const auto& [name, quantization] = GetParam();
  const std::string folder = std::string(TERN_SOURCE_DIR) + "/tests/data/golden/" + name, text = quantization;
  static auto device = device::make_cpu_device({.threads = 2, .pin = false});
  for (const DType type : {DType::kF32, DType::kBF16}) {
    model::VerifyOptions options{.activation = type, .tolerance = model::VerifyTolerance::of(type)};
    options.quantization = text.starts_with("{") ? *json::parse(text) : json::Value(text);
    const auto report = vision::verify_case(folder, options, **device);
    ASSERT_TRUE(report.ok()) << report.error().message;
    for (const auto& c : report->tensors)
      EXPECT_TRUE(c.ok) << c.name << ": relative " << c.relative << ", rms " << c.rms << ", tolerance " << c.tolerance;
    for (const auto& c : report->prompts) EXPECT_EQ(c.matched, c.checked) << c.name;
    for (const auto& c : report->statements) EXPECT_TRUE(c.ok) << c.name << ": " << c.detail;
    EXPECT_GE(report->tensors.size(), 15u);
    EXPECT_GE(report->statements.size(), 11u);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, QuantizedPictureCase,
                         ::testing::Combine(::testing::ValuesIn(cases()),
                                            ::testing::Values("wint8", "block_wise_fp8",
                                                              R"({"quantization":"wint4","group_size":32})")),
                         [](const auto& one) { return std::to_string(one.index); });

std::string test_name(const ::testing::TestParamInfo<std::tuple<std::string, DType>>& info) {
  return std::get<0>(info.param) + "_" + dtype_name(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Cases, PictureCase,
                         ::testing::Combine(::testing::ValuesIn(cases()), ::testing::Values(DType::kF32, DType::kBF16)),
                         test_name);

}  // namespace
}  // namespace tern::vision
