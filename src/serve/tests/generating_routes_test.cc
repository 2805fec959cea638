// One admission for every route that generates: whatever its protocol, a row of the table gets all of this.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "serve/core/protocol.h"
#include "serve/router.h"
#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

using namespace std::chrono_literals;

// Fields of every protocol; each reads its own and ignores the others'. A chat takes ids in its messages' place.
std::string body_of(const Route& route, size_t prompt_tokens, std::string_view more = {}) {
  std::string ids;
  for (size_t i = 0; i < prompt_tokens; ++i) ids += i == 0 ? "5" : ",5";
  const bool blocks = route.path == "/v1/messages";
  const std::string messages = blocks ? R"([{"role":"user","content":"x"}])" : "[" + ids + "]";
  const std::string_view own = blocks || route.path == "/v1/responses" ? R"("prompt_token_ids")" : R"("prompt")";
  return fmt::format(R"({{{}:[{}],"messages":{},"input":"x"{}{}}})", own, ids, messages, more.empty() ? "" : ",", more);
}
constexpr std::string_view kLong = R"("max_tokens":400,"max_output_tokens":400,"ignore_eos":true)";
constexpr std::string_view kShort = R"("max_tokens":2,"max_output_tokens":2,"ignore_eos":true)";
constexpr std::string_view kStream = R"("max_tokens":400,"max_output_tokens":400,"ignore_eos":true,"stream":true)";

std::string post_bytes(std::string_view path, const std::string& body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{}", path, body.size(), body);
}

engine::EchoConfig slow_engine() {
  engine::EchoConfig config = test_engine_config();
  config.step_ns = 20'000'000;
  return config;
}

// Of the main port; tests/paddlenlp asks the others. `pools`: those of pooling models.
std::vector<const Route*> generating(bool pools = false) {
  std::vector<const Route*> out;
  for (const Route& route : routes()) {
    const bool here = route.handler.generates() && (route.ports & kMainPort) != 0;
    if (here && route.handler.protocol->pools == pools) out.push_back(&route);
  }
  return out;
}

TEST(GeneratingRoutes, EveryRowHasOneHandler) {
  ASSERT_GE(generating().size(), 4u);
  for (const Route& route : routes()) {
    const Handler& h = route.handler;
    const int handlers = (h.at_once != nullptr) + (h.question != nullptr) + (h.order != nullptr) +
                         (h.protocol != nullptr) + (h.file != nullptr);
    EXPECT_EQ(handlers, 1) << route.path;
    EXPECT_TRUE(!h.generates() || route.key == KeyRule::kNeeded) << route.path;
    EXPECT_TRUE(!h.generates() || route.methods == kPostBit) << route.path;
  }
}

TEST(GeneratingRoutes, AskForAKey) {
  ServeConfig config = test_config();
  config.api_keys = {"sesame"};
  TestServer server(config);
  for (const Route* route : generating()) {
    EXPECT_EQ(Client(server.port()).post(route->path, body_of(*route, 3, kShort)).status, 401) << route->path;
    EXPECT_EQ(Client(server.port()).post(route->path, body_of(*route, 3, kShort), "Authorization: Bearer x\r\n").status,
              401);
    const auto open =
        Client(server.port()).post(route->path, body_of(*route, 3, kShort), "Authorization: Bearer sesame\r\n");
    EXPECT_EQ(open.status, 200) << route->path << open.body;
    const auto other = Client(server.port()).post(route->path, body_of(*route, 3, kShort), "X-Api-Key: sesame\r\n");
    EXPECT_EQ(other.status, 200) << route->path << other.body;
    EXPECT_EQ(Client(server.port()).post(route->path, body_of(*route, 3, kShort), "X-Api-Key: x\r\n").status, 401);
  }
}

TEST(GeneratingRoutes, OfPoolingModelsToo) {
  ASSERT_EQ(generating(true).size(), 3u);
  for (const Route* route : generating(true)) {
    ServeConfig config = test_config();
    config.api_keys = {"sesame"};
    config.http.body_bytes = 8192;
    config.pooling = {.width = 2, .rewards = route->path != "/v1/embeddings"};
    engine::EchoConfig engine = test_engine_config();
    engine.pooled = 2;
    TestServer server(config, engine);
    const auto post = [&](const std::string& body) {
      return Client(server.port()).post(route->path, body, "Authorization: Bearer sesame\r\n");
    };
    EXPECT_EQ(Client(server.port()).post(route->path, R"({"messages":[5,6]})").status, 401) << route->path;
    EXPECT_EQ(post(R"({"messages":[5,6]})").status, 200) << route->path;
    EXPECT_EQ(post(std::string(9000, ' ')).status, 413) << route->path;
    const auto reply = post(fmt::format(R"({{"messages":[5{}]}})", [] {
      std::string more;
      for (int i = 0; i < 600; ++i) more += ",5";
      return more;
    }()));
    EXPECT_NE(reply.body.find("Input text is too long"), std::string::npos) << reply.body;
  }
}

TEST(GeneratingRoutes, RefuseALongBody) {
  ServeConfig config = test_config();
  config.http.body_bytes = 2048;
  TestServer server(config);
  for (const Route* route : generating()) {
    EXPECT_EQ(Client(server.port()).post(route->path, std::string(4096, ' ')).status, 413) << route->path;
    EXPECT_EQ(Client(server.port()).post(route->path, body_of(*route, 3, kShort)).status, 200) << route->path;
  }
}

TEST(GeneratingRoutes, RefuseALongPrompt) {
  TestServer server;
  for (const Route* route : generating()) {
    const auto reply = Client(server.port()).post(route->path, body_of(*route, 600, kShort));
    EXPECT_EQ(reply.status, 400) << route->path;
    EXPECT_NE(reply.body.find("Input text is too long"), std::string::npos) << reply.body;
  }
}

TEST(GeneratingRoutes, CountAsOpenRequests) {
  ServeConfig config = test_config();
  config.max_concurrency = 1;
  TestServer server(config, slow_engine());
  for (const Route* route : generating()) {
    Client first(server.port());
    first.send(post_bytes(route->path, body_of(*route, 3, kLong)));
    ASSERT_TRUE(server.wait_running(1)) << route->path;
    for (const Route* other : generating()) {
      const auto reply = Client(server.port()).post(other->path, body_of(*other, 3, kShort));
      EXPECT_EQ(reply.status, 429) << other->path;
      EXPECT_NE(reply.body.find(R"(:"Too many requests,current max concurrency is 1"})"), std::string::npos)
          << reply.body;
    }
    first.close();
    EXPECT_TRUE(server.wait_idle()) << route->path;
    EXPECT_EQ(Client(server.port()).post(route->path, body_of(*route, 3, kShort)).status, 200)
        << "the place is free again";
  }
}

TEST(GeneratingRoutes, EndWhenTheClientLeaves) {
  TestServer server(test_config(), slow_engine());
  for (const Route* route : generating()) {
    for (const std::string_view form : {kLong, kStream}) {
      const uint64_t before = server.engine().stats().generated_tokens;
      Client client(server.port());
      client.send(post_bytes(route->path, body_of(*route, 3, form)));
      ASSERT_TRUE(eventually([&] { return server.engine().stats().generated_tokens > before; })) << route->path;
      client.close();
      EXPECT_TRUE(server.wait_idle()) << route->path;
      EXPECT_LT(server.engine().stats().generated_tokens, before + 300) << route->path;
    }
  }
}

TEST(GeneratingRoutes, TakeNothingWhileDraining) {
  for (const Route* route : generating()) {
    auto server = std::make_unique<TestServer>(test_config(), slow_engine());
    Client open(server->port()), late(server->port());
    open.send(
        post_bytes(route->path, body_of(*route, 3, R"("max_tokens":60,"max_output_tokens":60,"ignore_eos":true)")));
    ASSERT_TRUE(server->wait_running(1)) << route->path;
    // Half a head keeps the connection until its request is whole.
    const std::string bytes = post_bytes(route->path, body_of(*route, 3, kShort));
    late.send(bytes.substr(0, 20));
    std::this_thread::sleep_for(100ms);  // until these bytes are read, of which nothing tells
    std::jthread stopping([&] { server->server().stop(10); });
    ASSERT_TRUE(eventually([&] { return !Client(server->port()).connected(); }));
    late.send(bytes.substr(20));
    EXPECT_EQ(late.receive().status, 503) << route->path;
    EXPECT_EQ(open.receive().status, 200) << "what was open may finish";
  }
}

}  // namespace
}  // namespace tern::serve::testing
