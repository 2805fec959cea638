// --scripted: lines to answers, and what a wrong line says.
#include "app/start/script_file.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace tern::app {
namespace {

const content::Tokenizer& tokenizer() {
  static const auto loaded = content::Tokenizer::load(std::string(TERN_SOURCE_DIR) + "/tests/protocol/tokenizer");
  TERN_CHECK(loaded.ok());
  return **loaded;
}

std::string fault_of(std::string_view text) {
  const auto script = parse_script(text, "a.jsonl", tokenizer());
  return script.ok() ? "" : script.error().message;
}

TEST(ScriptFile, LinesBecomeAnswers) {
  const auto script = parse_script(
      "{\"match\":\"hi\",\"text\":\"there\",\"token_delay_ms\":1.5}\r\n\n  \n"
      "{\"text\":\"\",\"stop\":\"natural\"}\n{\"text\":\"x\",\"stop\":\"length\"}",
      "a.jsonl", tokenizer());
  ASSERT_TRUE(script.ok()) << script.error().message;
  ASSERT_EQ(script->size(), 3u);
  EXPECT_EQ((*script)[0].match, "hi");
  EXPECT_EQ(tokenizer().decode((*script)[0].ids, false), "there");
  EXPECT_EQ((*script)[0].token_delay_ns, 1'500'000);
  EXPECT_TRUE((*script)[0].natural);
  EXPECT_TRUE((*script)[1].natural && (*script)[1].ids.empty());
  EXPECT_FALSE((*script)[2].natural);
}

TEST(ScriptFile, AWrongLineIsNamed) {
  EXPECT_EQ(fault_of(""), "a.jsonl: no answers");
  EXPECT_EQ(fault_of("{\"text\":\"x\"}\n\n[1]"), "a.jsonl, line 3: a JSON object is needed");
  EXPECT_EQ(fault_of("{\"match\":\"x\"}"), "a.jsonl, line 1: \"text\" is missing");
  EXPECT_EQ(fault_of("{\"txt\":\"x\"}"), "a.jsonl, line 1: \"txt\" is none of match, text, token_delay_ms and stop");
  EXPECT_EQ(fault_of("{\"text\":\"x\",\"stop\":\"eos\"}"),
            "a.jsonl, line 1: \"stop\" is \"eos\", but only natural and length are known");
  EXPECT_EQ(fault_of("{\"text\":\"\",\"stop\":\"length\"}"),
            "a.jsonl, line 1: an answer that ends by its length needs a text");
  EXPECT_EQ(fault_of("{\"text\":\"x\",\"token_delay_ms\":-1}"),
            "a.jsonl, line 1: \"token_delay_ms\" is not between 0 and 3600000");
  EXPECT_NE(fault_of("{\"text\":\"x\"}\n{\"text\":").find("a.jsonl, line 2: "), std::string::npos);
  EXPECT_NE(fault_of("{\"text\":7}").find("a.jsonl, line 1: "), std::string::npos);
  const auto missing = read_script("/nowhere.jsonl", tokenizer());
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message, "--scripted: cannot read /nowhere.jsonl");
}

}  // namespace
}  // namespace tern::app
