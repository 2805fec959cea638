// Thoughts: where an answer begins, what is thought, how many tokens that is.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "answer/answer_parser.h"
#include "answer/tests/fake_vocabulary.h"

namespace tern::answer {
namespace {

struct Case {
  std::string parser, prompt, answer, reasoning, content;
  int64_t tokens = 0;  // characters of the thoughts, every one of which is a token here
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      // The prompt opens thoughts, closes them, or says nothing.
      {"ernie-45-vl", "Q\nAssistant: <think>", "Hm.</think>\n\nYes", "Hm.", "\n\nYes", 3},
      {"ernie-45-vl", "Q\nAssistant: <think>\n\n</think>\n\n", "Yes</think>", "", "Yes</think>", 0},
      {"ernie-45-vl", "Q\nAssistant: ", "Yes", "", "Yes", 0},
      {"ernie-45-vl", "Q\nAssistant: <think>", "never ends", "never ends", "", 10},
      {"ernie-45-vl-thinking", "\nAssistant: \n<think>\n", "Hm.\n</think>\n\nYes\n", "Hm.\n", "Yes\n", 4},
      {"ernie-45-vl-thinking", "\nAssistant: ", "Hm.</think>Yes", "Hm.", "Yes", 3},
      {"ernie-test", "<think>", "a</think>\nb", "a", "b", 1},
      {"ernie-x1", "<|im_start|>assistant\n<think>\n", "Hm.\n</think>\n\n<response>\nYes\n</response>\n", "Hm.\n",
       "\nYes\n", 4},
      {"ernie-x1", "<|im_start|>assistant\n<think>\n", "Hm.</think>no tag", "Hm.", "", 3},
      {"ernie-x1", "<|im_start|>assistant\n<think>\n", "Hm.</think>\n<response>Yes", "Hm.", "Yes", 3},
      {"ernie-x1", "<|im_start|>assistant\n<think>\n\n</think>\n\n<response>\n", "Yes</response> x", "", "Yes", 0},
      {"ernie-x1", "<|im_start|>assistant\n<think>\n\n</think>", "<response>Yes</respons", "", "Yes</respons", 0},
      {"ernie-x1", "", "all is thought", "all is thought", "", 14},
      {"ernie_x1", "<think>", "a</think>\n\n\n<tool_call>x", "a", "<tool_call>x", 1},
      {"qwen3", "<|im_start|>assistant\n", "<think>\nHm.\n</think>\n\nYes", "\nHm.\n", "\n\nYes", 5},
      {"qwen3", "<|im_start|>assistant\n", "Yes <think>no</think>", "", "Yes <think>no</think>", 0},
      {"qwen3", "<|im_start|>assistant\n", "\n <think>a</think>b", "a", "b", 1},
      {"qwen3", "<|im_start|>assistant\n", " \n", "", " \n", 0},
      {"qwen3", "<|im_start|>assistant\n<think>\n\n</think>\n\n", "Yes", "", "Yes", 0},
      {"qwen3", "<|im_start|>assistant\n<think>\n", "Hm.</think>Yes</think>", "Hm.", "Yes</think>", 3},
      // A mark of an earlier turn or of the user's says nothing.
      {"qwen3", "<|im_start|>user\n<think><|im_end|>\n<|im_start|>assistant\n", "Yes", "", "Yes", 0},
      {"qwen3", "<think>a<|im_end|><|im_start|>assistant\n", "Yes", "", "Yes", 0},
      // The client has begun the answer's thoughts.
      {"qwen3", "<|im_start|>assistant\n<think>\nLet me", " see</think>Yes", " see", "Yes", 4},
      {"qwen2_5_vl", "<|im_start|>assistant\n", "<think>a<b</think>c", "a<b", "c", 3},
      {"deepseek", "<think>", "a</think>\n\nb", "a", "b", 1},
      {"deepseek", "</think>", "b", "", "b", 0},
      {"deepseek", "", "b", "", "b", 0},
      {"deepseek_r1", "<think>\n", "a</think>\n\nb", "a", "\n\nb", 1},
      {"deepseek_r1", "", "a", "a", "", 1},
      {"deepseek_r1", "", "<think>\na</think>b", "\na", "b", 2},  // the mark once more
      {"deepseek_r1", "", "\n<think>a</think>b", "a", "b", 1},
      {"deepseek_r1", "<think>", "a <think> b</think>c", "a <think> b", "c", -1},
      {"deepseek_r1", "<think>", "</think>c", "", "c", 0},
      {"deepseek_r1", "<think>", "\n\n</think>c", "\n\n", "c", 2},
      {"deepseek_r1", "<think>", "a </thin</think>c", "a </thin", "c", 8},
      {"deepseek_r1", "<think>", "a </thin", "a </thin", "", 8},
      {"deepseek_r1", "<think>", "", "", "", 0},
      {"glm45", "<|assistant|>\n<think></think>", "Yes", "", "Yes", 0},
      {"glm45", "<|assistant|>", "\n<think>a</think>\nYes", "a", "\nYes", 1},
  };
  return all;
}

struct Parts {
  std::string reasoning, content;
  int64_t tokens = 0;
};

Parts parts(const AnswerParser& parser, const Events& events) {
  Parts out;
  for (const Event& event : events) {
    if (event.kind == EventKind::kReasoning) out.reasoning += event.text;
    if (event.kind == EventKind::kContent) out.content += event.text;
  }
  out.tokens = parser.reasoning_tokens();
  return out;
}

const std::vector<std::string> kMarks = {"<think>",      "</think>",     "<response>", "</response>",  "<tool_call>",
                                         "</tool_call>", "<|im_start|>", "<|im_end|>", "<|assistant|>"};
const std::vector<std::string> kControl = {"<|im_start|>", "<|im_end|>", "<|assistant|>"};

void check(const Case& test, const FakeVocabulary& vocabulary, bool skip) {
  const auto format = AnswerFormat::make(test.parser, "", vocabulary.view());
  ASSERT_TRUE(format.ok());
  AnswerParser parser(*format, {.start = format->start(vocabulary.encode(test.prompt))});
  Events events;
  for (const int32_t id : vocabulary.encode(test.answer)) {
    parser.push(id, id >= 256 && skip ? std::string_view() : vocabulary.bytes(id), events);
  }
  parser.finish(true, events);
  const Parts got = parts(parser, events);
  EXPECT_EQ(got.reasoning, test.reasoning);
  EXPECT_EQ(got.content, test.content);
  if (test.tokens >= 0) {
    EXPECT_EQ(got.tokens, test.tokens);
  }
  EXPECT_EQ(parser.held(), 0u);
}

TEST(Reasoning, MarksOfOneToken) {
  const FakeVocabulary vocabulary(kMarks, 6);
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.parser + " [" + test.prompt + "] [" + test.answer + "]");
    check(test, vocabulary, false);
  }
}

TEST(Reasoning, MarksOfSeveralTokens) {
  const FakeVocabulary vocabulary(kControl, 0);
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.parser + " [" + test.prompt + "] [" + test.answer + "]");
    check(test, vocabulary, false);
  }
}

TEST(Reasoning, OneMarkOfOneToken) {
  for (const char* mark : {"<think>", "</think>"}) {
    std::vector<std::string> marks = {mark};
    marks.insert(marks.end(), kControl.begin(), kControl.end());
    const FakeVocabulary vocabulary(marks, 1);
    for (const Case& test : cases()) {
      SCOPED_TRACE(test.parser + " [" + test.prompt + "] [" + test.answer + "]");
      check(test, vocabulary, false);
    }
  }
}

// The detokenizer leaves special tokens out; a mark in the answer then has no text.
TEST(Reasoning, MarksWithoutText) {
  const FakeVocabulary vocabulary(kMarks, 0);
  for (const Case& test : cases()) {
    if (test.content.find('<') != std::string::npos || test.reasoning.find('<') != std::string::npos) continue;
    SCOPED_TRACE(test.parser + " [" + test.prompt + "] [" + test.answer + "]");
    check(test, vocabulary, true);
  }
}

// Tokens longer than a character: every way of cutting the answer into three of them.
TEST(Reasoning, TokensOfAnySize) {
  const FakeVocabulary vocabulary(kControl, 0);
  for (const Case& test : cases()) {
    const auto format = AnswerFormat::make(test.parser, "", vocabulary.view());
    ASSERT_TRUE(format.ok());
    const ReasoningStart start = format->start(vocabulary.encode(test.prompt));
    const std::string_view text = test.answer;
    for (size_t i = 0; i <= text.size(); ++i) {
      for (size_t j = i; j <= text.size(); ++j) {
        AnswerParser parser(*format, {.start = start});
        Events events;
        for (const auto piece : {text.substr(0, i), text.substr(i, j - i), text.substr(j)}) {
          if (!piece.empty()) parser.push(-1, piece, events);
        }
        parser.finish(true, events);
        const Parts got = parts(parser, events);
        ASSERT_EQ(got.reasoning, test.reasoning) << test.parser << ' ' << test.answer << ' ' << i << ' ' << j;
        ASSERT_EQ(got.content, test.content) << test.parser << ' ' << test.answer << ' ' << i << ' ' << j;
        ASSERT_LE(got.tokens, 3);
        ASSERT_EQ(got.tokens > 0, !test.reasoning.empty()) << test.parser << ' ' << test.answer << ' ' << i << ' ' << j;
      }
    }
  }
}

TEST(Reasoning, TokensThatShareAMark) {
  const FakeVocabulary vocabulary({});
  const auto format = AnswerFormat::make("deepseek_r1", "", vocabulary.view());
  ASSERT_TRUE(format.ok());
  const auto count = [&](const std::vector<std::string>& tokens) {
    AnswerParser parser(*format, {.start = ReasoningStart::kThinking});
    Events events;
    for (const std::string& token : tokens) parser.push(-1, token, events);
    parser.finish(true, events);
    return parser.reasoning_tokens();
  };
  EXPECT_EQ(count({"one", " two", "</", "think", ">\n\n", "x"}), 2);
  EXPECT_EQ(count({"one", " two.</", "think", ">", "x"}), 2);
  EXPECT_EQ(count({"one", "</", "thing", ">", "</think>"}), 4);
  EXPECT_EQ(count({"one", "", "é", "</", "think>"}), 3);  // the first byte of é is a token of its own
  EXPECT_EQ(count({"\n", "\n", "<", "/think>"}), 2);
  EXPECT_EQ(count({"\n<", "/think>"}), 1);
  EXPECT_EQ(count({"<th", "ink>", "a", "b", "</think>"}), 2);
  EXPECT_EQ(count({"a", "</", "th"}), 3);
}

// Thoughts, then calls: only the answer is searched.
TEST(Reasoning, ThenCalls) {
  const FakeVocabulary vocabulary(kMarks, 6);
  for (const auto& [reasoning, tools, answer] :
       {std::tuple("qwen3", "hermes",
                   "a<tool_call></think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"),
        std::tuple("ernie-x1", "ernie-x1",
                   "a<tool_call></think>\n\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n"),
        std::tuple("ernie-45-vl-thinking", "ernie-45-vl-thinking",
                   "a<tool_call></think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n")}) {
    const auto format = AnswerFormat::make(reasoning, tools, vocabulary.view());
    ASSERT_TRUE(format.ok());
    AnswerParser parser(*format, {.start = format->start(vocabulary.encode("<|im_start|>assistant\n<think>")),
                                  .parse_calls = true,
                                  .random_hex = [] { return std::string(32, '0'); }});
    Events events;
    for (const int32_t id : vocabulary.encode(answer)) parser.push(id, vocabulary.bytes(id), events);
    parser.finish(true, events);
    std::string kinds;
    for (const Event& event : events) kinds += "RCBAEF"[static_cast<int>(event.kind)];
    EXPECT_EQ(kinds, std::string(tools) == "hermes" ? "RCBAEF" : "RBAEF") << tools;
    EXPECT_EQ(events.front().text, "a<tool_call>");
    EXPECT_TRUE(events.back().complete);
    EXPECT_EQ(parser.reasoning_tokens(), 2);
  }
}

// The prompt has begun a call.
TEST(Reasoning, PromptInACall) {
  const FakeVocabulary vocabulary(kMarks, 6);
  const auto format = AnswerFormat::make("ernie-x1", "ernie-x1", vocabulary.view());
  ASSERT_TRUE(format.ok());
  const ReasoningStart start = format->start(vocabulary.encode("<think></think>\n<tool_call>\n"));
  EXPECT_EQ(start, ReasoningStart::kCall);
  AnswerParser parser(*format,
                      {.start = start, .parse_calls = true, .random_hex = [] { return std::string(32, '0'); }});
  Events events;
  parser.push(-1, "{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", events);
  parser.finish(true, events);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].name, "f");
  EXPECT_EQ(events[1].text, "{\"a\": 1}");
}

}  // namespace
}  // namespace tern::answer
