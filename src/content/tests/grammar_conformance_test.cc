// Schemas and patterns of others (not part of the repository): nothing that is wrong may be accepted.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "content/grammar/grammar.h"
#include "content/tests/test_data.h"
#include "json/json.h"

namespace tern::content {
namespace {

struct Counts {
  int right = 0;
  int refused = 0;
  int rejected = 0;  // valid, but never written that way
  std::vector<std::string> wrong;
};

bool accepts(const CompiledGrammar& grammar, const std::string& text) {
  auto matcher = grammar.start();
  if (!matcher.ok()) return false;
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  const auto taken = matcher->accepts(ids);
  return taken.ok() && *taken == ids.size() && matcher->consume(ids).ok() && matcher->accepting();
}

std::shared_ptr<const CompiledGrammar> compile(const json::Value& schema) {
  static const auto vocabulary = GrammarVocabulary::bytes();
  auto made = CompiledGrammar::compile(**vocabulary, {GrammarKind::kJsonSchema, json::dump(schema), {}});
  return made.ok() ? std::move(made).value() : nullptr;
}

// True when every instance is judged as it should be.
bool judge(const json::Value& schema, const json::Array& tests, const std::string& name, Counts& counts) {
  const auto grammar = compile(schema);
  if (!grammar) {
    counts.refused += static_cast<int>(tests.size());
    return false;
  }
  bool all = true;
  for (const json::Value& test : tests) {
    const json::Object& t = test.as_object();
    const bool valid = t.at("valid").as_bool();
    const bool got = accepts(*grammar, json::dump(t.at("data")));
    all = all && got == valid;
    counts.right += got == valid ? 1 : 0;
    counts.rejected += valid && !got ? 1 : 0;
    if (got && !valid) counts.wrong.push_back(name + ": " + json::dump(t.at("data")));
  }
  return all;
}

TEST(GrammarConformance, MaskBenchSample) {
  TERN_NEED_SHARED_DATA();
  std::ifstream in(shared_data() + "/structured/maskbench_sample.jsonl");
  Counts counts;
  int run = 0;
  for (std::string line; std::getline(in, line);) {
    const auto parsed = json::parse(line);
    ASSERT_TRUE(parsed.ok());
    const json::Object& row = parsed->as_object();
    run += judge(row.at("schema"), row.at("tests").as_array(), json::dump(row.at("file")), counts) ? 1 : 0;
  }
  EXPECT_TRUE(counts.wrong.empty()) << counts.wrong.front();
  EXPECT_GE(run, 66);  // of 84; llguidance alone: 63
}

TEST(GrammarConformance, JsonSchemaTestSuite) {
  TERN_NEED_SHARED_DATA();
  Counts counts;
  for (const auto& file :
       std::filesystem::directory_iterator(shared_data() + "/structured/json-schema-test-suite/draft2020-12")) {
    if (file.path().extension() != ".json") continue;
    const json::Value groups = load_json(file.path().string());
    for (const json::Value& group : groups.as_array()) {
      const json::Object& g = group.as_object();
      judge(g.at("schema"), g.at("tests").as_array(), file.path().stem().string() + json::dump(g.at("description")),
            counts);
    }
  }
  EXPECT_TRUE(counts.wrong.empty()) << counts.wrong.front();
  EXPECT_GE(counts.right, 850);
  EXPECT_LE(counts.rejected, 40);  // src/content/grammar/README.md lists them
}

TEST(GrammarConformance, Patterns) {
  TERN_NEED_SHARED_DATA();
  const json::Value file = load_json(shared_data() + "/structured/regex_patterns.json");
  int run = 0;
  for (const json::Value& value : file.at("cases").as_array()) {
    const json::Object& row = value.as_object();
    json::Object schema;
    schema["type"] = "string";
    schema["pattern"] = row.at("pattern");
    const auto grammar = compile(schema);
    if (!grammar) {
      continue;
    }
    ++run;
    for (const json::Value& text : row.at("full_match").as_array()) {
      EXPECT_TRUE(accepts(*grammar, json::dump(text))) << json::dump(value.at("pattern")) << json::dump(text);
    }
    for (const json::Value& text : row.at("no_match").as_array()) {
      EXPECT_FALSE(accepts(*grammar, json::dump(text))) << json::dump(value.at("pattern")) << json::dump(text);
    }
  }
  EXPECT_GE(run, 135);  // of 137
}

}  // namespace
}  // namespace tern::content
