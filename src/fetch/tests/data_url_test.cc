#include "fetch/data_url.h"

#include <gtest/gtest.h>

#include <random>

#include "base/cpu_isa.h"
#include "fetch/base64.h"
#include "fetch/fetch.h"

namespace tern::fetch {
namespace {

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string encoded(const std::string& bytes) {
  static constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : kLetters[bits >> (18 - 6 * k) & 63];
  }
  return out;
}

// What is wrong is said: of texts that are no data: URL, and of those that are damaged.
TEST(Fetch, SaysWhatIsWrongWithAUrl) {
  const auto text = [](const std::string& url) {
    const auto got = fetch(url, {});
    return got.ok() ? std::string("fine") : got.error().message;
  };
  const std::string letters = encoded(std::string(100, 'x') + "\xff\xfe");
  EXPECT_NE(text(letters).find("bare base64"), std::string::npos);
  EXPECT_NE(text(" data:image/png;base64," + letters).find("begins with white space"), std::string::npos);
  EXPECT_NE(text("\ndata:,x").find("begins with white space"), std::string::npos);
  EXPECT_NE(text("pictures/one.png").find("no scheme"), std::string::npos);
  EXPECT_NE(text("").find("no scheme"), std::string::npos);
  EXPECT_NE(text("data:image/png;base64").find("no comma"), std::string::npos);
  EXPECT_NE(text("data:image/png;base64,QUI").find("lacks its padding"), std::string::npos);
  EXPECT_NE(text("data:image/png;base64,QQ").find("lacks its padding"), std::string::npos);
  EXPECT_NE(text("data:image/png;base64,QUI*").find("damaged"), std::string::npos);
  EXPECT_EQ(text("data:image/png;base64,QUI="), "fine");
  EXPECT_NE(text("gopher://x").find("scheme is not supported"), std::string::npos);
}

TEST(Base64, Table) {
  const struct {
    const char* text;
    const char* bytes;  // nullptr: refused
  } rows[] = {
      {"", ""},
      {"QQ==", "A"},
      {"QUI=", "AB"},
      {"QUJD", "ABC"},
      {"QUJDRA==", "ABCD"},
      {"Q Q = =", "A"},
      {"\nQUJD\r\nRA==\n", "ABCD"},
      {" QUJD", "ABC"},
      {"QR==", "A"},  // loose bits, as in Python
      {"Q", nullptr},
      {"QQ", nullptr},
      {"QUI", nullptr},
      {"QQ=", nullptr},
      {"QQ===", nullptr},
      {"QUI==", nullptr},
      {"QUJD=", nullptr},
      {"=", nullptr},
      {"Q===", nullptr},
      {"====", nullptr},
      {"QQ==QQ==", nullptr},
      {"QUJD!", nullptr},
      {"QU-_", nullptr},
      {"QU\xFFJ", nullptr},
      {"QUJD\x01", nullptr},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.text);
    const auto out = decode_base64(row.text);
    ASSERT_EQ(out.has_value(), row.bytes != nullptr);
    EXPECT_EQ(text_of(out.value_or(std::vector<std::byte>())), row.bytes == nullptr ? "" : row.bytes);
  }
}

TEST(Base64, AllLengthsWithLinesAndFaults) {
  std::mt19937 random(7);
  for (size_t size = 0; size < 300; ++size) {
    std::string bytes(size, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    const std::string text = encoded(bytes);
    const auto whole = decode_base64(text);
    ASSERT_TRUE(whole) << size;
    ASSERT_EQ(text_of(*whole), bytes);
    std::string lines;
    for (size_t i = 0; i < text.size(); ++i) {
      if (i % (1 + size % 77) == 0) lines += "\r\n";
      lines += text[i];
    }
    const auto folded = decode_base64(lines);
    ASSERT_TRUE(folded) << size;
    ASSERT_EQ(text_of(*folded), bytes);
    if (text.empty()) continue;
    std::string broken = text;
    broken[random() % broken.size()] = "!*-_%\x80\xC1."[random() % 8];
    EXPECT_FALSE(decode_base64(broken)) << broken;
  }
}

TEST(Base64, EveryLetterInEveryPlaceOfAVector) {
  const std::string base(64, 'A');
  for (size_t place = 0; place < base.size(); ++place) {
    for (int letter = 0; letter < 256; ++letter) {
      std::string text = base;
      text[place] = static_cast<char>(letter);
      std::vector<uint8_t> wide(80), narrow(80);
      const auto* from = reinterpret_cast<const uint8_t*>(text.data());
      const size_t a = internal::decode_groups(from, text.size(), narrow.data());
      if (detect_isa() < Isa::kAvx2) GTEST_SKIP() << "needs AVX2";
      const size_t b = internal::decode_groups_avx2(from, text.size(), wide.data());
      ASSERT_EQ(a, b) << place << " " << letter;
      narrow.resize(a / 4 * 3);
      wide.resize(a / 4 * 3);
      ASSERT_EQ(narrow, wide);
    }
  }
}

TEST(DataUrl, Table) {
  const struct {
    const char* url;
    const char* bytes;
  } rows[] = {
      {"data:image/png;base64,QUJD", "ABC"},
      {"DATA:image/png;BASE64,QUJD", "ABC"},
      {"data:;base64,QUJD", "ABC"},
      {"data:image/svg+xml;charset=utf-8;base64,QUJD", "ABC"},
      {"data:image/png; base64 ,QUJD", "ABC"},
      {"data:image/png;base64,QUI%3D", "AB"},
      {"data:,A%20B%2c", "A B,"},
      {"data:text/plain,A,B", "A,B"},
      {"data:image/png;base64,", ""},
      {"data:image/png;base64", nullptr},
      {"data:", nullptr},
      {"data", nullptr},
      {"data:image/png;base64,QUJ", nullptr},
      {"data:image/png;base64,Q*JD", nullptr},
      {"data:image/png;base64,QUI%3", nullptr},
      {"data:,%", nullptr},
      {"data:,%4", nullptr},
      {"data:,%zz", nullptr},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.url);
    const auto out = fetch(row.url, {});
    ASSERT_EQ(out.ok(), row.bytes != nullptr);
    if (out.ok()) {
      EXPECT_EQ(text_of(*out), row.bytes);
    } else {
      EXPECT_EQ(out.error().code, ErrorCode::kInvalidArgument);
    }
  }
}

TEST(DataUrl, LimitsBeforeDecoding) {
  const std::string head = "data:image/png;base64,";
  const auto code = [](const std::string& url, size_t limit) {
    const auto out = decode_data_url(url, limit);
    return out.ok() ? std::string("ok") : out.error().code == ErrorCode::kTooLarge ? "large" : "bad";
  };
  EXPECT_EQ(code(head + encoded(std::string(100, 'x')), 100), "ok");
  EXPECT_EQ(code(head + encoded(std::string(101, 'x')), 100), "large");
  EXPECT_EQ(code(head + encoded(std::string(99, 'x')), 99), "ok");
  EXPECT_EQ(code(head + encoded(std::string(98, 'x')), 98), "ok");
  EXPECT_EQ(code(head + std::string(4000, '!'), 100), "large");  // too long even to be looked at
  EXPECT_EQ(code(head + std::string(100000, ' '), 100), "large");
  EXPECT_EQ(code("data:," + std::string(100, 'x'), 100), "ok");
  EXPECT_EQ(code("data:," + std::string(101, 'x'), 100), "large");
  std::string escapes = "data:,";
  for (int i = 0; i < 100; ++i) escapes += "%41";
  EXPECT_EQ(code(escapes, 100), "ok");
  EXPECT_EQ(code(escapes + "B", 100), "large");
}

}  // namespace
}  // namespace tern::fetch
