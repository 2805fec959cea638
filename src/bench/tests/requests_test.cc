// Requests from files, and scores of answers.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "bench/eval/held_out.h"
#include "bench/requests/dataset.h"

namespace tern::bench {
namespace {

std::string written(const std::string& text) {
  const auto path = std::filesystem::temp_directory_path() / ("tern-bench-" + std::to_string(::getpid()));
  std::ofstream(path) << text;
  return path.string();
}

std::vector<Sample> read(const std::string& name, const std::string& text, int count) {
  auto samples = read_samples({.name = name, .path = written(text), .count = count});
  EXPECT_TRUE(samples.ok()) << samples.error().message;
  return samples.ok() ? std::move(*samples) : std::vector<Sample>();
}

TEST(Samples, OfEveryKindOfFile) {
  const auto chats = read("EBChat",
                          "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":7}\n\n"
                          "[{\"role\":\"user\",\"content\":\"b\"}]\n",
                          2);
  ASSERT_EQ(chats.size(), 2u);
  EXPECT_EQ(chats[0].output_len, 7);
  EXPECT_EQ(last_text(chats[0]) + last_text(chats[1]), "ab");
  const auto texts = read("EB", R"({"text":"x","max_dec_len":3,"temperature":0.5,"topp":0.25,"presence_score":1})", 1);
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_EQ(json::dump(texts[0].fields), R"({"temperature":5E-1,"presence_penalty":1E0,"top_p":2.5E-1})");
  const std::string talk = R"({"conversations":[{"from":"human","value":"ask"},{"from":"gpt","value":"answer"}]})";
  const auto share = read("sharegpt", "[" + talk + R"(,{"conversations":[]},)" + talk + "]", 5);
  ASSERT_EQ(share.size(), 5u);  // two, drawn again
  for (const Sample& sample : share) EXPECT_EQ(last_text(sample), "ask");
}

TEST(Samples, WrongLinesAreNamed) {
  for (const char* text : {"{", "{}", "[]", "7", "{\"messages\":{}}", "{\"messages\":[1],\"max_tokens\":\"x\"}"}) {
    const auto samples = read_samples({.name = "EBChat", .path = written(text), .count = 1});
    EXPECT_FALSE(samples.ok()) << text;
  }
  EXPECT_FALSE(read_samples({.name = "EB", .path = "/nowhere", .count = 1}).ok());
}

TEST(Samples, RandomOnesAreTheSameForOneSeed) {
  const RandomOptions options{
      .input_len = 20, .output_len = 10, .prefix_len = 4, .range_ratio = 0.5, .least_id = 5, .vocab = 50, .seed = 3};
  const Sample a = random_sample(options, 1), b = random_sample(options, 1), other = random_sample(options, 2);
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_NE(a.ids, other.ids);
  EXPECT_TRUE(std::equal(a.ids.begin(), a.ids.begin() + 4, other.ids.begin()));
  for (int i = 0; i < 50; ++i) {
    const Sample sample = random_sample(options, i);
    EXPECT_GE(sample.ids.size(), 14u);
    EXPECT_LE(sample.ids.size(), 34u);
    EXPECT_GE(sample.output_len, 5);
    EXPECT_LE(sample.output_len, 15);
    for (const int32_t id : sample.ids) EXPECT_TRUE(id >= 5 && id < 50);
  }
}

TEST(Scores, CountCharactersAndExactAnswers) {
  std::vector<Question> questions(4);
  for (int i : {0, 1})
    questions[static_cast<size_t>(i)].picture = true, questions[static_cast<size_t>(i)].group = "lines";
  questions[0].answer = "a b\n\xc3\xa9t\xc3\xa9", questions[1].answer = "kitten";
  for (int i : {2, 3}) questions[static_cast<size_t>(i)].group = "sort", questions[static_cast<size_t>(i)].answer = "x";
  const json::Object scores = score(questions, {" a  b \n\n\xc3\xa9t\xc3\xa9 ", "sitting", "x", "y"});
  const json::Object& lines = scores.at("pictures").at("lines").as_object();
  EXPECT_EQ(lines.at("characters").as_int64(), 7 + 6);
  EXPECT_EQ(lines.at("errors").as_int64(), 3);  // kitten, sitting
  EXPECT_EQ(lines.at("exact").as_double(), 0.5);
  EXPECT_EQ(scores.at("text").at("exact_match").as_double(), 0.5);
  EXPECT_NE(score_text(scores).find("text tasks: 50.00% exact"), std::string::npos);
  EXPECT_NE(score_text(scores).find("1 of 2"), std::string::npos);
}

}  // namespace
}  // namespace tern::bench
