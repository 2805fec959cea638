#include "base/memory/raw_bytes.h"

#include <gtest/gtest.h>

namespace tern {
namespace {

TEST(RawBytes, KeepWhatTheyHoldAndTakeAValueWhereOneIsGiven) {
  RawBytes bytes(size_t{3} << 20, std::byte{7});
  for (const std::byte b : bytes) ASSERT_EQ(b, std::byte{7});
  bytes.resize(1000);
  bytes.resize(2000);
  for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(bytes[i], std::byte{7}) << i;
  bytes.resize(1000);
  const RawBytes copy = bytes;
  EXPECT_EQ(copy, bytes);
  bytes.resize(3000, std::byte{1});
  EXPECT_EQ(bytes[2999], std::byte{1});
}

}  // namespace
}  // namespace tern
