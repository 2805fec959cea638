// Control routes: pauses, and the keys they take.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>

#include "serve/control/weights.h"
#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

engine::EchoConfig slow_engine() {
  engine::EchoConfig config = test_engine_config();
  config.step_ns = 5'000'000;
  return config;
}

// Starts a request that runs for long.
std::unique_ptr<Client> begin(const TestServer& server, std::string_view more = {}) {
  const std::string body = fmt::format(R"({{"prompt":[5,6,7],"max_tokens":400,"ignore_eos":true{}}})", more);
  auto client = std::make_unique<Client>(server.port());
  client->send(
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  return client;
}

bool is_paused(int port) {
  return Client(port).get("/v1/is_paused").json().as_object().at("result").at("is_paused").as_bool();
}

TEST(Control, APauseEndsWhatRunsAndLetsTheRestWait) {
  TestServer server(test_config(), slow_engine());
  Client control(server.port());
  EXPECT_FALSE(is_paused(server.port()));
  const auto whole = begin(server, R"(,"n":2)"), stream = begin(server, R"(,"stream":true)");
  ASSERT_TRUE(server.wait_running(3));
  ASSERT_TRUE(eventually([&] { return server.engine().stats().generated_tokens >= 9; }));
  for (int i = 0; i < 2; ++i) {
    const auto said = control.post("/v1/pause", "").json();
    EXPECT_EQ(said.as_object().at("status").as_string(), "success");
    EXPECT_TRUE(said.as_object().at("error_message").is_null());
  }
  EXPECT_TRUE(is_paused(server.port()));
  const auto answer = whole->receive().json();
  for (const auto& choice : answer.as_object().at("choices").as_array()) {
    EXPECT_EQ(choice.at("finish_reason").as_string(), "abort");
    EXPECT_FALSE(choice.at("text").as_string().empty());
  }
  EXPECT_GE(answer.as_object().at("usage").at("completion_tokens").to_number<int>(), 2);
  EXPECT_NE(stream->receive().body.find("\"finish_reason\":\"abort\""), std::string::npos);

  Client later(server.port());
  const std::string body = R"({"prompt":[5,6,7],"max_tokens":3,"ignore_eos":true})";
  later.send(
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  ASSERT_TRUE(eventually([&] { return server.engine().stats().waiting == 1; }));
  EXPECT_EQ(server.engine().stats().running, 0);
  EXPECT_EQ(Client(server.port()).get("/health").status, 200);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(control.post("/v1/resume", "").status, 200);
  EXPECT_FALSE(is_paused(server.port()));
  EXPECT_EQ(later.receive().json().as_object().at("choices").at(0).at("finish_reason").as_string(), "length");
}

TEST(Control, AWaitingRequestCanBeAborted) {
  TestServer server;
  Client control(server.port());
  control.post("/v1/pause", "");
  const auto waits = begin(server);
  ASSERT_TRUE(eventually([&] { return server.engine().stats().waiting == 1; }));
  control.post("/v1/abort_requests", R"({"abort_all":true})");
  EXPECT_EQ(waits->receive().json().as_object().at("choices").at(0).at("finish_reason").as_string(), "abort");
}

// A server that is paused stops as any other.
TEST(Control, APausedServerStops) {
  TestServer server;
  Client(server.port()).post("/v1/pause", "");
  const auto waits = begin(server);
  ASSERT_TRUE(eventually([&] { return server.engine().stats().waiting == 1; }));
  server.server().stop(0);
  EXPECT_EQ(waits->receive().status, 200);
}

TEST(Control, TakesTheAdminsKeyAlone) {
  ServeConfig config = test_config();
  config.api_keys = {"client"};
  config.admin_keys = {"admin"};
  TestServer server(config);
  const auto status = [&](std::string_view method, std::string_view path, std::string_view headers) {
    return Client(server.port()).request(method, path, method == "POST" ? "{}" : "", headers).status;
  };
  const char *client = "Authorization: Bearer client\r\n", *admin = "Authorization: Bearer admin\r\n";
  for (const char* path : {"/v1/pause", "/v1/resume", "/v1/sleep", "/v1/wakeup", "/v1/update_weights",
                           "/rearrange_experts", "/get_per_expert_tokens_stats", "/check_redundant"}) {
    EXPECT_EQ(status("POST", path, client), 401) << path;
    EXPECT_EQ(status("POST", path, ""), 401) << path;
    EXPECT_NE(status("POST", path, admin), 401) << path;
  }
  for (const char* path : {"/v1/is_paused", "/update_model_weight", "/clear_load_weight"}) {
    EXPECT_EQ(status("GET", path, client), 401) << path;
    EXPECT_NE(status("GET", path, "x-api-key: admin\r\n"), 401) << path;
  }
  EXPECT_EQ(status("GET", "/v1/models", client), 200);
  EXPECT_EQ(status("GET", "/v1/models", admin), 401);
  EXPECT_EQ(status("POST", "/v1/abort_requests", admin), 401);
}

// Without keys of clients the others stay open.
TEST(Control, AnAdminsKeyClosesNothingElse) {
  ServeConfig config = test_config();
  config.admin_keys = {"admin"};
  config.controller_port = 0;
  TestServer server(config);
  EXPECT_EQ(Client(server.port()).get("/v1/models").status, 200);
  EXPECT_EQ(Client(server.port()).post("/v1/pause", "").status, 401);
  EXPECT_EQ(Client(server.server().controller_port()).post("/controller/reset_scheduler", "{}").status, 401);
  const auto paths = Client(server.port()).get("/openapi.json").json().as_object().at("paths");
  EXPECT_EQ(paths.at("/v1/pause").at("post").at("security").as_array().size(), 1u);
  EXPECT_TRUE(paths.at("/v1/models").at("get").at("security").as_array().empty());
}

// Weights that a test gives and takes.
class FakeWeights final : public control::Weights {
 public:
  Status give_back() override {
    whole_ = false;
    return {};
  }
  Status read(const control::WeightsFrom& from) override {
    asked.push_back(from);
    if (refuses) return make_error(ErrorCode::kInvalidArgument, "they do not fit");
    whole_ = !breaks;
    if (breaks) return make_error(ErrorCode::kIo, "the file is short");
    return {};
  }
  bool whole() const override { return whole_; }

  std::vector<control::WeightsFrom> asked;
  std::atomic<bool> refuses{false}, breaks{false};

 private:
  std::atomic<bool> whole_{true};
};

struct SleepTest : ::testing::Test {
  explicit SleepTest(ServeConfig config = dynamic()) : server(config, slow_engine(), true, nullptr, &weights) {}
  static ServeConfig dynamic() {
    ServeConfig config = test_config();
    config.dynamic_weights = true;
    return config;
  }
  Reply post(std::string_view path, std::string_view body = "") { return Client(server.port()).post(path, body); }
  Reply get(std::string_view path) { return Client(server.port()).get(path); }
  int ask() { return post("/v1/completions", R"({"prompt":[5,6,7],"max_tokens":2})").status; }
  std::string error_of(const Reply& reply) {
    return std::string(reply.json().as_object().at("error_message").as_string());
  }

  FakeWeights weights;
  TestServer server;
};

TEST_F(SleepTest, NothingRunsUntilAllTagsAreBack) {
  const auto open = begin(server);
  ASSERT_TRUE(server.wait_running(1));
  EXPECT_EQ(post("/v1/sleep").status, 200);
  EXPECT_EQ(open->receive().json().as_object().at("choices").at(0).at("finish_reason").as_string(), "abort");
  EXPECT_FALSE(weights.whole());
  for (const char* path : {"/health", "/ping", "/v1/models"}) EXPECT_EQ(get(path).status, 304) << path;
  EXPECT_EQ(ask(), 304);
  EXPECT_TRUE(is_paused(server.port()));
  EXPECT_EQ(post("/v1/wakeup?tags=weight").status, 200);
  EXPECT_TRUE(weights.whole());
  EXPECT_EQ(ask(), 304);
  EXPECT_EQ(post("/v1/resume").status, 500);
  EXPECT_EQ(post("/v1/wakeup?tags=kv_cache").status, 200);
  EXPECT_EQ(ask(), 200);
  EXPECT_FALSE(is_paused(server.port()));
}

TEST_F(SleepTest, AnUpdateIsWholeOrNothing) {
  EXPECT_EQ(error_of(post("/v1/update_weights", "{}")), "the server is not paused: /v1/pause comes first");
  post("/v1/pause");
  weights.refuses = true;
  EXPECT_EQ(error_of(post("/v1/update_weights", R"({"version":"2"})")), "they do not fit");
  EXPECT_EQ(get("/version").json().as_object().contains("weights"), false);
  weights.refuses = false;
  const Reply done = post("/v1/update_weights", R"({"version":"2","verify_checksum":true,"model_path":"b"})");
  EXPECT_EQ(done.json().as_object().at("result").at("version").as_string(), "2");
  EXPECT_EQ(get("/version").json().as_object().at("weights").as_string(), "2");
  ASSERT_EQ(weights.asked.size(), 2u);
  EXPECT_EQ(weights.asked[0].folder, control::WeightsFrom::Folder::kOwn);
  EXPECT_EQ(weights.asked[1].folder, control::WeightsFrom::Folder::kNamed);
  EXPECT_TRUE(weights.asked[1].verify);
  EXPECT_EQ(weights.asked[1].path, "b");
  // Weights that are lost on the way leave the server asleep, not wrong.
  weights.breaks = true;
  EXPECT_EQ(error_of(post("/v1/update_weights", R"({"version":"3"})")), "the file is short");
  EXPECT_EQ(post("/v1/resume").status, 500);
  EXPECT_EQ(ask(), 304);
  weights.breaks = false;
  EXPECT_EQ(post("/v1/wakeup").status, 200);
  EXPECT_EQ(ask(), 200);
}

TEST_F(SleepTest, TheOldRoutes) {
  const auto open = begin(server);
  ASSERT_TRUE(server.wait_running(1));
  EXPECT_EQ(get("/clear_load_weight").status, 200);
  const Reply ended = open->receive();
  EXPECT_EQ(ended.status, 400);
  const auto error = ended.json().as_object().at("error");
  EXPECT_EQ(error.at("message").as_string(), "Model weight cleared");
  EXPECT_EQ(error.at("type").as_string(), "invalid_request_error");
  EXPECT_EQ(error.at("code").as_string(), "invalid_value");
  EXPECT_EQ(get("/clear_load_weight").status, 200);
  EXPECT_EQ(ask(), 304);
  EXPECT_EQ(post("/v1/sleep").status, 500);
  EXPECT_EQ(Client(server.port()).request("HEAD", "/update_model_weight").status, 405);
  EXPECT_FALSE(weights.whole());
  EXPECT_EQ(get("/update_model_weight").status, 200);
  EXPECT_EQ(get("/update_model_weight").status, 200);
  EXPECT_EQ(ask(), 200);
  post("/v1/sleep");
  EXPECT_EQ(get("/clear_load_weight").status, 403);
  EXPECT_EQ(get("/update_model_weight").status, 403);
}

struct MetaTest : SleepTest {
  MetaTest() : SleepTest(meta()) {}
  static ServeConfig meta() {
    ServeConfig config = test_config();
    config.asleep = true;
    return config;
  }
};

TEST_F(MetaTest, StartsAsleep) {
  EXPECT_FALSE(weights.whole());
  EXPECT_EQ(ask(), 304);
  EXPECT_EQ(post("/v1/update_weights", R"({"version":"1"})").status, 200);
  EXPECT_EQ(post("/v1/resume").status, 200);
  EXPECT_EQ(ask(), 200);
  EXPECT_EQ(get("/clear_load_weight").status, 404);
}

}  // namespace
}  // namespace tern::serve::testing
