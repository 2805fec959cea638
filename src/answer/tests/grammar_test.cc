// The grammar of every format compiles, for one tool and several, with marks as tokens and as text.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>

#include "answer/tests/fake_vocabulary.h"
#include "answer/tools/format.h"
#include "content/grammar/grammar.h"
#include "content/grammar/grammar_spec.h"
#include "content/text/tokenizer.h"

namespace tern::answer {
namespace {

std::string fault(std::string_view grammar) {
  // Any with ids for all marks.
  static const auto vocabulary = [] {
    const auto tokenizer = content::Tokenizer::load(std::string(TERN_SOURCE_DIR) + "/tests/protocol/tokenizer").value();
    return content::GrammarVocabulary::make(*tokenizer, std::array{int32_t{903}}).value();
  }();
  const auto compiled =
      content::CompiledGrammar::compile(*vocabulary, {content::GrammarKind::kLark, std::string(grammar), {}});
  return compiled.ok() ? std::string() : compiled.error().message;
}

Tools some_tools() {
  const auto schema = [](std::string_view text) { return json::parse(text).value(); };
  return {
      {"get_weather",
       schema(R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                  "unit": {"type": "string", "enum": ["C", "F\n\"x\""]}, "at": {"$ref": "#/$defs/P"}},
                  "required": ["city"], "$defs": {"P": {"type": "object", "properties": {"x": {"type": "number"}}}}})")},
      {"now", {}},
      {"täglich-\"2\"", schema(R"({"properties": {"a b": {"type": "boolean"}}})")},
      {"empty", schema(R"({"type": "object", "properties": {}})")},
  };
}

TEST(ToolGrammar, Compiles) {
  const Tools tools = some_tools();
  const FakeVocabulary text({});
  for (const NamedToolFormat& named : tool_formats()) {
    std::vector<std::string> marks;
    for (const std::string_view mark : named.format->marks) marks.emplace_back(mark);
    const FakeVocabulary tokens(marks);
    for (const bool single : {false, true}) {
      const Vocabulary vocabulary = single ? tokens.view() : text.view();
      for (const bool parallel : {false, true}) {
        for (const bool after : {false, true}) {
          for (size_t count = 1; count <= tools.size(); ++count) {
            const std::string grammar = named.format->grammar({.tools = std::span(tools).last(count),
                                                               .parallel = parallel,
                                                               .after_trigger = after,
                                                               .vocabulary = &vocabulary});
            EXPECT_EQ(fault(grammar), "") << named.name << '\n' << grammar;
            const bool has_token = grammar.find("<[") != std::string::npos;
            EXPECT_TRUE(single || !has_token) << grammar;
          }
        }
      }
    }
  }
}

TEST(ToolGrammar, Shapes) {
  const Tools tools = {{"f", json::parse(R"({"type":"object"})").value()}};
  const FakeVocabulary marks({"<tool_call>", "</tool_call>"});
  const Vocabulary vocabulary = marks.view();
  GrammarAsk ask{.tools = tools, .parallel = false, .vocabulary = &vocabulary};
  EXPECT_EQ(kHermes.grammar(ask),
            "start: <[256]> \"\\n\" call \"\\n\" <[257]>\n"
            "args-0: %json {\"type\":\"object\"}\n"
            "call-0: \"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": \" args-0 \"}\"\n"
            "call: call-0\n");
  ask.parallel = true;
  ask.after_trigger = true;
  EXPECT_TRUE(kHermes.grammar(ask).starts_with(
      "start: \"\\n\" call \"\\n\" <[257]> (\"\\n\" <[256]> \"\\n\" call \"\\n\" <[257]>)*\n"))
      << kHermes.grammar(ask);
}

}  // namespace
}  // namespace tern::answer
