#include <gtest/gtest.h>

#include "json/json.h"

namespace tern::json {
namespace {

TEST(Json, RefusesDeepLargeAndTrailing) {
  EXPECT_EQ(parse(std::string(100, '[') + std::string(100, ']')).error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(parse("[1,2]", {.max_bytes = 3}).error().code, ErrorCode::kTooLarge);
  EXPECT_FALSE(parse("{} x").ok());
  EXPECT_FALSE(parse("{\"a\":1").ok());
  EXPECT_FALSE(parse("\"\xff\"").ok());
  EXPECT_TRUE(parse(std::string(64, '[') + std::string(64, ']')).ok());
}

TEST(Json, TypedLookups) {
  auto v = parse(R"({"i":3,"f":2.0,"b":true,"s":"x","n":null,"g":1.5})");
  ASSERT_TRUE(v.ok());
  const Object& o = v->as_object();
  EXPECT_EQ(**get_int(o, "i"), 3);
  EXPECT_EQ(**get_int(o, "f"), 2);
  EXPECT_FALSE(get_int(o, "g").ok());
  EXPECT_EQ(get_int(o, "s").error().param, "s");
  EXPECT_FALSE(get_int(o, "n")->has_value());
  EXPECT_EQ(**get_double(o, "i"), 3.0);
  EXPECT_EQ(**get_bool(o, "b"), true);
  EXPECT_EQ(**get_string(o, "s"), "x");
}

TEST(Json, KeepsKeyOrder) { EXPECT_EQ(dump(*parse(R"({"b":1,"a":2})")), R"({"b":1,"a":2})"); }

TEST(Json, WritesStringsAndNumbers) {
  std::string out;
  append_quoted(out, "a\"\\\n\x01\xc3\xa9\xff");
  EXPECT_EQ(out, "\"a\\\"\\\\\\n\\u0001\xc3\xa9\xef\xbf\xbd\"");
  out.clear();
  append_double(out, 1.0);
  out += ' ';
  append_double(out, 0.1);
  EXPECT_EQ(out, "1.0 0.1");
}

}  // namespace
}  // namespace tern::json
