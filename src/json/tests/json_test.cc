#include <gtest/gtest.h>
#include <malloc.h>

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

std::string repeated(std::string_view open, std::string_view part, std::string_view close, size_t bytes) {
  std::string text(open);
  while (text.size() < bytes) text.append(part).append(",");
  text.back() = close[0];
  return text.append(close.substr(1));
}

size_t allocated() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// The shapes that take most memory for their length.
const std::pair<const char*, const char*> kCostly[] = {
    {"[]", "1"},       {"[]", "[]"},       {"[]", "{}"},        {"[]", "[1]"},
    {"[]", "[[1]]"},   {"[]", "{\"\":0}"}, {"[]", "\"\""},      {"[]", "\"fifteen bytes..\""},
    {"{}", "\"a\":0"}, {"[]", "1e1"},      {"[]", "[1,1,1,1]"}, {"[]", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"},
    {"[]", "\"\\n\""}, {"[]", "null"},     {"[]", "{\"\":{}}"},
};

TEST(JsonMemory, IsKnownBeforeItIsSpent) {
  for (const auto& [ends, part] : kCostly) {
    const std::string text = repeated({ends, 1}, part, {ends + 1, 1}, 1 << 20);
    const auto extent = measure(text, {});
    ASSERT_TRUE(extent.ok()) << part;
    const size_t before = allocated();
    const auto value = parse(text, {}, *extent);
    ASSERT_TRUE(value.ok()) << part;
    const size_t after = allocated();
    EXPECT_LE(after, before + extent->memory + (64u << 10)) << part;
  }
}

// What a body of many small values may cost stands in a proportion to its bytes.
TEST(JsonMemory, CostlyShapesAreRefusedBeforeTheyCost) {
  for (const auto& [ends, part] : kCostly) {
    const std::string text = repeated({ends, 1}, part, {ends + 1, 1}, 8 << 20);
    const Limits limits{.max_memory_ratio = 3, .free_memory = 1 << 20};
    const size_t before = allocated();
    const auto value = parse(text, limits);
    const size_t after = allocated();
    if (value.ok())
      EXPECT_LE(after, before + 3 * text.size() + (64u << 10)) << part;
    else
      EXPECT_EQ(value.error().code, ErrorCode::kTooLarge) << part << ": " << value.error().message;
  }
  const std::string small = repeated("[", "1", "]", 1 << 20);
  EXPECT_FALSE(parse(small, {.max_memory_ratio = 3, .free_memory = 1 << 20}).ok());
  EXPECT_TRUE(parse(small, {.max_memory_ratio = 3, .free_memory = 16 << 20}).ok());
}

TEST(JsonMemory, NodesAreLimited) {
  EXPECT_TRUE(parse("[1,[2,3],{\"a\":4}]", {.max_nodes = 7}).ok());
  EXPECT_EQ(parse("[1,[2,3],{\"a\":4}]", {.max_nodes = 6}).error().code, ErrorCode::kTooLarge);
}

// The first pass does not believe in valid text: what it finds is only an estimate, and the parser decides.
TEST(JsonMemory, BrokenTextIsStillRefused) {
  for (const char* text : {"[,,,]", "[1,2", "]", "{\"a\"", "\"", "\"\\\"", "{\"a\":1,}", "[}", "", " ",
                           "{\"a\":\"\\\\\"", "[1]]", "nul", "{1:2}", "{\"a\" \"b\"}"}) {
    EXPECT_EQ(parse(text).error().code, ErrorCode::kCorrupt) << text;
  }
}

TEST(Json, BuildsWhatBoostBuilds) {
  std::string wide = "{";
  for (int i = 0; i < 40; ++i) wide += "\"k" + std::to_string(i % 37) + "\":[" + std::to_string(i) + ",{},[]],";
  wide.back() = '}';
  const std::string escapes = "[\"" + std::string(5000, 'x') + "\\n\\u00e9" + std::string(9000, 'y') + "\\\\\"]";
  const std::string key = "{\"" + std::string(5000, 'k') + "\\n" + std::string(5000, 'l') + "\":{\"a\":1,\"a\":[2]}}";
  for (const std::string& text :
       {wide, escapes, key, std::string("1.5e3"), std::string("\"\""),
        std::string("[18446744073709551615,-1,true,null]"), std::string(" [ 1 , [ ] , { } , { \"a\" : [ [ ] ] } ] "),
        repeated("[", "[1,\"two\",{\"three\":3}]", "]", 5000)}) {
    const auto value = parse(text);
    ASSERT_TRUE(value.ok()) << value.error().message;
    EXPECT_EQ(*value, boost::json::parse(text)) << text.substr(0, 100);
    EXPECT_EQ(dump(*value), boost::json::serialize(boost::json::parse(text)));
  }
}

}  // namespace
}  // namespace tern::json
