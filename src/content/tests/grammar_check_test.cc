// The grammar seam of textkit: what compiles and what is refused.
#include <gtest/gtest.h>

#include <string_view>

#include "content/text/textkit_handle.h"

namespace tern::content {
namespace {

tk_code check(tk_grammar_kind kind, std::string_view text, size_t limit = 1000) {
  TkBytes error;
  const tk_code code = tk_grammar_check(kind, text.data(), text.size(), limit, &error.raw);
  EXPECT_EQ(code == TK_OK, error.view().empty()) << error.view();
  return code;
}

TEST(GrammarCheck, GoodAndBad) {
  EXPECT_EQ(check(TK_JSON_SCHEMA, R"({"type":"object","properties":{"a":{"type":"integer"}}})"), TK_OK);
  EXPECT_EQ(check(TK_JSON_SCHEMA, R"({"type":"nope"})"), TK_INVALID);
  EXPECT_EQ(check(TK_JSON_SCHEMA, "{"), TK_INVALID);
  EXPECT_EQ(check(TK_REGEX, "[a-z]+(ab|c)*"), TK_OK);
  EXPECT_EQ(check(TK_REGEX, "(a+)+b"), TK_OK);  // no back-tracking, so nothing to fear
  EXPECT_EQ(check(TK_REGEX, "(a"), TK_INVALID);
  EXPECT_EQ(check(TK_LARK, "start: \"a\" | \"b\" start"), TK_OK);
  EXPECT_EQ(check(TK_LARK, "start: x"), TK_INVALID);
  EXPECT_EQ(check(TK_REGEX, "aaaa", 3), TK_TOO_LARGE);
  EXPECT_EQ(check(TK_REGEX, "\xff"), TK_INVALID);
}

}  // namespace
}  // namespace tern::content
