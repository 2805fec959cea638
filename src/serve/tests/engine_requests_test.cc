// What the engine is asked, and what its unusual answers become.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

using engine::FinishReason;

struct Rig {
  explicit Rig(ServeConfig config = test_config(), bool with_text = true) {
    Content content;
    if (with_text) {
      const auto& parts = text_parts();
      content = {parts.tokenizer.get(), parts.chat_template.get(), parts.tool_template.get()};
    }
    server = *Server::start(config, engine, content);
  }
  ~Rig() {
    engine.ends_aborted = true;
    server->stop(0);
  }
  // Sends a request; its reply is read later.
  std::unique_ptr<Client> ask(std::string_view path, std::string_view body) const {
    auto c = std::make_unique<Client>(server->port());
    c->send(fmt::format("POST {} HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{}", path, body.size(), body));
    return c;
  }
  RecordingEngine engine;
  std::unique_ptr<Server> server;
};

std::vector<int32_t> ids_of(std::string_view text) { return *text_parts().tokenizer->encode(text, false); }

TEST(EngineRequest, DefaultsOfTheProtocol) {
  Rig rig;
  auto c = rig.ask("/v1/completions", R"({"prompt":[5,6,7]})");
  const auto r = rig.engine.wait_request(0);
  EXPECT_EQ(r.prompt, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(r.max_tokens, 512 - 3);
  EXPECT_FALSE(r.ignore_eos);
  EXPECT_EQ(r.sampling.temperature, 1.0f);
  EXPECT_EQ(r.sampling.top_p, 0.7f);
  EXPECT_EQ(r.sampling.top_k, 0);
  EXPECT_EQ(r.sampling.min_p, 0.0f);
  EXPECT_EQ(r.sampling.repetition_penalty, 1.0f);
  EXPECT_EQ(r.sampling.min_tokens, 1);
  EXPECT_EQ(r.sampling.logprobs, -1);
  EXPECT_EQ(r.sampling.prompt_logprobs, -1);
  EXPECT_TRUE(r.extra_keys.empty());
  EXPECT_GT(r.arrival_ns, 0);
  auto d = rig.ask("/v1/completions", R"({"prompt":[5,6,7]})");
  EXPECT_NE(rig.engine.wait_request(1).sampling.seed, r.sampling.seed) << "seeds nobody gave differ";
}

TEST(EngineRequest, EveryFieldArrives) {
  ServeConfig config = test_config();
  config.enable_logprob = config.logit_bias_processor = true;
  Rig rig(config);
  const auto& tokenizer = *text_parts().tokenizer;
  auto c = rig.ask(
      "/v1/chat/completions",
      R"({"messages":[5,6,7],"max_tokens":50,"temperature":0.5,"top_p":0.25,"top_k":40,"min_p":0.125,"seed":7,"n":3,
"repetition_penalty":1.5,"frequency_penalty":-2,"presence_penalty":2,"min_tokens":4,"ignore_eos":true,"stop":["there","\n"],
"stop_token_ids":[8,9],"bad_words":["h","there there"],"bad_words_token_ids":[77],"logprobs":true,"top_logprobs":5,
"prompt_logprobs":2,"temp_scaled_logprobs":true,"top_p_normalized_logprobs":true,
"logits_processors_args":{"logit_bias":{"12":-3.5,"13":100}},"request_id":"r"})");
  for (size_t i = 0; i < 3; ++i) {
    const auto r = rig.engine.wait_request(i);
    EXPECT_EQ(r.external_id, fmt::format("chatcmpl-r_{}", i));
    EXPECT_EQ(r.max_tokens, 50);
    EXPECT_TRUE(r.ignore_eos);
    const auto& s = r.sampling;
    EXPECT_EQ(s.seed, 7 + i) << "sample i draws from seed + i";
    EXPECT_EQ(s.temperature, 0.5f);
    EXPECT_EQ(s.top_p, 0.25f);
    EXPECT_EQ(s.top_k, 40);
    EXPECT_EQ(s.min_p, 0.125f);
    EXPECT_EQ(s.repetition_penalty, 1.5f);
    EXPECT_EQ(s.frequency_penalty, -2.0f);
    EXPECT_EQ(s.presence_penalty, 2.0f);
    EXPECT_EQ(s.min_tokens, 4);
    EXPECT_EQ(s.logprobs, 5);
    EXPECT_EQ(s.prompt_logprobs, 2);
    EXPECT_TRUE(s.temp_scaled_logprobs && s.top_p_normalized_logprobs);
    EXPECT_EQ(s.logit_bias, (std::vector<std::pair<int32_t, float>>{{12, -3.5f}, {13, 100.0f}}));
    EXPECT_EQ(r.stop_token_ids, (std::vector<int32_t>{8, 9}));
    EXPECT_EQ(r.stop_sequences, (std::vector<std::vector<int32_t>>{ids_of("there"), ids_of("\n")}));
    EXPECT_EQ(s.bad_words[0], 77);
    EXPECT_NE(std::find(s.bad_words.begin(), s.bad_words.end(), *tokenizer.token_to_id("h")), s.bad_words.end());
    EXPECT_LE(s.bad_words.size(), 3u) << "a word of several tokens is skipped";
  }
}

TEST(EngineRequest, EdgesOfTheParameters) {
  Rig rig;
  const struct {
    const char* body;
    bool (*good)(const engine::Request&);
  } cases[] = {
      {R"({"prompt":[5],"temperature":0})", [](const engine::Request& r) { return r.sampling.greedy(); }},
      {R"({"prompt":[5],"temperature":0.000001})", [](const engine::Request& r) { return r.sampling.greedy(); }},
      {R"({"prompt":[5],"top_p":0})",
       [](const engine::Request& r) { return r.sampling.top_p == 1e-5f && r.sampling.top_k == 1; }},
      {R"({"prompt":[5],"top_k":-1})", [](const engine::Request& r) { return r.sampling.top_k == 0; }},
      {R"({"prompt":[5],"top_k":2000000000})", [](const engine::Request& r) { return r.sampling.top_k == 906; }},
      {R"({"prompt":[5],"max_tokens":9223372036854775807})",
       [](const engine::Request& r) { return r.max_tokens == 511; }},
      {R"({"prompt":[5],"max_tokens":5.0})", [](const engine::Request& r) { return r.max_tokens == 5; }},
      {R"({"prompt":[5],"seed":922337203685477580})",
       [](const engine::Request& r) { return r.sampling.seed == 922337203685477580u; }},
      {R"({"prompt":[5],"stop":["",""]})", [](const engine::Request& r) { return r.stop_sequences.empty(); }},
      {R"({"prompt":[5],"min_tokens":0})", [](const engine::Request& r) { return r.sampling.min_tokens == 0; }},
      {R"({"prompt":[5],"temperature":null,"top_p":null,"stop":null,"n":null})",
       [](const engine::Request& r) { return r.sampling.top_p == 0.7f; }},
  };
  size_t number = 0;
  std::vector<std::unique_ptr<Client>> open;
  for (const auto& c : cases) {
    open.push_back(rig.ask("/v1/completions", c.body));
    EXPECT_TRUE(c.good(rig.engine.wait_request(number++))) << c.body;
  }
}

TEST(EngineRequest, GenerationConfigOfTheModel) {
  ServeConfig config = test_config();
  config.defaults = {.temperature = 0.8,
                     .top_p = 0.9,
                     .repetition_penalty = 1.25,
                     .presence_penalty = 0.5,
                     .frequency_penalty = 0.25,
                     .top_k = 20};
  Rig rig(config);
  auto a = rig.ask("/v1/completions", R"({"prompt":[5]})");
  const auto s = rig.engine.wait_request(0).sampling;
  EXPECT_EQ(s.temperature, 0.8f);
  EXPECT_EQ(s.top_p, 0.9f);
  EXPECT_EQ(s.repetition_penalty, 1.25f);
  EXPECT_EQ(s.presence_penalty, 0.5f);
  EXPECT_EQ(s.frequency_penalty, 0.25f);
  EXPECT_EQ(s.top_k, 20);
  auto b = rig.ask("/v1/completions", R"({"prompt":[5],"temperature":0.1,"top_p":1,"top_k":0})");
  const auto t = rig.engine.wait_request(1).sampling;
  EXPECT_EQ(t.temperature, 0.1f);
  EXPECT_EQ(t.top_p, 1.0f);
  EXPECT_EQ(t.top_k, 0);
}

TEST(EngineRequest, ThinkingAndTools) {
  Rig rig;
  auto a = rig.ask(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"hi"}],"enable_thinking":false,"response_max_tokens":9,"max_tokens":20})");
  EXPECT_EQ(rig.engine.wait_request(0).max_tokens, 9);
  auto b =
      rig.ask("/v1/chat/completions",
              R"({"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f"}}]})");
  const auto prompt = text_parts().tokenizer->decode(rig.engine.wait_request(1).prompt, false);
  EXPECT_TRUE(prompt.starts_with("TOOLS [")) << prompt;
  auto c =
      rig.ask("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":false})");
  EXPECT_EQ(text_parts().tokenizer->decode(rig.engine.wait_request(2).prompt, false), "<|user|>hi<|end|>\n");
}

TEST(EngineAnswer, SeveralTokensPerStep) {
  Rig rig;
  auto c = rig.ask("/v1/completions", R"({"prompt":[5],"stream":true})");
  const auto r = rig.engine.wait_request(0);
  const auto ids = ids_of("hi there");
  rig.engine.say(r, {ids[0], ids[1], ids[2]});
  rig.engine.say(r, {});
  rig.engine.say(r, {ids[3], ids[4], 903}, FinishReason::kStop, 903);
  const auto events = c->receive().events();
  ASSERT_EQ(events.size(), 7u) << "one chunk per token";
  EXPECT_NE(events[2].find("\"text\":\" t\""), std::string::npos);
  EXPECT_NE(events[5].find("\"text\":\"\""), std::string::npos);
  EXPECT_NE(events[5].find("\"finish_reason\":\"stop\""), std::string::npos);
}

TEST(EngineAnswer, TextAfterAStopStringInOneStepIsNeitherSentNorCounted) {
  Rig rig;
  auto c = rig.ask("/v1/completions", R"({"prompt":[5],"stop":"i t"})");
  const auto r = rig.engine.wait_request(0);
  rig.engine.say(r, ids_of("hi there hi there"));
  const auto answer = c->receive().json().as_object();
  EXPECT_EQ(answer.at("choices").at(0).at("text").as_string(), "h");
  EXPECT_EQ(answer.at("usage").at("completion_tokens").as_int64(), 3);
  EXPECT_TRUE(rig.engine.wait_abort(r.id)) << "the row is stopped";
  rig.engine.say(r, {5, 6}, FinishReason::kAbort);  // late news of a stopped row
  EXPECT_EQ(Client(rig.server->port()).get("/health").status, 200);
}

TEST(EngineAnswer, FinishReasons) {
  Rig rig;
  const std::pair<FinishReason, const char*> cases[] = {
      {FinishReason::kStop, "stop"}, {FinishReason::kLength, "length"}, {FinishReason::kAbort, "abort"}};
  size_t number = 0;
  for (const auto& [reason, name] : cases) {
    for (const bool tokens : {true, false}) {
      auto c = rig.ask("/v1/completions", R"({"prompt":[5],"stream":true})");
      const auto r = rig.engine.wait_request(number++);
      rig.engine.say(r, {ids_of("h")[0]});
      rig.engine.say(r, tokens ? ids_of("i") : std::vector<int32_t>{}, reason);
      const auto events = c->receive().events();
      ASSERT_EQ(events.size(), 3u);
      EXPECT_NE(events[1].find(fmt::format("\"finish_reason\":\"{}\"", name)), std::string::npos) << events[1];
      EXPECT_NE(events[1].find(tokens ? "\"text\":\"i\"" : "\"text\":\"\""), std::string::npos);
    }
  }
}

TEST(EngineAnswer, AHalfCharacterAtTheEndShows) {
  Rig rig;
  auto c = rig.ask("/v1/completions", R"({"prompt":[5]})");
  const auto r = rig.engine.wait_request(0);
  const auto half = text_parts().tokenizer->token_to_id("\xc3\xa4");  // how the vocabulary spells the byte 0xe4
  ASSERT_TRUE(half.has_value());
  rig.engine.say(r, {*half}, FinishReason::kLength);
  EXPECT_EQ(c->receive().json().as_object().at("choices").at(0).at("text").as_string(), "\xef\xbf\xbd");
}

TEST(EngineAnswer, ErrorsBeforeAndInsideAStream) {
  Rig rig;
  engine::Delta failed;
  failed.finish = FinishReason::kError;
  failed.error = make_error(ErrorCode::kInternal, "a kernel failed");
  auto whole = rig.ask("/v1/completions", R"({"prompt":[[5],[6]]})");
  const auto first = rig.engine.wait_request(0), second = rig.engine.wait_request(1);
  failed.id = first.id;
  rig.engine.say(failed);
  const auto reply = whole->receive();
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(reply.json().as_object().at("error").at("message").as_string(), "a kernel failed");
  EXPECT_TRUE(rig.engine.wait_abort(second.id)) << "its other samples are stopped";
  EXPECT_EQ(whole->get("/health").status, 200) << "the connection goes on";

  auto stream = rig.ask("/v1/chat/completions", R"({"messages":[5],"stream":true,"request_id":"x"})");
  const auto third = rig.engine.wait_request(2);
  rig.engine.say(third, {ids_of("h")[0]});
  failed.id = third.id;
  rig.engine.say(failed);
  const auto events = stream->receive().events();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(
      events[2],
      R"({"error":{"message":"request[chatcmpl-x] generate stream error: a kernel failed","type":"internal_error","param":null,"code":"internal_error"}})");
  EXPECT_EQ(events[3], "[DONE]");
  EXPECT_EQ(stream->get("/health").status, 200);
}

TEST(EngineAnswer, CachedTokensCountOncePerPrompt) {
  Rig rig;
  auto c = rig.ask("/v1/completions", R"({"prompt":[5,6,7],"n":2})");
  for (size_t i = 0; i < 2; ++i) {
    const auto r = rig.engine.wait_request(i);
    engine::Delta d;
    d.id = r.id;
    d.tokens.push_back({5, {}});
    d.cached_tokens = 2;
    d.finish = FinishReason::kLength;
    rig.engine.say(std::move(d));
  }
  const auto answer = c->receive().json().as_object();
  const auto& usage = answer.at("usage").as_object();
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens").as_int64(), 2);
  EXPECT_EQ(usage.at("prompt_tokens").as_int64(), 3);
  EXPECT_EQ(usage.at("completion_tokens").as_int64(), 2);
}

TEST(EngineAnswer, InfiniteLogprobsStayJson) {
  ServeConfig config = test_config();
  config.enable_logprob = true;
  Rig rig(config);
  auto c = rig.ask("/v1/chat/completions", R"({"messages":[5],"logprobs":true,"top_logprobs":1})");
  const auto r = rig.engine.wait_request(0);
  engine::Delta d;
  d.id = r.id;
  d.tokens.push_back({5, {{5, -INFINITY, 3}, {6, 0.0f, 1}}});
  d.finish = FinishReason::kLength;
  rig.engine.say(std::move(d));
  const auto answer = c->receive().json().as_object();
  EXPECT_EQ(answer.at("choices").at(0).at("logprobs").at("content").at(0).at("logprob").as_double(), -9999.0);
}

TEST(EngineAnswer, FullAndUnhealthyEngines) {
  Rig rig;
  rig.engine.refuse = true;
  EXPECT_EQ(rig.ask("/v1/completions", R"({"prompt":[5]})")->receive().status, 429);
  EXPECT_EQ(rig.ask("/v1/completions", R"({"prompt":[5],"stream":true})")->receive().status, 429)
      << "before any stream header";
  rig.engine.refuse = false;
  rig.engine.is_healthy = false;
  EXPECT_EQ(rig.ask("/v1/completions", R"({"prompt":[5]})")->receive().status, 304);
  EXPECT_EQ(Client(rig.server->port()).get("/health").status, 404);
  EXPECT_EQ(Client(rig.server->port()).get("/v1/models").status, 304);
}

TEST(NoTokenizer, IdsOnly) {
  Rig rig(test_config(), false);
  for (const char* body :
       {R"({"prompt":"text"})", R"({"prompt":[5],"stop":"x"})", R"({"prompt":[5],"bad_words":["x"]})"}) {
    const auto r = rig.ask("/v1/completions", body)->receive();
    EXPECT_EQ(r.status, 400) << body;
    EXPECT_NE(r.body.find("no tokenizer"), std::string::npos) << r.body;
  }
  const auto chat = rig.ask("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}]})")->receive();
  EXPECT_EQ(chat.status, 400);
  EXPECT_NE(chat.body.find("no chat template"), std::string::npos);
  auto c = rig.ask("/v1/completions", R"({"prompt":[5],"return_token_ids":true})");
  rig.engine.say(rig.engine.wait_request(0), {7, 8}, FinishReason::kLength);
  const auto answer = c->receive().json().as_object();
  EXPECT_EQ(answer.at("choices").at(0).at("text").as_string(), "");
  EXPECT_EQ(json::dump(answer.at("choices").at(0).at("completion_token_ids")), "[7,8]");
}

TEST(Disconnect, MayBeToldToRunOn) {
  ServeConfig config = test_config();
  config.abort_on_disconnect = false;
  Rig rig(config);
  auto c = rig.ask("/v1/completions", R"({"prompt":[5],"stream":true})");
  const auto r = rig.engine.wait_request(0);
  rig.engine.say(r, {5});
  EXPECT_FALSE(c->receive_some(16).empty());
  c->close();
  for (int i = 0; i < 20; ++i) {
    rig.engine.say(r, {5});
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // a write of its own each; nothing is to happen
  }
  EXPECT_EQ(rig.server->open_requests(), 1);
  rig.engine.say(r, {5}, FinishReason::kLength);
  EXPECT_TRUE(eventually([&] { return rig.server->open_requests() == 0; }));
}

}  // namespace
}  // namespace tern::serve::testing
