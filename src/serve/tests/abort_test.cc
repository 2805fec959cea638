// Ending requests by name: /v1/abort_requests and the scheduler control routes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

using namespace std::chrono_literals;

engine::EchoConfig slow_engine() {
  engine::EchoConfig config = test_engine_config();
  config.step_ns = 20'000'000;
  return config;
}

// Starts a request that runs for long; its id is cmpl-ID.
std::unique_ptr<Client> begin(const TestServer& server, const std::string& id, int n = 1, std::string_view key = {}) {
  const std::string body =
      fmt::format(R"({{"prompt":[5,6,7],"max_tokens":400,"ignore_eos":true,"request_id":"{}","n":{}}})", id, n);
  auto client = std::make_unique<Client>(server.port());
  client->send(fmt::format("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n{}\r\n{}", body.size(),
                           key, body));
  return client;
}

std::set<std::string> names(const json::Value& result, const char* list) {
  std::set<std::string> out;
  for (const auto& item : result.as_object().at(list).as_array())
    out.insert(std::string(item.is_object() ? item.at("request_id").as_string() : item.as_string()));
  return out;
}

TEST(Abort, AKeyEndsItsOwnRequestsOnly) {
  ServeConfig config = test_config();
  config.api_keys = {"one", "two"};
  config.io_threads = 2;
  TestServer server(config, slow_engine());
  const char *one = "Authorization: Bearer one\r\n", *two = "Authorization: Bearer two\r\n";
  const auto a = begin(server, "a", 1, one), b = begin(server, "b", 2, two);
  ASSERT_TRUE(server.wait_running(3));
  Client control(server.port());
  const auto result = [&](std::string_view body, std::string_view key) {
    return control.post("/v1/abort_requests", body, key).json().as_object().at("result");
  };
  const auto foreign = result(R"({"req_ids":["cmpl-b","cmpl-b_1","cmpl-b_0"]})", one);
  EXPECT_TRUE(names(foreign, "aborted").empty());
  EXPECT_EQ(names(foreign, "not_found").size(), 3u)
      << "another key's requests are as unknown as those that are not there";
  EXPECT_EQ(names(result(R"({"abort_all":true})", one), "aborted"), std::set<std::string>{"cmpl-a_0"});
  EXPECT_EQ(a->receive().json().as_object().at("choices").at(0).at("finish_reason").as_string(), "abort");
  EXPECT_EQ(server.server().open_requests(), 1) << "the other key's request runs on";
  EXPECT_EQ(names(result(R"({"req_ids":["cmpl-b"]})", two), "aborted"),
            (std::set<std::string>{"cmpl-b_0", "cmpl-b_1"}));
  EXPECT_EQ(b->receive().status, 200);
  EXPECT_TRUE(server.wait_idle());
}

TEST(Abort, ThousandsOfNamesAgainstThousandsOfSamples) {
  TestServer server(test_config(), slow_engine());
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(begin(server, fmt::format("r{}", i), 128));
  ASSERT_TRUE(eventually([&] {  // all have come as far as the engine
    const auto stats = server.engine().stats();
    return stats.running + stats.waiting == 8 * 128;
  }));
  std::string ids;
  for (int i = 0; i < 4094; ++i) ids += fmt::format("\"cmpl-nobody-{}\",", i);
  const auto answer =
      Client(server.port()).post("/v1/abort_requests", "{\"req_ids\":[" + ids + "\"cmpl-r3\",\"cmpl-r5_77\"]}").json();
  const auto& result = answer.as_object().at("result");
  EXPECT_EQ(names(result, "not_found").size(), 4094u);
  const auto aborted = names(result, "aborted");
  EXPECT_EQ(aborted.size(), 129u);
  EXPECT_TRUE(aborted.contains("cmpl-r3_127") && aborted.contains("cmpl-r5_77"));
  EXPECT_EQ(clients[3]->receive().status, 200);
  EXPECT_EQ(
      names(Client(server.port()).post("/v1/abort_requests", R"({"abort_all":true})").json().as_object().at("result"),
            "aborted")
          .size(),
      8u * 128 - 129);
}

TEST(Controller, AnswersAsTheOriginal) {
  ServeConfig config = test_config();
  config.controller_port = 0;
  TestServer server(config, slow_engine());
  const int port = server.server().controller_port();
  const auto scheduler = [&](std::string_view body) { return Client(port).post("/controller/scheduler", body); };

  const auto a = begin(server, "a");
  ASSERT_TRUE(server.wait_running(1));
  const auto reset = Client(port).post("/controller/reset_scheduler", R"({"reset":true})");
  EXPECT_EQ(reset.status, 200);
  EXPECT_EQ(reset.body, "Scheduler Reset Successfully");
  EXPECT_EQ(reset.header("content-type"), "");
  EXPECT_EQ(a->receive().json().as_object().at("choices").at(0).at("finish_reason").as_string(), "abort");

  const auto b = begin(server, "b");
  ASSERT_TRUE(server.wait_running(1));
  const char* done = R"({"error":{"message":"Scheduler updated successfully","type":null,"param":null,"code":"0"}})";
  for (const char* body :
       {"{}", R"({"reset":false})", R"({"reset":null,"load_shards_num":0,"reallocate_shard":false})"}) {
    const auto reply = scheduler(body);
    EXPECT_EQ(reply.status, 200) << body;
    EXPECT_EQ(reply.body, done) << body;
  }
  EXPECT_EQ(server.server().open_requests(), 1) << "nothing was reset";
  for (const char* body : {R"({"load_shards_num":2})", R"({"reallocate_shard":true})"}) {
    const auto reply = scheduler(body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_EQ(
        reply.body,
        R"({"error":{"message":"This scheduler doesn't support the `update_config()` method.","type":null,"param":null,"code":"400"}})");
  }
  EXPECT_EQ(scheduler(R"({"reset":"maybe"})").status, 400);
  EXPECT_EQ(scheduler(R"({"reset":true})").body, done);
  EXPECT_EQ(b->receive().json().as_object().at("choices").at(0).at("finish_reason").as_string(), "abort");
}

}  // namespace
}  // namespace tern::serve::testing
