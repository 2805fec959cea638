// Answers through tokenizers and the detokenizer, token by token.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "answer/answer_parser.h"
#include "content/text/detokenizer.h"
#include "content/text/tokenizer.h"
#include "json/json.h"

namespace tern::answer {
namespace {

std::string own(const std::string& name) { return std::string(TERN_SOURCE_DIR) + "/tests/data/" + name; }

// A real tokenizer's folder, which is not part of the repository; "" when it is not there.
std::string shared(const std::string& name) {
  const char* set = std::getenv("TERN_SHARED_DATA");
  const std::string root = set != nullptr ? set : std::string(TERN_SOURCE_DIR) + "/../shared";
  const std::string path = root + "/data/tokenizers/" + name;
  return std::filesystem::is_directory(path) ? path : std::string();
}

struct Joined {
  std::string reasoning, content, calls;  // calls: name(arguments) of each
  bool complete = false;
  int64_t tokens = 0;
};

Joined parse(const content::Tokenizer& tokenizer, const AnswerFormat& format, std::span<const int32_t> ids,
             AnswerOptions options, bool natural, bool skip_special) {
  options.random_hex = [] { return std::string(32, '0'); };
  AnswerParser parser(format, std::move(options));
  content::StreamDetokenizer detokenizer(tokenizer, skip_special);
  Events events;
  for (const int32_t id : ids) parser.push(id, detokenizer.push(id), events);
  parser.push_rest(detokenizer.finish(), events);
  parser.finish(natural, events);
  Joined out;
  for (const Event& event : events) {
    switch (event.kind) {
      case EventKind::kReasoning:
        out.reasoning += event.text;
        break;
      case EventKind::kContent:
        out.content += event.text;
        break;
      case EventKind::kCallBegun:
        out.calls += event.name + "(";
        break;
      case EventKind::kArguments:
        out.calls += event.text;
        break;
      case EventKind::kCallEnded:
        out.calls += ")";
        break;
      case EventKind::kFinish:
        out.complete = event.complete;
        break;
    }
  }
  out.tokens = parser.reasoning_tokens();
  return out;
}

// Every committed answer whose text the tokenizer can spell.
size_t check_answers(const content::Tokenizer& tokenizer) {
  size_t checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(own("answers"))) {
    const auto file = json::parse_file(entry.path().string());
    EXPECT_TRUE(file.ok());
    const json::Object& root = file->as_object();
    auto tools = std::make_shared<Tools>();
    for (const json::Value& tool : root.at("tools").as_array()) {
      const json::Value* schema = json::find(tool.as_object(), "parameters");
      tools->push_back({std::string(tool.as_object().at("name").as_string()), schema ? *schema : json::Value()});
    }
    const auto format = AnswerFormat::make("", std::string(root.at("format").as_string()), vocabulary_of(tokenizer));
    EXPECT_TRUE(format.ok());
    for (const json::Value& value : root.at("answers").as_array()) {
      const json::Object& answer = value.as_object();
      const std::string text(answer.at("text").as_string());
      const auto ids = tokenizer.encode(text, false);
      if (!ids.ok() || tokenizer.decode(*ids, false) != text) continue;
      std::string calls;
      for (const json::Value& call : answer.at("calls").as_array()) {
        calls += std::string(call.as_object().at("name").as_string()) + "(" +
                 std::string(call.as_object().at("arguments").as_string()) + ")";
      }
      for (const bool skip : {false, true}) {
        if (skip && tokenizer.decode(*ids, true) != text) continue;
        const Joined got = parse(tokenizer, *format, *ids, {.tools = tools, .parse_calls = true},
                                 answer.at("natural").as_bool(), skip);
        const std::string name = entry.path().filename().string() + ": " + std::string(answer.at("name").as_string());
        EXPECT_EQ(got.content, std::string(answer.at("content").as_string())) << name;
        EXPECT_EQ(got.calls, calls) << name;
        EXPECT_EQ(got.complete, answer.at("complete").as_bool()) << name;
        ++checked;
      }
    }
  }
  return checked;
}

TEST(TokenByToken, OwnTokenizers) {
  for (const char* name : {"byte_level", "byte_fallback", "tiktoken", "sentencepiece_ernie"}) {
    const auto tokenizer = content::Tokenizer::load(own(std::string("tokenizers/") + name));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    EXPECT_GT(check_answers(**tokenizer), 100u) << name;
  }
}

TEST(TokenByToken, RealTokenizers) {
  for (const char* name : {"qwen3", "llama-3", "mistral-v3"}) {
    const std::string path = shared(name);
    if (path.empty()) GTEST_SKIP() << "no shared test data (set TERN_SHARED_DATA to its folder)";
    const auto tokenizer = content::Tokenizer::load(path);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    EXPECT_GT(check_answers(**tokenizer), 400u) << name;
  }
}

// Qwen3 has the marks as tokens, Qwen2.5 spells them.
TEST(TokenByToken, ThoughtsOfQwen) {
  for (const char* name : {"qwen3", "qwen2.5"}) {
    const std::string path = shared(name);
    if (path.empty()) GTEST_SKIP() << "no shared test data (set TERN_SHARED_DATA to its folder)";
    const auto tokenizer = content::Tokenizer::load(path);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    const auto format = AnswerFormat::make("qwen3", "hermes", vocabulary_of(**tokenizer));
    ASSERT_TRUE(format.ok());
    const bool single = std::string(name) == "qwen3";
    EXPECT_EQ(format->reasoning()->end.has_value(), single);
    const auto ids = [&](std::string_view text) { return (*tokenizer)->encode(text, false).value(); };
    const std::string turn = "<|im_start|>user\n<think> or </think>?<|im_end|>\n<|im_start|>assistant\n";
    EXPECT_EQ(format->start(ids(turn)), ReasoningStart::kOpenable);
    EXPECT_EQ(format->start(ids(turn + "<think>\n")), ReasoningStart::kThinking);
    EXPECT_EQ(format->start(ids(turn + "<think>\n\n</think>\n\n")), ReasoningStart::kAnswer);
    const std::string thoughts = "\nThe user wants 3 < 4. 東京!\n";
    const auto answer = ids("<think>" + thoughts + "</think>\n\nYes.");
    const Joined got = parse(**tokenizer, *format, answer, {}, true, true);
    EXPECT_EQ(got.reasoning, thoughts);
    EXPECT_EQ(got.content, "\n\nYes.");
    if (single) {
      EXPECT_EQ(got.tokens, static_cast<int64_t>(ids(thoughts).size()));
    } else {
      EXPECT_NEAR(static_cast<double>(got.tokens), static_cast<double>(ids(thoughts).size()), 1);
    }
  }
}

}  // namespace
}  // namespace tern::answer
