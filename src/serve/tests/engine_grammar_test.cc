// Where in an answer a grammar holds: from the beginning, behind thoughts that the answer may open, behind a trigger.
#include "serve/core/engine_grammar.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tern::serve {
namespace {

constexpr int32_t kOpen = '<', kClose = '>', kTrigger = '!', kEnd = 256;

class Answer {
 public:
  explicit Answer(const GrammarPlace& place, size_t words = 9) : bits_(words) {
    static const auto vocabulary = *content::GrammarVocabulary::bytes();
    auto grammar = content::CompiledGrammar::compile(*vocabulary, {content::GrammarKind::kRegex, "a(b|c)d", {}});
    EXPECT_TRUE(grammar.ok());
    matcher_ = *engine_grammar(*grammar, place)->start();
  }
  // The bytes that may come next, '$' for the end; "*" for all.
  std::string next() {
    EXPECT_TRUE(matcher_->fill(bits_).ok());
    std::string allowed;
    for (int32_t id = 0; id <= kEnd; ++id) {
      const auto word = static_cast<size_t>(id) / 32;
      if (word < bits_.size() && (bits_[word] >> (id % 32) & 1u) != 0) {
        allowed.push_back(id == kEnd ? '$' : static_cast<char>(id));
      }
    }
    return allowed.size() > 250 ? "*" : allowed;
  }
  std::string forced() {
    std::vector<int32_t> ids;
    EXPECT_TRUE(matcher_->forced(8, ids).ok());
    return {ids.begin(), ids.end()};
  }
  Status say(std::string_view text) {
    const std::vector<int32_t> ids(text.begin(), text.end());
    return matcher_->consume(ids);
  }
  Status take_back(size_t count) { return matcher_->roll_back(count); }

 private:
  std::vector<uint32_t> bits_;
  std::unique_ptr<engine::TokenMatcher> matcher_;
};

TEST(EngineGrammar, FromTheBeginning) {
  Answer answer({});
  EXPECT_EQ(answer.next(), "a");
  ASSERT_TRUE(answer.say("a").ok());
  EXPECT_EQ(answer.next(), "bc");
  EXPECT_FALSE(answer.say("x").ok());
}

TEST(EngineGrammar, AnAnswerMayOpenThoughts) {
  Answer answer({.thoughts_begin = kOpen, .thoughts_end = kClose, .trigger = {}});
  EXPECT_EQ(answer.next(), "<a");
  EXPECT_EQ(answer.forced(), "");
  ASSERT_TRUE(answer.say("<any text").ok());
  EXPECT_EQ(answer.next(), "*");
  ASSERT_TRUE(answer.say(">").ok());
  EXPECT_EQ(answer.next(), "a");
  ASSERT_TRUE(answer.say("ac").ok());
  EXPECT_EQ(answer.next(), "d");
  ASSERT_TRUE(answer.say("d").ok());
  EXPECT_EQ(answer.next(), "$");
}

TEST(EngineGrammar, AnAnswerNeedNotOpenThoughts) {
  Answer answer({.thoughts_begin = kOpen, .thoughts_end = kClose, .trigger = {}});
  ASSERT_TRUE(answer.say("a").ok());
  EXPECT_EQ(answer.next(), "bc");
  EXPECT_FALSE(answer.say("<").ok());
}

TEST(EngineGrammar, BehindATrigger) {
  Answer answer({.thoughts_begin = {}, .thoughts_end = {}, .trigger = kTrigger});
  EXPECT_EQ(answer.next(), "*");
  ASSERT_TRUE(answer.say("free text").ok());
  EXPECT_EQ(answer.next(), "*");
  ASSERT_TRUE(answer.say("!ab").ok());
  EXPECT_EQ(answer.next(), "d");
}

TEST(EngineGrammar, ATriggerInThoughtsIsNone) {
  Answer answer({.thoughts_begin = kOpen, .thoughts_end = kClose, .trigger = kTrigger});
  ASSERT_TRUE(answer.say("<a!b").ok());
  EXPECT_EQ(answer.next(), "*");
  ASSERT_TRUE(answer.say("> text ").ok());
  EXPECT_EQ(answer.next(), "*");
  ASSERT_TRUE(answer.say("!").ok());
  EXPECT_EQ(answer.next(), "a");
}

TEST(EngineGrammar, TokensAreTakenBackAcrossTheBeginning) {
  const GrammarPlace place{.thoughts_begin = kOpen, .thoughts_end = kClose, .trigger = kTrigger};
  const std::string text = "<th!ought>free!abd";
  for (size_t back = 0; back <= text.size(); ++back) {
    Answer answer(place), other(place);
    ASSERT_TRUE(answer.say(text).ok());
    ASSERT_TRUE(answer.take_back(back).ok());
    ASSERT_TRUE(other.say(text.substr(0, text.size() - back)).ok());
    EXPECT_EQ(answer.next(), other.next()) << back;
  }
}

// A tokenizer may know more ids than the model has columns.
TEST(EngineGrammar, ShortMasks) {
  Answer answer({}, 4);
  EXPECT_EQ(answer.next(), "a");
}

}  // namespace
}  // namespace tern::serve
