// Keys on every route of every port, limits of open requests, waiting, ids and aborts by control.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <thread>

#include "base/log.h"
#include "serve/router.h"
#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

using namespace std::chrono_literals;

constexpr const char* kLong = R"({"prompt":[5,6,7],"max_tokens":400,"ignore_eos":true})";
constexpr const char* kShort = R"({"prompt":[5,6,7],"max_tokens":2})";

engine::EchoConfig slow_engine() {
  engine::EchoConfig config = test_engine_config();
  config.step_ns = 20'000'000;
  return config;
}

std::string post_bytes(std::string_view path, std::string_view body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{}", path, body.size(), body);
}

std::mutex log_mutex;
std::string logged;
void keep_log(LogChannel, LogLevel, const char*, int, std::string_view message) {
  std::lock_guard lock(log_mutex);
  logged += message;
  logged += '\n';
}

ServeConfig keyed_config() {
  ServeConfig config = test_config();
  config.api_keys = {"sesame-1", "sesame-2"};
  config.controller_port = 0;
  return config;
}

TEST(Keys, EveryRouteOfEveryPortAsks) {
  set_log_sink(&keep_log);
  TestServer main_only(keyed_config());
  {
    Client c(main_only.port());
    for (const Route& route : routes()) {
      for (const std::string_view method : {"GET", "POST", "HEAD", "PUT"}) {
        const int status = Client(main_only.port()).request(method, route.path).status;
        const bool allowed = route.key == KeyRule::kPublic && (!route.page || method == "GET" || method == "HEAD");
        if (allowed)
          EXPECT_NE(status, 401) << method << route.path;
        else
          EXPECT_EQ(status, 401) << method << route.path;
      }
      EXPECT_NE(Client(main_only.port()).request("GET", route.path, {}, "Authorization: Bearer sesame-2\r\n").status,
                401)
          << route.path;
    }
    for (const char* path : {"/nothing",
                             "/page/config",
                             "/page/config/",
                             "/docs",
                             "//v1/models",
                             "/v1//models",
                             "/./v1/models",
                             "/v1/../v1/models",
                             "/v1/%6dodels",
                             "/v1%2fmodels",
                             "/%2e/v1/models",
                             "/health/../v1/models",
                             "/health/%2e%2e/v1/models",
                             "/health%2f..%2fv1/models",
                             "/health;/v1/models",
                             "/v1/models/",
                             "/HEALTH",
                             "/health/",
                             "/healthx",
                             "http://t/v1/models",
                             "http://t@u/health",
                             "*",
                             "/metrics?x=/health",
                             "/v1/models#/health"}) {
      EXPECT_EQ(Client(main_only.port()).get(path).status, 401) << path;
      EXPECT_EQ(Client(main_only.port()).request("OPTIONS", path).status == 204,
                std::string_view(path) == "/v1/%6dodels" || std::string_view(path) == "/metrics?x=/health" ||
                    std::string_view(path) == "http://t/v1/models")
          << path;
    }
    const auto denied = c.post("/v1/completions", kShort, "Authorization: Bearer wrong\r\n");
    EXPECT_EQ(denied.status, 401);
    EXPECT_EQ(denied.body, "{\"error\":\"Unauthorized\"}");
    EXPECT_EQ(Client(main_only.port()).get("/v1/%6dodels", "Authorization: Bearer sesame-1\r\n").status, 200);
    EXPECT_EQ(Client(main_only.port()).get("//v1/models", "Authorization: Bearer sesame-1\r\n").status, 404);
    EXPECT_EQ(Client(main_only.port()).post("/v1/completions", kShort, "Authorization: Bearer sesame-1\r\n").status,
              200);
  }
  set_log_sink(nullptr);
  std::lock_guard lock(log_mutex);
  EXPECT_EQ(logged.find("sesame"), std::string::npos) << "keys are never logged";
}

TEST(Keys, OtherPortsAskToo) {
  ServeConfig config = keyed_config();
  // A port of its own for metrics: taken from the system by asking for one and letting it go.
  {
    auto engine = engine::make_echo_engine(test_engine_config());
    ServeConfig probe = test_config();
    auto server = Server::start(probe, *engine, {});
    ASSERT_TRUE(server.ok());
    config.metrics_port = (*server)->port();
    (*server)->stop(0);
    engine->shutdown(true);
  }
  TestServer server(config);
  const int metrics = server.server().metrics_port(), controller = server.server().controller_port();
  EXPECT_EQ(metrics, *config.metrics_port);
  const char* key = "Authorization: Bearer sesame-1\r\n";
  for (const char* path : {"/metrics", "/config-info", "/health", "/v1/models", "/"}) {
    EXPECT_EQ(Client(metrics).get(path).status, 401) << path;
  }
  EXPECT_EQ(Client(metrics).get("/metrics", key).status, 200);
  EXPECT_EQ(Client(metrics).get("/config-info", key).status, 200);
  EXPECT_EQ(Client(metrics).get("/v1/models", key).status, 404) << "only metrics there";
  EXPECT_EQ(Client(server.port()).get("/metrics", key).status, 404) << "moved to its own port";
  EXPECT_EQ(Client(controller).post("/controller/reset_scheduler", "{}").status, 401);
  EXPECT_EQ(Client(controller).post("/controller/reset_scheduler", "", key).status, 200);
  EXPECT_EQ(Client(controller).get("/v1/models", key).status, 404);
}

TEST(Keys, MetricsOpenOnDemandOnly) {
  ServeConfig config = test_config();
  config.api_keys = {"k"};
  config.metrics_open = true;
  TestServer server(config);
  EXPECT_EQ(Client(server.port()).get("/metrics").status, 200);
  EXPECT_EQ(Client(server.port()).get("/config-info").status, 401);
  EXPECT_EQ(Client(server.port()).get("/v1/models").status, 401);
}

TEST(Keys, BodyOfAStrangerIsNotRead) {
  ServeConfig config = test_config();
  config.api_keys = {"k"};
  TestServer server(config);
  Client c(server.port());
  c.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 60000000\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(c.receive().status, 401) << "not 100";
  EXPECT_TRUE(c.closed_by_peer(3));
}

TEST(Limits, OpenRequests) {
  ServeConfig config = test_config();
  config.max_concurrency = 2;
  TestServer server(config, slow_engine());
  Client a(server.port()), b(server.port());
  a.send(post_bytes("/v1/completions", kLong));
  b.send(post_bytes("/v1/completions", kLong));
  ASSERT_TRUE(server.wait_running(2));
  const auto third = Client(server.port()).post("/v1/completions", kShort);
  EXPECT_EQ(third.status, 429);
  EXPECT_EQ(third.body, "{\"detail\":\"Too many requests,current max concurrency is 2\"}");
  EXPECT_EQ(Client(server.port()).get("/v1/models").status, 200) << "only generations count";
  a.close();
  b.close();
  EXPECT_TRUE(server.wait_idle());
  EXPECT_EQ(Client(server.port()).post("/v1/completions", kShort).status, 200);
  EXPECT_EQ(Client(server.port()).post("/v1/completions", "{").status, 400);
  EXPECT_EQ(Client(server.port()).post("/v1/completions", "{").status, 400);
  EXPECT_EQ(Client(server.port()).post("/v1/completions", kShort).status, 200)
      << "failed requests give their place back";
}

TEST(Limits, WaitingForAPlaceInTheEngine) {
  ServeConfig config = test_config();
  config.max_connections_to_engine = 1;
  config.max_waiting_time = 0.3;
  TestServer server(config, slow_engine());
  Client a(server.port());
  a.send(post_bytes("/v1/completions", kLong));
  ASSERT_TRUE(server.wait_running(1));
  for (const char* body : {kShort, R"({"prompt":[5,6,7],"max_tokens":2,"stream":true})"}) {
    const auto late = Client(server.port()).post("/v1/completions", body);
    EXPECT_EQ(late.status, 408);
    EXPECT_EQ(late.json().as_object().at("error").at("type").as_string(), "timeout_error");
    EXPECT_EQ(late.json().as_object().at("error").at("code").as_string(), "timeout");
  }
  Client waiting(server.port());
  waiting.send(post_bytes("/v1/completions", kShort));
  EXPECT_TRUE(eventually([&] { return metric(server.port(), "fastdeploy:num_requests_enqueued") == 1; }));
  a.close();
  EXPECT_EQ(waiting.receive().status, 200) << "the place is handed over";
}

TEST(Limits, ManyWaitForFewPlaces) {
  ServeConfig config = test_config();
  config.max_connections_to_engine = 3;
  TestServer server(config);
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      Client c(server.port());
      for (int i = 0; i < 25; ++i) good += c.post("/v1/completions", kShort).status == 200;
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(good, 200);
  EXPECT_TRUE(server.wait_idle());
}

TEST(Ids, OneIdOneRequest) {
  TestServer server(test_config(), slow_engine());
  const std::string body = R"({"prompt":[5,6,7],"max_tokens":400,"ignore_eos":true,"request_id":"same"})";
  Client a(server.port());
  a.send(post_bytes("/v1/completions", body));
  ASSERT_TRUE(server.wait_running(1));
  const auto second = Client(server.port()).post("/v1/completions", body);
  EXPECT_EQ(second.status, 400);
  EXPECT_EQ(second.json().as_object().at("error").at("message").as_string(), "duplicated request_id cmpl-same");
  a.close();
  EXPECT_TRUE(server.wait_idle());
  EXPECT_EQ(
      Client(server.port()).post("/v1/completions", R"({"prompt":[5],"max_tokens":1,"request_id":"same"})").status,
      200);
}

TEST(Abort, ByIdChoiceAndAll) {
  TestServer server(test_config(), slow_engine());
  const auto body = [](const char* id, int n, bool stream) {
    return fmt::format(
        R"({{"prompt":[5,6,7],"max_tokens":400,"ignore_eos":true,"request_id":"{}","n":{},"stream":{}}})", id, n,
        stream);
  };
  Client a(server.port()), b(server.port()), c(server.port());
  a.send(post_bytes("/v1/completions", body("a", 1, false)));
  b.send(post_bytes("/v1/completions", body("b", 2, true)));
  c.send(post_bytes("/v1/completions", body("c", 1, false)));
  ASSERT_TRUE(server.wait_running(4));
  const uint64_t before = server.engine().stats().generated_tokens;
  EXPECT_TRUE(eventually([&] { return server.engine().stats().generated_tokens >= before + 8; })) << "two of each";
  Client control(server.port());
  const auto first =
      control.post("/v1/abort_requests", R"({"req_ids":["cmpl-a","cmpl-b_1","nobody"]})").json().as_object();
  const auto& result = first.at("result").as_object();
  EXPECT_EQ(first.at("status").as_string(), "success");
  EXPECT_EQ(result.at("aborted").as_array().size(), 2u);
  for (const auto& item : result.at("aborted").as_array()) {
    EXPECT_TRUE(item.at("request_id").as_string() == "cmpl-a_0" || item.at("request_id").as_string() == "cmpl-b_1");
    EXPECT_GT(item.at("output_token_count").as_int64(), 0);
  }
  EXPECT_EQ(json::dump(result.at("not_found")), "[\"nobody\"]");
  const auto answer = a.receive().json().as_object();
  EXPECT_EQ(answer.at("choices").at(0).at("finish_reason").as_string(), "abort");
  EXPECT_GT(answer.at("usage").at("completion_tokens").as_int64(), 0);
  const auto rest = control.post("/v1/abort_requests", R"({"abort_all":true})").json().as_object();
  // One that has just been aborted may still be on its way out.
  std::set<std::string> ids;
  for (const auto& item : rest.at("result").at("aborted").as_array())
    ids.insert(item.at("request_id").as_string().c_str());
  EXPECT_TRUE(ids.contains("cmpl-b_0") && ids.contains("cmpl-c_0")) << json::dump(rest.at("result"));
  EXPECT_FALSE(ids.contains("cmpl-a_0"));
  EXPECT_EQ(c.receive().json().as_object().at("choices").at(0).at("finish_reason").as_string(), "abort");
  const auto events = b.receive().events();
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_TRUE(server.wait_idle());
}

TEST(Tenants, KeysDoNotShareThePrefixCache) {
  RecordingEngine recorder;
  recorder.refuse = true;
  ServeConfig config = test_config();
  config.api_keys = {"one", "two"};
  auto server = Server::start(config, recorder, {});
  ASSERT_TRUE(server.ok());
  for (const char* key : {"one", "two", "one"}) {
    const auto r =
        Client((*server)->port()).post("/v1/completions", kShort, fmt::format("Authorization: Bearer {}\r\n", key));
    EXPECT_EQ(r.status, 429) << "a full engine";
  }
  (*server)->stop(0);
  const auto seen = recorder.requests();
  ASSERT_EQ(seen.size(), 3u);
  for (const auto& r : seen) {
    ASSERT_EQ(r.extra_keys.size(), 1u);
    EXPECT_EQ(r.extra_keys[0].begin, 0);
    EXPECT_EQ(r.extra_keys[0].end, 3);
  }
  EXPECT_NE(seen[0].extra_keys[0].key[0], seen[1].extra_keys[0].key[0]);
  EXPECT_EQ(seen[0].extra_keys[0].key[0], seen[2].extra_keys[0].key[0]);
}

}  // namespace
}  // namespace tern::serve::testing
