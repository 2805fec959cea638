// How a server ends and how it does not start: open answers, signals, an engine that dies, a port that is taken.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

using namespace std::chrono_literals;

constexpr const char* kEndless = R"({"prompt":[5,6,7],"max_tokens":500,"stream":true,"ignore_eos":true})";
constexpr const char* kShort = R"({"prompt":[5,6,7],"max_tokens":2})";

engine::EchoConfig slow_engine(int64_t step_ns = 20'000'000) {
  engine::EchoConfig config = test_engine_config();
  config.step_ns = step_ns;
  return config;
}

std::string post_bytes(std::string_view path, std::string_view body, std::string_view more = {}) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}",
                     path, body.size(), more, body);
}

TEST(Shutdown, DrainsThenAborts) {
  auto server = std::make_unique<TestServer>(test_config(), slow_engine(5'000'000));
  Client finishing(server->port()), endless(server->port()), idle(server->port());
  finishing.send(post_bytes("/v1/completions", R"({"prompt":[5,6,7],"max_tokens":20,"ignore_eos":true})"));
  endless.send(post_bytes("/v1/completions", kEndless));
  EXPECT_FALSE(endless.receive_some(16).empty());
  std::jthread stopping([&] { server->server().stop(0.6); });
  EXPECT_TRUE(eventually([&] { return !Client(server->port()).connected(); })) << "no new connections";
  EXPECT_EQ(finishing.receive().status, 200) << "what was open may finish";
  EXPECT_TRUE(idle.closed_by_peer(1));
  std::string rest;
  for (std::string some = endless.receive_some(65536); !some.empty(); some = endless.receive_some(65536)) rest += some;
  EXPECT_NE(rest.find("\"finish_reason\":\"abort\""), std::string::npos);
  EXPECT_NE(rest.find("[DONE]"), std::string::npos);
}

TEST(Shutdown, SecondSignalEndsAtOnce) {
  TestServer server(test_config(), slow_engine());
  Client endless(server.port());
  endless.send(post_bytes("/v1/completions", kEndless));
  EXPECT_FALSE(endless.receive_some(16).empty());
  const auto begin = std::chrono::steady_clock::now();
  std::jthread stopping([&] { server.server().stop(60); });
  EXPECT_TRUE(eventually([&] { return !Client(server.port()).connected(); })) << "it drains";
  server.server().stop_now();
  stopping.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
}

TEST(Shutdown, DeadEngineFailsOpenRequestsAndHealth) {
  TestServer server(test_config(), slow_engine());
  Client stream(server.port()), whole(server.port());
  stream.send(post_bytes("/v1/completions", kEndless));
  whole.send(post_bytes("/v1/completions", R"({"prompt":[5,6,7],"max_tokens":500,"ignore_eos":true})"));
  EXPECT_FALSE(stream.receive_some(16).empty());
  EXPECT_TRUE(server.wait_running(2));
  server.engine().shutdown(true);  // the engine ends by itself
  EXPECT_EQ(whole.receive().status, 200) << "aborted by the engine";
  EXPECT_TRUE(eventually([&] { return Client(server.port()).get("/health").status != 200; }));
  const auto health = Client(server.port()).get("/health");
  EXPECT_EQ(health.status, 404);
  EXPECT_EQ(health.body, "Worker Service Not Healthy");
  const auto refused = Client(server.port()).post("/v1/completions", kShort);
  EXPECT_EQ(refused.status, 304);
  EXPECT_EQ(refused.body, "");
}

TEST(Start, TakenPortIsAnErrorWithTheAddress) {
  TestServer server;
  auto engine = engine::make_echo_engine(test_engine_config());
  ServeConfig config = test_config();
  config.port = server.port();
  const auto second = Server::start(config, *engine, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().message,
            fmt::format("cannot listen on 127.0.0.1:{}: the address is already in use", server.port()));
  config.port = 0;
  config.host = "no.such.host.invalid";
  EXPECT_FALSE(Server::start(config, *engine, {}).ok());
  engine->shutdown(true);
}

}  // namespace
}  // namespace tern::serve::testing
