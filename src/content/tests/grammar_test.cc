// Grammars behind their C++ face: what is accepted, what is refused and how, the cache of compiled grammars.
#include "content/grammar/grammar.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "content/grammar/compiler.h"
#include "content/tests/test_data.h"
#include "content/text/tokenizer.h"

namespace tern::content {
namespace {

std::shared_ptr<const GrammarVocabulary> bytes() {
  static const auto made = GrammarVocabulary::bytes();
  return *made;
}

bool accepts(const CompiledGrammar& grammar, std::string_view text) {
  auto matcher = grammar.start();
  EXPECT_TRUE(matcher.ok());
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  const auto taken = matcher->accepts(ids);
  if (!taken.ok() || *taken != ids.size()) return false;
  EXPECT_TRUE(matcher->consume(ids).ok());
  return matcher->accepting();
}

GrammarCompiler::Result compile(GrammarKind kind, std::string_view text, const GrammarOptions& options = {}) {
  return CompiledGrammar::compile(*bytes(), GrammarSpec{kind, std::string(text), options});
}

TEST(Grammar, GoodAndBad) {
  const auto schema = compile(GrammarKind::kJsonSchema, R"({"type":"object","properties":{"a":{"type":"integer"}}})");
  ASSERT_TRUE(schema.ok()) << schema.error().message;
  EXPECT_TRUE(accepts(**schema, R"({"a": 1})"));
  EXPECT_FALSE(accepts(**schema, R"({"a": "1"})"));
  EXPECT_GT((*schema)->bytes(), 0u);
  const auto code = [](GrammarKind kind, std::string_view text) { return compile(kind, text).error().code; };
  EXPECT_EQ(code(GrammarKind::kJsonSchema, R"({"type":"nope"})"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(GrammarKind::kJsonSchema, "{"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(GrammarKind::kRegex, "(a"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(GrammarKind::kRegex, "\xff"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(GrammarKind::kLark, "start: x"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(GrammarKind::kChoice, "[]"), ErrorCode::kInvalidArgument);
  const auto refused = compile(GrammarKind::kJsonSchema, R"({"properties":{"a":{"type":"array","uniqueItems":true}}})");
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("/properties/a"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("uniqueItems"), std::string::npos);
  GrammarLimits small;
  small.text_bytes = 3;
  EXPECT_EQ(CompiledGrammar::compile(*bytes(), {GrammarKind::kRegex, "aaaa", {}}, small).error().code,
            ErrorCode::kTooLarge);
}

TEST(Grammar, MatcherFillsForcesAndGoesBack) {
  const auto grammar = compile(GrammarKind::kChoice, R"(["abc","abd"])");
  ASSERT_TRUE(grammar.ok());
  auto matcher = (*grammar)->start();
  ASSERT_TRUE(matcher.ok());
  std::vector<uint32_t> words(12, ~0u);
  ASSERT_TRUE(matcher->fill(words).ok());
  EXPECT_EQ(words['a' / 32], 1u << ('a' % 32));
  EXPECT_EQ(words[11], 0u);
  std::vector<int32_t> forced;
  ASSERT_TRUE(matcher->forced(8, forced).ok());
  const std::vector<int32_t> ahead = {'a', 'b', 'x'};
  std::vector<uint32_t> many(4 * 12);
  const auto filled = matcher->fill_ahead(ahead, 12, many);
  ASSERT_TRUE(filled.ok());
  EXPECT_EQ(*filled, 3u);
  EXPECT_EQ(many[2 * 12 + 3], (1u << ('c' % 32)) | (1u << ('d' % 32)));
  EXPECT_FALSE(matcher->fill(std::span(words).first(2)).ok());
}

TEST(Grammar, AnErrorStaysWithItsRequest) {
  const auto grammar = compile(GrammarKind::kChoice, R"(["abc"])");
  ASSERT_TRUE(grammar.ok());
  auto first = (*grammar)->start();
  auto second = (*grammar)->start();
  const std::vector<int32_t> wrong = {'x'}, right = {'a', 'b', 'c'};
  EXPECT_FALSE(first->consume(wrong).ok());
  EXPECT_FALSE(first->consume(right).ok());
  EXPECT_TRUE(second->consume(right).ok());
  EXPECT_TRUE(second->stopped());
}

TEST(Grammar, OverATokenizer) {
  const auto tokenizer = Tokenizer::load(own_data("tokenizers/byte_level"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::vector<int32_t> ends = {(*tokenizer)->eos_id().value_or(0)};
  const auto vocabulary = GrammarVocabulary::make(**tokenizer, ends);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  EXPECT_EQ((*vocabulary)->ids(), static_cast<size_t>((*tokenizer)->vocab_size()));
  EXPECT_FALSE(GrammarVocabulary::make(**tokenizer, {}).ok());
}

TEST(GrammarCompiler, EqualTextsCompileOnce) {
  int vocabularies = 0;
  const auto make = [&] { return ++vocabularies, GrammarVocabulary::bytes(); };
  GrammarCompiler compiler(make, {});
  EXPECT_EQ(vocabularies, 0) << "made before the first grammar";
  const GrammarSpec spec{GrammarKind::kJsonSchema, R"({"type":"object"})", {}};
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { good += compiler.compile(spec).ok() ? 1 : 0; });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 8);
  EXPECT_EQ(compiler.stats().misses, 1u);
  EXPECT_EQ(compiler.stats().hits, 7u);
  GrammarSpec tight = spec;
  tight.options.tight = true;
  EXPECT_TRUE(compiler.compile(tight).ok());
  EXPECT_EQ(compiler.stats().misses, 2u);
  EXPECT_FALSE(compiler.compile({GrammarKind::kRegex, "(", {}}).ok());
  EXPECT_FALSE(compiler.compile({GrammarKind::kRegex, "(", {}}).ok());
  EXPECT_EQ(compiler.stats().misses, 3u);
  EXPECT_EQ(vocabularies, 1);
}

TEST(GrammarCompiler, MemoryIsBounded) {
  GrammarCompilerOptions options;
  options.max_bytes = 1;
  GrammarCompiler none(GrammarVocabulary::bytes, options);
  EXPECT_TRUE(none.compile({GrammarKind::kRegex, "a", {}}).ok());
  EXPECT_EQ(none.stats().entries, 0u);
  EXPECT_EQ(none.stats().bytes, 0u);
  options.max_bytes = 1u << 30;
  options.max_entries = 2;
  GrammarCompiler two(GrammarVocabulary::bytes, options);
  for (const char* text : {"a", "b", "a", "c", "a"}) EXPECT_TRUE(two.compile({GrammarKind::kRegex, text, {}}).ok());
  EXPECT_EQ(two.stats().entries, 2u);
  EXPECT_EQ(two.stats().hits, 2u);
}

}  // namespace
}  // namespace tern::content
