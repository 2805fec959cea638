// Texts of answers over a SentencePiece vocabulary: where they begin, how log-probs name their tokens.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "content/text/tokenizer.h"
#include "serve/openai/writers/make_writer.h"
#include "serve/tests/support.h"

namespace tern::serve {
namespace {

const content::Tokenizer& llama() {
  static const auto loaded =
      content::Tokenizer::load(std::string(TERN_SOURCE_DIR) + "/tests/data/tokenizers/sentencepiece_llama");
  TERN_CHECK(loaded.ok());
  return **loaded;
}

std::vector<int32_t> encode(const std::string& text, bool special = false) { return *llama().encode(text, special); }

struct Answer {
  std::string text;  // the whole answer's, or the chunks' joined
  json::Value last;  // the body, or the last chunk
};

// The answer to `prompt` when the engine says `ids`, one by one.
Answer answer(Ask ask, std::vector<int32_t> prompt, const std::vector<int32_t>& ids, const ServeConfig& config,
              std::vector<engine::TokenLogprob> alternatives = {}) {
  const bool chat = ask.chat, stream = ask.stream;
  std::vector<PromptFacts> prompts(1);
  prompts[0].ids = std::move(prompt);
  prompts[0].text = llama().decode(prompts[0].ids, true);
  engine::Request prototype;
  prototype.max_tokens = 512;
  ask.model = "m";
  Generation g(std::move(ask), "id", std::move(prompts), std::move(prototype), config,
               AnswerParts{.tokenizer = &llama(), .make_writer = openai::make_writer});
  Answer out;
  for (size_t i = 0; i < ids.size(); ++i) {
    engine::Delta delta;
    delta.tokens.push_back({ids[i], {{ids[i], -1.0f, 1}}});
    for (const auto& a : alternatives) delta.tokens[0].logprobs.push_back(a);
    if (i + 1 == ids.size()) delta.finish = engine::FinishReason::kLength;
    std::string bytes;
    g.consume(g.choices()[0], std::move(delta), 0, bytes);
    if (!stream) continue;
    for (size_t at = bytes.find("data: "); at != std::string::npos; at = bytes.find("data: ", at + 1)) {
      out.last = *json::parse(bytes.substr(at + 6, bytes.find("\n\n", at) - at - 6));
      const json::Object& choice = out.last.at("choices").as_array().at(0).as_object();
      out.text += std::string((chat ? choice.at("delta").at("content") : choice.at("text")).as_string());
    }
  }
  if (stream) return out;
  out.last = *json::parse(g.writer().body());
  const json::Object& choice = out.last.at("choices").as_array().at(0).as_object();
  out.text = std::string((chat ? choice.at("message").at("content") : choice.at("text")).as_string());
  return out;
}

class AnswerText : public ::testing::TestWithParam<bool> {
 protected:
  Ask ask(bool chat) const {
    Ask ask;
    ask.chat = chat;
    ask.stream = GetParam();
    return ask;
  }
};
INSTANTIATE_TEST_SUITE_P(WholeAndStreamed, AnswerText, ::testing::Bool());

TEST_P(AnswerText, ACompletionJoinsItsPrompt) {
  const std::string before = "a girl named", whole = "a girl named Lily went";
  const auto prompt = encode(before, true), all = encode(whole, true);
  ASSERT_LT(prompt.size(), all.size());
  ASSERT_TRUE(std::equal(prompt.begin(), prompt.end(), all.begin()));
  const std::vector<int32_t> more(all.begin() + static_cast<std::ptrdiff_t>(prompt.size()), all.end());
  EXPECT_EQ(before + answer(ask(false), prompt, more, {}).text, whole);
  // At the very start of a text nothing is before the word.
  EXPECT_EQ(answer(ask(false), encode("", true), encode("Lily"), {}).text, "Lily");
}

TEST_P(AnswerText, AContinuationGoesOn) {
  auto prompt = encode("a girl", true);
  const auto said = encode("named"), next = encode("Lily");
  prompt.insert(prompt.end(), said.begin(), said.end());
  for (const bool chat : {false, true}) {
    Ask more = ask(chat);
    more.completion_token_ids = said;
    EXPECT_EQ(answer(std::move(more), prompt, next, {}).text, " Lily") << chat;
  }
  Ask last = ask(true);
  last.continue_final_message = true;
  EXPECT_EQ(answer(std::move(last), prompt, next, {}).text, " Lily");
}

TEST_P(AnswerText, AnAnswerInAChatHasNoFirstSpaceAndItsTokensAgree) {
  Ask one = ask(true);
  one.logprobs = true;
  const auto ids = encode("Lily");
  ASSERT_EQ(llama().id_to_bytes(ids[0]).substr(0, 1), " ");
  const Answer got = answer(std::move(one), encode("hello", true), {ids[0]}, {});
  const json::Value& choice = got.last.at("choices").as_array().at(0);
  const json::Value& token = choice.at("logprobs").at("content").as_array().at(0);
  EXPECT_EQ(got.text, std::string(llama().id_to_bytes(ids[0]).substr(1)));
  EXPECT_EQ(token.at("token").as_string(), got.text);
  EXPECT_EQ(token.at("bytes").as_array().size(), got.text.size());
}

TEST_P(AnswerText, TheEndOfACharacterThatThePromptBeganIsShown) {
  const auto bytes = encode("\xF0\x9F\xA6\x84");  // by byte tokens
  ASSERT_GE(bytes.size(), 4u);
  const std::vector<int32_t> begin(bytes.begin(), bytes.end() - 2), end(bytes.end() - 2, bytes.end());
  EXPECT_EQ(answer(ask(false), begin, end, {}).text, "\xF0\x9F\xA6\x84");
}

TEST_P(AnswerText, KeysOfTopLogprobsAreUniqueAndAsManyAsAsked) {
  const auto letter = llama().token_to_id("a"), byte = llama().token_to_id("<0x61>"), other = llama().token_to_id("b");
  ASSERT_TRUE(letter && byte && other);
  ASSERT_TRUE(llama().has_equal_tokens());
  Ask one = ask(false);
  one.logprobs = true;
  one.top_logprobs = 2;
  const Answer got = answer(std::move(one), encode("x", true), {*byte}, {},
                            {{*letter, -0.5f, 1}, {*byte, -1.0f, 2}, {*other, -2.0f, 3}});
  const json::Value& choice = got.last.at("choices").as_array().at(0);
  const json::Object& top = choice.at("logprobs").at("top_logprobs").as_array().at(0).as_object();
  ASSERT_EQ(top.size(), 2u);
  EXPECT_EQ(top.at("a").to_number<double>(), -0.5);
  EXPECT_EQ(top.at("b").to_number<double>(), -2.0);
}

}  // namespace
}  // namespace tern::serve
