// Published failures of other servers, each as a request that must end in a clear answer while the server goes on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

std::string repeat(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

std::string list_of(std::string_view item, size_t times) {
  std::string out = "[";
  for (size_t i = 0; i < times; ++i) {
    if (i > 0) out += ',';
    out += item;
  }
  return out + "]";
}

std::string bias_of(int entries) {
  std::string out = "{";
  for (int i = 0; i < entries; ++i)
    out += fmt::format("{}\"{}\":1", i > 0 ? "," : "", i);  // more than the vocabulary has, and more than the limit
  return out + "}";
}

const std::string kUser = R"("messages":[{"role":"user","content":"x"}])";

struct Row {
  const char* id;  // what happened elsewhere
  std::string path, body;
  int status;
};

std::vector<Row> rows() {
  const std::string chat = "/v1/chat/completions", text = "/v1/completions";
  std::vector<Row> out = {
      {"CVE-2026-34756 n allocates before scheduling", chat, "{" + kUser + R"(,"n":1000000000})", 400},
      {"CVE-2026-34756 best_of", text, R"({"prompt":[5],"best_of":1000000000})", 400},
      {"CVE-2026-34756 n x prompts", text, "{\"prompt\":" + list_of("[5]", 256) + ",\"n\":128}", 400},
      {"CVE-2026-34756 prompts", text, "{\"prompt\":" + list_of("\"a\"", 100000) + "}", 400},
      {"CVE-2026-34756 messages", chat, "{\"messages\":" + list_of(R"({"role":"user","content":"x"})", 4097) + "}",
       400},
      {"CVE-2026-34756 stop list", text, "{\"prompt\":[5],\"stop\":" + list_of("\"a\"", 100000) + "}", 400},
      {"CVE-2026-34756 stop length", text, "{\"prompt\":[5],\"stop\":\"" + std::string(1'000'000, 'a') + "\"}", 400},
      {"CVE-2026-34756 stop ids", text, "{\"prompt\":[5],\"stop_token_ids\":" + list_of("5", 100000) + "}", 400},
      {"CVE-2026-34756 bias", text, "{\"prompt\":[5],\"logit_bias\":" + bias_of(100000) + "}", 400},
      {"CVE-2026-34756 bad words", text, "{\"prompt\":[5],\"bad_words\":" + list_of("\"a\"", 100000) + "}", 400},
      {"CVE-2026-34756 tools", chat, "{" + kUser + ",\"tools\":" + list_of("{}", 513) + "}", 400},
      {"CVE-2026-34756 alternatives", chat, "{" + kUser + R"(,"logprobs":true,"top_logprobs":1000000000})", 400},
      {"CVE-2026-34756 nesting", chat,
       R"({"messages":[{"role":"user","content":"x","a":)" + repeat("[", 5000) + repeat("]", 5000) + "}]}", 400},
      {"CVE-2026-34756 large but clamped", text,
       R"({"prompt":[5],"max_tokens":9000000000000000000,"top_k":2147483647})", 200},
      {"CVE-2026-21869 negative integers", text, R"({"prompt":[5],"max_tokens":-9223372036854775808})", 400},
      {"CVE-2026-21869 negative ids", text, R"({"prompt":[-1]})", 400},
      {"CVE-2026-105757 padding token -1", text, R"({"prompt":[5],"completion_token_ids":[-1]})", 400},
      {"CVE-2026-105757 bad schema", chat, "{" + kUser + R"(,"guided_json":{"$ref":"#"}})", 400},
      {"CVE-2025-48942 bad regex", chat, "{" + kUser + R"x(,"guided_regex":"(a+)+b["})x", 400},
      {"CVE-2025-61620 client template", chat,
       "{" + kUser + R"(,"chat_template":"{% for i in range(1000000000) %}x{% endfor %}"})", 400},
      {"CVE-2025-62426 template by variable", chat, "{" + kUser + R"(,"chat_template_kwargs":{"chat_template":"x"}})",
       400},
      {"CVE-2025-62426 messages by variable", chat, "{" + kUser + R"(,"chat_template_kwargs":{"messages":[]}})", 400},
      {"CVE-2025-62426 other route", "/tokenize", "{" + kUser + R"(,"chat_template":"x"})", 400},
      {"CVE-2026-105756 salt", text,
       "{\"prompt\":[5],\"max_tokens\":1,\"cache_salt\":\"" + std::string(5000, 'x') + R"(\u0000"})", 200},
      {"CVE-2026-116176 ids are opaque", text, R"({"prompt":[5],"request_id":"a\r\nb"})", 400},
      {"CVE-2026-116176 long ids", text, "{\"prompt\":[5],\"request_id\":\"" + std::string(300, 'a') + "\"}", 400},
      {"CVE-2025-66455 a peer from the client", text,
       R"({"prompt":[5],"max_tokens":1,"disaggregate_info":{"prefill_ip":"10.0.0.1"}})", 400},
      {"CVE-2026-105758 media arguments", chat,
       "{" + kUser + R"(,"max_tokens":1,"mm_processor_kwargs":{"fps":1e9},"mm_hashes":["x"]})", 200},
      {"CVE-2026-22778 decoder errors tell no addresses", chat,
       R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]})",
       400},
      {"CVE-2025-46560 many special tokens", text, "{\"prompt\":\"" + repeat("<|user|>", 100000) + "\"}", 400},
      {"CVE-2025-48887 long runs of one letter", text, "{\"prompt\":\"" + std::string(300'000, 'a') + "\"}", 400},
      {"FastDeploy metadata carries anything", chat,
       "{" + kUser + R"(,"metadata":{"messages":5,"stream":true,"n":1000000000,"max_tokens":1}})", 200},
      {"prompt of nothing", text, R"({"prompt":""})", 200},
      {"zero bytes in text", text, R"({"prompt":"a\u0000b","max_tokens":1})", 200},
      {"lone surrogate", text, R"({"prompt":"\udc00"})", 400},
      {"message of a wrong type", chat, R"({"messages":[null]})", 400},
      {"content of a wrong type", chat, R"({"messages":[{"role":"user","content":{"a":1}}]})", 400},
      {"role of a wrong type", chat, R"({"messages":[{"role":7,"content":"x"}]})", 400},
      {"tool calls of wrong types", chat,
       R"({"messages":[{"role":"assistant","content":"x","tool_calls":[1,{"function":2},{"function":{"arguments":"{"}}]}],"max_tokens":1})",
       200},
  };
  return out;
}

TEST(Advisories, EachRowEndsInAClearAnswer) {
  ServeConfig config = test_config();
  config.enable_logprob = true;
  TestServer server(config);
  for (const Row& row : rows()) {
    Client c(server.port());
    const Reply reply = c.post(row.path, row.body);
    EXPECT_EQ(reply.status, row.status) << row.id << ": " << reply.body.substr(0, 300);
    EXPECT_LT(reply.body.size(), 64u << 10) << row.id;
    if (row.status == 400) {
      const auto answer = reply.json().as_object();
      ASSERT_TRUE(answer.contains("error")) << row.id;
      EXPECT_EQ(reply.body.find("0x"), std::string::npos) << row.id << ": " << reply.body;
      EXPECT_LT(answer.at("error").at("message").as_string().size(), 2000u) << row.id;
    }
    EXPECT_EQ(c.get("/health").status, 200) << row.id;
  }
  EXPECT_TRUE(server.wait_idle());
}

TEST(Advisories, ForeignPagesCannotPost) {
  TestServer server;
  const std::string body = R"({"prompt":[5],"max_tokens":1})";
  const auto post_as = [&](const char* type) {
    Client c(server.port());
    c.send(fmt::format("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n{}",
                       type, body.size(), body));
    return c.receive().status;
  };
  for (const char* type :
       {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx"}) {
    EXPECT_EQ(post_as(type), 400) << type;
  }
  for (const char* type : {"application/json", "Application/JSON; charset=utf-8", "application/problem+json"}) {
    EXPECT_EQ(post_as(type), 200) << type;
  }
}

TEST(Advisories, HeadersOfTheClientDoNotSteer) {
  TestServer server;
  Client c(server.port());
  const auto reply =
      c.post("/v1/completions", R"({"prompt":[5],"max_tokens":1})",
             "X-Request-Id: 10.0.0.1:9000\r\nX-Forwarded-For: 127.0.0.1\r\nX-Original-URL: /metrics\r\n");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body.find("10.0.0.1"), std::string::npos);
}

// Slow prompts keep the CPU pool busy; a stream that runs meanwhile still gets every token, and health is answered.
TEST(Advisories, SlowPromptsDelayNoStream) {
  engine::EchoConfig echo = test_engine_config();
  echo.step_ns = 2'000'000;
  TestServer server(test_config(), echo);
  Client stream(server.port());
  const std::string body = R"({"prompt":[5,6,7],"max_tokens":200,"stream":true,"ignore_eos":true})";
  stream.send(
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  EXPECT_FALSE(stream.receive_some(16).empty());
  std::vector<std::jthread> slow;
  std::string words;
  while (words.size() < (1u << 20)) words += "some words that take their time ";
  for (int i = 0; i < 6; ++i) {
    slow.emplace_back([&] {
      EXPECT_EQ(Client(server.port()).post("/v1/completions", "{\"prompt\":\"" + words + "\"}").status, 400);
    });
  }
  std::string all;
  while (all.find("[DONE]") == std::string::npos) {
    const std::string some = stream.receive_some(65536);
    ASSERT_FALSE(some.empty());
    all += some;
  }
  EXPECT_EQ(Client(server.port()).get("/health").status, 200);
}

}  // namespace
}  // namespace tern::serve::testing
