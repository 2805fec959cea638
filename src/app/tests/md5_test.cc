#include "app/download/md5.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tern::app {
namespace {

std::string md5_of(const std::string& text) {
  Md5 md5;
  md5.add(text.data(), text.size());
  return md5.hex();
}

// RFC 1321, appendix A.5.
TEST(Md5, KnownSums) {
  EXPECT_EQ(md5_of(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5_of("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(md5_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
            "d174ab98d277d9f5a5611c2c9f419d9f");
  std::string digits;
  for (int i = 0; i < 8; ++i) digits += "1234567890";
  EXPECT_EQ(md5_of(digits), "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(Md5, PiecesAreOneText) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7);
  for (const size_t step : {size_t{1}, size_t{55}, size_t{63}, size_t{64}, size_t{65}, size_t{999}}) {
    Md5 md5;
    for (size_t at = 0; at < text.size(); at += step) md5.add(text.data() + at, std::min(step, text.size() - at));
    EXPECT_EQ(md5.hex(), md5_of(text)) << step;
  }
}

}  // namespace
}  // namespace tern::app
