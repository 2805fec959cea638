// The fields that ask for guided decoding, in every dialect.
#include "content/grammar/constraint.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace tern::content {
namespace {

Expected<std::optional<GrammarSpec>> read(std::string_view body) {
  const auto parsed = json::parse(body);
  EXPECT_TRUE(parsed.ok()) << body;
  TERN_ASSIGN_OR_RETURN(auto asked, constraint_of(parsed->as_object(), {}));
  return asked ? std::optional(asked->spec) : std::nullopt;
}

void expect(std::string_view body, GrammarKind kind, std::string_view text) {
  const auto spec = read(body);
  ASSERT_TRUE(spec.ok()) << body << ": " << spec.error().message;
  ASSERT_TRUE(spec->has_value()) << body;
  EXPECT_EQ((*spec)->kind, kind) << body;
  EXPECT_EQ((*spec)->text, text) << body;
}

std::string fault(std::string_view body) {
  const auto spec = read(body);
  return spec.ok() ? "none" : spec.error().param;
}

TEST(Constraint, EveryDialect) {
  expect(R"({"guided_json":{"type":"null"}})", GrammarKind::kJsonSchema, R"({"type":"null"})");
  expect(R"({"guided_json":"{\"type\": \"null\"}"})", GrammarKind::kJsonSchema, R"({"type": "null"})");
  expect(R"({"guided_regex":"a+"})", GrammarKind::kRegex, "a+");
  expect(R"({"guided_choice":["a","b"]})", GrammarKind::kChoice, R"(["a","b"])");
  expect(R"({"guided_grammar":"root ::= \"a\""})", GrammarKind::kLark, "root ::= \"a\"");
  expect(R"({"guided_json_object":true})", GrammarKind::kJsonObject, "");
  expect(R"({"structural_tag":"{}"})", GrammarKind::kStructuralTag, "{}");
  expect(R"({"response_format":{"type":"json_object"}})", GrammarKind::kJsonObject, "");
  expect(R"({"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"null"}}}})",
         GrammarKind::kJsonSchema, R"({"type":"null"})");
  expect(R"({"response_format":{"type":"structural_tag","triggers":["<"],"structures":[]}})",
         GrammarKind::kStructuralTag, R"({"type":"structural_tag","triggers":["<"],"structures":[]})");
  expect(R"({"structured_outputs":{"choice":["x"]}})", GrammarKind::kChoice, R"(["x"])");
  expect(R"({"structured_outputs":{"json_object":true}})", GrammarKind::kJsonObject, "");
  const auto tight = read(R"({"structured_outputs":{"json":{},"disable_any_whitespace":true}})");
  ASSERT_TRUE(tight.ok() && tight->has_value());
  EXPECT_TRUE((*tight)->options.tight);
}

TEST(Constraint, NothingAsked) {
  for (const char* body :
       {"{}", R"({"response_format":{"type":"text"}})", R"({"guided_json":null})", R"({"guided_json_object":false})"}) {
    const auto spec = read(body);
    ASSERT_TRUE(spec.ok()) << body;
    EXPECT_FALSE(spec->has_value()) << body;
  }
}

TEST(Constraint, FaultsNameTheField) {
  EXPECT_EQ(fault(R"({"guided_json":3})"), "guided_json");
  EXPECT_EQ(fault(R"({"guided_json":"[]"})"), "guided_json");
  EXPECT_EQ(fault(R"({"guided_json":"{"})"), "guided_json");
  EXPECT_EQ(fault(R"({"guided_regex":""})"), "guided_regex");
  EXPECT_EQ(fault(R"({"guided_choice":[]})"), "guided_choice");
  EXPECT_EQ(fault(R"({"guided_choice":["a",1]})"), "guided_choice");
  EXPECT_EQ(fault(R"({"response_format":{"type":"x"}})"), "response_format");
  EXPECT_EQ(fault(R"({"response_format":"json"})"), "response_format");
  EXPECT_EQ(fault(R"({"response_format":{"type":"json_schema","json_schema":{}}})"),
            "response_format.json_schema.schema");
  EXPECT_EQ(fault(R"({"structured_outputs":{}})"), "structured_outputs");
  EXPECT_EQ(fault(R"({"structured_outputs":{"regex":1}})"), "structured_outputs.regex");
  EXPECT_EQ(fault(R"({"structured_outputs":{"regex":"a","choice":["b"]}})"), "structured_outputs.choice");
  EXPECT_EQ(fault(R"({"guided_regex":"a","guided_json":{}})"), "guided_regex");
  EXPECT_EQ(fault(R"({"guided_json":{},"response_format":{"type":"json_object"}})"), "guided_json");
}

}  // namespace
}  // namespace tern::content
