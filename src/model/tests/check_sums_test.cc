#include "model/files/check_sums.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace tern::model {
namespace {

const std::string kSum(64, 'a');

TEST(CheckSums, LinesOfSha256sum) {
  const auto sums = parse_sums(kSum + "  model.safetensors\n" + std::string(64, '0') + " *./b c\r\n\n");
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(sums->size(), 2u);
  EXPECT_EQ(sums->at("model.safetensors"), kSum);
  EXPECT_EQ(sums->at("b c"), std::string(64, '0'));
  for (const std::string& bad :
       {kSum, kSum + "  ", kSum + "  ./", kSum.substr(1) + "  name", kSum + "\tname", "A" + kSum.substr(1) + "  n"}) {
    EXPECT_FALSE(parse_sums(bad).ok()) << bad;
  }
}

TEST(CheckSums, NeedTheirFile) {
  const auto folder = std::filesystem::temp_directory_path() / "tern-check-sums";
  std::filesystem::create_directories(folder);
  EXPECT_FALSE(verify_sums(folder.string()).ok());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tern::model
