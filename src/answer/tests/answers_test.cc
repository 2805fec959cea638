// tests/data/answers: answers of every tool-call format and what they mean, in any pieces.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "answer/answer_parser.h"
#include "answer/tests/fake_vocabulary.h"
#include "json/json.h"

namespace tern::answer {
namespace {

struct Call {
  std::string id, name, arguments;
  bool complete = false;
  bool operator==(const Call&) const = default;
};

struct Meaning {
  std::string content;
  std::vector<Call> calls;
  bool complete = false;
  bool operator==(const Meaning&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Meaning& meaning) {
  out << "content [" << meaning.content << "]";
  for (const Call& call : meaning.calls) {
    out << "\n  " << call.name << " [" << call.arguments << "] " << (call.complete ? "complete" : "cut") << ' '
        << call.id;
  }
  return out << "\n  " << (meaning.complete ? "complete" : "not complete");
}

// Joins events and checks their order: a call's events lie between its begin and its end, indices count from 0.
Meaning join(const Events& events) {
  Meaning out;
  bool open = false, finished = false;
  for (const Event& event : events) {
    EXPECT_FALSE(finished);
    switch (event.kind) {
      case EventKind::kReasoning:
        ADD_FAILURE() << "reasoning";
        break;
      case EventKind::kContent:
        EXPECT_FALSE(open);
        EXPECT_FALSE(event.text.empty());
        out.content += event.text;
        break;
      case EventKind::kCallBegun:
        EXPECT_FALSE(open);
        EXPECT_EQ(event.index, static_cast<int32_t>(out.calls.size()));
        out.calls.push_back({event.id, event.name, {}, false});
        open = true;
        break;
      case EventKind::kArguments:
        EXPECT_TRUE(open);
        EXPECT_FALSE(event.text.empty());
        EXPECT_EQ(event.index + 1, static_cast<int32_t>(out.calls.size()));
        out.calls.back().arguments += event.text;
        break;
      case EventKind::kCallEnded:
        EXPECT_TRUE(open);
        out.calls.back().complete = event.complete;
        open = false;
        break;
      case EventKind::kFinish:
        finished = true;
        out.complete = event.complete;
        break;
    }
  }
  EXPECT_TRUE(finished);
  EXPECT_FALSE(open);
  return out;
}

class Answers : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto file = json::parse_file(std::string(TERN_SOURCE_DIR) + "/tests/data/answers/" + GetParam());
    ASSERT_TRUE(file.ok()) << file.error().message;
    root_ = std::move(file).value().as_object();
    auto tools = std::make_shared<Tools>();
    for (const json::Value& tool : root_["tools"].as_array()) {
      const json::Value* schema = json::find(tool.as_object(), "parameters");
      tools->push_back(
          {std::string(tool.as_object().at("name").as_string()), schema != nullptr ? *schema : json::Value()});
    }
    tools_ = std::move(tools);
  }

  std::string format() const { return std::string(root_.at("format").as_string()); }

  AnswerOptions options() const {
    return {.tools = tools_, .parse_calls = true, .random_hex = [count = 0]() mutable {
              std::string digits = std::to_string(++count);
              return std::string(32 - digits.size(), '0').replace(0, digits.size(), digits);
            }};
  }

  Meaning expected(const json::Object& answer) const {
    Meaning out;
    out.content = answer.at("content").as_string();
    out.complete = answer.at("complete").as_bool();
    for (const json::Value& value : answer.at("calls").as_array()) {
      const json::Object& call = value.as_object();
      out.calls.push_back({{},
                           std::string(call.at("name").as_string()),
                           std::string(call.at("arguments").as_string()),
                           call.at("complete").as_bool()});
    }
    return out;
  }

  json::Object root_;
  std::shared_ptr<const Tools> tools_;
};

void forget_ids(Meaning& meaning) {
  for (Call& call : meaning.calls) call.id.clear();
}

// Where characters begin, and the end.
std::vector<size_t> borders(std::string_view text) {
  std::vector<size_t> out;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xc0) != 0x80) out.push_back(i);
  }
  out.push_back(text.size());
  return out;
}

// The last character is complete.
bool whole_characters(std::string_view text) {
  size_t tail = 0;
  while (tail < text.size() && (text[text.size() - 1 - tail] & 0xc0) == 0x80) ++tail;
  if (tail == text.size()) return text.empty();
  const auto lead = static_cast<unsigned char>(text[text.size() - 1 - tail]);
  return tail == (lead < 0xc0 ? 0u : lead < 0xe0 ? 1u : lead < 0xf0 ? 2u : 3u);
}

Meaning parse(const AnswerFormat& format, AnswerOptions options, const std::vector<std::string_view>& pieces,
              bool natural) {
  AnswerParser parser(format, std::move(options));
  Events events;
  for (const std::string_view piece : pieces) parser.push(-1, piece, events);
  parser.finish(natural, events);
  EXPECT_EQ(parser.held(), 0u);
  return join(events);
}

TEST_P(Answers, InAnyPieces) {
  const FakeVocabulary vocabulary({});
  const auto format = AnswerFormat::make("", this->format(), vocabulary.view());
  ASSERT_TRUE(format.ok());
  ASSERT_GE(root_["answers"].as_array().size(), 20u);
  for (const json::Value& value : root_["answers"].as_array()) {
    const json::Object& answer = value.as_object();
    const std::string_view text = answer.at("text").as_string();
    const bool natural = answer.at("natural").as_bool();
    SCOPED_TRACE(std::string(answer.at("name").as_string()));
    const Meaning whole = parse(*format, options(), {text}, natural);
    Meaning nameless = whole;
    forget_ids(nameless);
    EXPECT_EQ(nameless, expected(answer));
    const std::vector<size_t> cuts = borders(text);
    std::vector<std::string_view> single;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) single.push_back(text.substr(cuts[i], cuts[i + 1] - cuts[i]));
    EXPECT_EQ(parse(*format, options(), single, natural), whole) << "character by character";
    for (size_t i = 0; i < cuts.size(); ++i) {
      for (size_t j = i; j < cuts.size(); ++j) {
        const std::vector<std::string_view> pieces = {text.substr(0, cuts[i]), text.substr(cuts[i], cuts[j] - cuts[i]),
                                                      text.substr(cuts[j])};
        const Meaning cut = parse(*format, options(), pieces, natural);
        ASSERT_EQ(cut, whole) << "cut at " << cuts[i] << " and " << cuts[j];
      }
    }
  }
}

// Marks as single tokens, whose text the detokenizer leaves out or gives.
TEST_P(Answers, MarksAsTokens) {
  std::vector<std::string> marks;
  for (const std::string_view mark : find_tool_format(format())->marks) marks.emplace_back(mark);
  const FakeVocabulary vocabulary(marks, 0);
  const auto format = AnswerFormat::make("", this->format(), vocabulary.view());
  ASSERT_TRUE(format.ok());
  EXPECT_FALSE(format->call_tokens().empty());
  for (const json::Value& value : root_["answers"].as_array()) {
    const json::Object& answer = value.as_object();
    SCOPED_TRACE(std::string(answer.at("name").as_string()));
    for (const bool skip : {false, true}) {
      AnswerParser parser(*format, options());
      Events events;
      std::string pending;
      for (const int32_t id : vocabulary.encode(answer.at("text").as_string())) {
        pending += id < 256 || !skip ? vocabulary.bytes(id) : std::string_view();
        const bool whole = whole_characters(pending);
        parser.push(id, whole ? pending : std::string(), events);
        if (whole) pending.clear();
      }
      parser.finish(answer.at("natural").as_bool(), events);
      Meaning meaning = join(events);
      forget_ids(meaning);
      EXPECT_EQ(meaning, expected(answer));
    }
  }
}

TEST_P(Answers, NotParsed) {  // tool_choice "none"
  const FakeVocabulary vocabulary({});
  const auto format = AnswerFormat::make("", this->format(), vocabulary.view());
  ASSERT_TRUE(format.ok());
  for (const json::Value& value : root_["answers"].as_array()) {
    const std::string_view text = value.as_object().at("text").as_string();
    const Meaning meaning =
        parse(*format, {.tools = tools_}, {text.substr(0, text.size() / 2), text.substr(text.size() / 2)}, true);
    EXPECT_EQ(meaning, (Meaning{std::string(text), {}, false}));
  }
}

// parallel_tool_calls false: the first call and nothing after it.
TEST_P(Answers, OneCallOnly) {
  const FakeVocabulary vocabulary({});
  const auto format = AnswerFormat::make("", this->format(), vocabulary.view());
  ASSERT_TRUE(format.ok());
  for (const json::Value& value : root_["answers"].as_array()) {
    const json::Object& answer = value.as_object();
    AnswerOptions one = options();
    one.parallel_calls = false;
    AnswerParser parser(*format, std::move(one));
    Events events;
    parser.push(-1, answer.at("text").as_string(), events);
    const bool over = parser.wants_end();
    parser.push(-1, "more", events);
    parser.finish(true, events);
    const Meaning meaning = join(events);
    const Meaning all = expected(answer);
    ASSERT_EQ(meaning.calls.size(), std::min<size_t>(1, all.calls.size()));
    if (!over) continue;
    EXPECT_EQ(meaning.calls[0].arguments, all.calls[0].arguments);
    EXPECT_EQ(meaning.complete, all.calls[0].complete);
  }
}

std::vector<std::string> files() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(TERN_SOURCE_DIR) + "/tests/data/answers")) {
    out.push_back(entry.path().filename().string());
  }
  std::ranges::sort(out);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Formats, Answers, testing::ValuesIn(files()), [](const auto& test) {
  std::string name = test.param.substr(0, test.param.find('.'));
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(AnswerFormats, EveryFormatHasAnswers) {
  const std::vector<std::string> all = files();
  for (const NamedToolFormat& named : tool_formats()) {
    EXPECT_TRUE(std::ranges::count(all, std::string(named.format->name) + ".json") == 1) << named.name;
  }
}

TEST(AnswerFormats, IdsOfCalls) {
  const FakeVocabulary vocabulary({});
  for (const auto& [name, text, id] :
       {std::tuple("hermes", "<tool_call>{\"name\": \"f\"", "chatcmpl-tool-0123456789abcdef0123456789abcdef"),
        std::tuple("mistral", "[TOOL_CALLS]f{", "012345678")}) {
    const auto format = AnswerFormat::make("", name, vocabulary.view());
    AnswerParser parser(*format,
                        {.parse_calls = true, .random_hex = [] { return "0123456789abcdef0123456789abcdef"; }});
    Events events;
    parser.push(-1, text, events);
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events[0].id, id);
  }
}

TEST(AnswerFormats, UnknownNamesListTheKnown) {
  const FakeVocabulary vocabulary({});
  const auto tools = AnswerFormat::make("", "hermez", vocabulary.view());
  ASSERT_FALSE(tools.ok());
  EXPECT_EQ(tools.error().code, ErrorCode::kInvalidArgument);
  for (const NamedToolFormat& named : tool_formats()) {
    EXPECT_NE(tools.error().message.find(named.name), std::string::npos) << tools.error().message;
  }
  const auto reasoning = AnswerFormat::make("qwen", "", vocabulary.view());
  ASSERT_FALSE(reasoning.ok());
  for (const ReasoningFormat& known : reasoning_formats()) {
    EXPECT_NE(reasoning.error().message.find(known.name), std::string::npos) << reasoning.error().message;
  }
}

// What is held back stays bounded however long a call, a name or white space grows.
TEST(AnswerFormats, HeldIsBounded) {
  const FakeVocabulary vocabulary({});
  for (const NamedToolFormat& named : tool_formats()) {
    const auto format = AnswerFormat::make("", named.name, vocabulary.view());
    for (std::string head : {"", "<tool_call>\n{\"name\": \"", "<tool_call>{\"arguments\": {\"a\": \"", "{\"a\": \"",
                             "[TOOL_CALLS]", "[TOOL_CALLS][{\"a\": \"", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
                             "<tool_call>f\n<arg_key>", "<tool_call>f\n<arg_key>a</arg_key><arg_value>[\"",
                             "<function=", "<function=f><parameter=", "<function=f><parameter=a>", "<tool_call>"}) {
      for (const char c : {'x', ' ', '\n', '['}) {
        AnswerParser parser(*format, {.parse_calls = true, .random_hex = [] { return std::string(32, '0'); }});
        Events events;
        std::string text = head + std::string(100'000, c);
        size_t most = 0;
        for (size_t i = 0; i < text.size(); i += 100) {
          parser.push(-1, std::string_view(text).substr(i, 100), events);
          most = std::max(most, parser.held());
        }
        EXPECT_LE(most, 32u << 10) << named.name << ' ' << head << c;
        parser.finish(false, events);
      }
    }
  }
}

}  // namespace
}  // namespace tern::answer
