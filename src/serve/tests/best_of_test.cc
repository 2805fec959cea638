// What completions for evaluation and editors ask of the engine: best_of, and gaps that an answer fills.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "serve/prepare/fill_middle.h"
#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

engine::Delta said(const engine::Request& request, const std::vector<std::pair<int32_t, float>>& tokens) {
  engine::Delta delta;
  delta.id = request.id;
  for (const auto& [id, logprob] : tokens) delta.tokens.push_back({id, {{id, logprob, 1}}});
  delta.finish = engine::FinishReason::kLength;
  return delta;
}

TEST(BestOf, TheMeanDecides) {
  RecordingEngine engine;
  engine.ends_aborted = true;
  auto server = *Server::start(test_config(), engine, {});
  Client client(server->port());
  const std::string_view body = R"({"prompt":[5,6],"max_tokens":2,"n":2,"best_of":3,"return_token_ids":true})";
  client.send(
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  for (size_t i = 0; i < 3; ++i) {
    const auto request = engine.wait_request(i);
    EXPECT_EQ(request.sampling.logprobs, 0) << "what the choice needs";
    if (i == 0) engine.say(said(request, {{71, -1.0f}, {72, -1.0f}}));  // the lowest sum
    if (i == 1) engine.say(said(request, {{73, -1.5f}}));               // the highest sum, the lowest mean
    if (i == 2) engine.say(said(request, {{74, -0.5f}, {75, -1.2f}}));
  }
  const Reply reply = client.receive();
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json::Value answer = reply.json();
  const auto& choices = answer.at("choices").get_array();
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(json::dump(choices[0].at("completion_token_ids")), "[74,75]");
  EXPECT_EQ(json::dump(choices[1].at("completion_token_ids")), "[71,72]");
  EXPECT_EQ(choices[0].at("index").to_number<int>(), 0);
  EXPECT_EQ(choices[1].at("index").to_number<int>(), 1);
  EXPECT_TRUE(choices[0].at("logprobs").is_null()) << "nobody asked for them";
  EXPECT_EQ(answer.at("usage").at("completion_tokens").to_number<int>(), 5) << "all samples count";
  server->stop(0);
}

// The tokenizer of the protocol tests with marks of gaps among its added tokens.
std::unique_ptr<content::Tokenizer> tokenizer_with(std::initializer_list<const char*> marks) {
  std::string dir = (std::filesystem::temp_directory_path() / "tern-marks-XXXXXX").string();
  EXPECT_NE(mkdtemp(dir.data()), nullptr);
  json::Value file = *json::parse_file(std::string(TERN_SOURCE_DIR) + "/tests/protocol/tokenizer/tokenizer.json");
  int id = 906;
  for (const char* mark : marks) {
    file.at("added_tokens")
        .get_array()
        .push_back(json::Object{{"id", id++},
                                {"content", mark},
                                {"single_word", false},
                                {"lstrip", false},
                                {"rstrip", false},
                                {"normalized", false},
                                {"special", true}});
  }
  std::ofstream(dir + "/tokenizer.json") << json::dump(file);
  auto tokenizer = content::Tokenizer::load(dir);
  std::filesystem::remove_all(dir);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return *std::move(tokenizer);
}

TEST(FillMiddle, TheMarksOfTheVocabulary) {
  const auto qwen = tokenizer_with({"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"});
  EXPECT_EQ(*prepare::around_gap(*qwen, "a", "b"), "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>");
  const auto deepseek = tokenizer_with({"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"});
  EXPECT_EQ(*prepare::around_gap(*deepseek, "a", "b"), "<｜fim▁begin｜>a<｜fim▁hole｜>b<｜fim▁end｜>");
  const auto half = tokenizer_with({"<|fim_prefix|>", "<|fim_suffix|>"});
  EXPECT_FALSE(prepare::around_gap(*half, "a", "b").ok());
}

TEST(FillMiddle, ThePromptOfARequest) {
  const auto tokenizer = tokenizer_with({"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"});
  RecordingEngine engine;
  engine.ends_aborted = true;
  ServeConfig config = test_config();
  config.vocab_size = tokenizer->vocab_size();
  Content content;
  content.tokenizer = tokenizer.get();
  auto server = *Server::start(config, engine, content);
  Client client(server->port());
  const std::string_view body = R"({"prompt":"hi","suffix":"there","add_special_tokens":false})";
  client.send(
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  const auto request = engine.wait_request(0);
  EXPECT_EQ(request.prompt.front(), 906);
  EXPECT_EQ(request.prompt.back(), 907);
  EXPECT_EQ(tokenizer->decode(request.prompt, true), "hithere");
  engine.say(request, {71}, engine::FinishReason::kLength);
  EXPECT_EQ(client.receive().status, 200);
  server->stop(0);
}

}  // namespace
}  // namespace tern::serve::testing
