// What request.log has at each level of FD_LOG_REQUESTS_LEVEL.
#include "serve/report/request_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "base/log.h"
#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

std::mutex g_mutex;
std::vector<std::string> g_lines;
void keep(LogChannel channel, LogLevel, const char*, int, std::string_view message) {
  if (channel != LogChannel::kRequest) return;
  const std::lock_guard lock(g_mutex);
  g_lines.emplace_back(message);
}

size_t count(const std::vector<std::string>& lines, std::string_view part) {
  return static_cast<size_t>(std::count_if(
      lines.begin(), lines.end(), [&](const std::string& line) { return line.find(part) != std::string::npos; }));
}

constexpr const char* kWhole =
    R"({"request_id":"whole","prompt":[5,6,7],"max_tokens":3,"ignore_eos":true,"temperature":0.25})";
constexpr const char* kStream =
    R"({"request_id":"stream","prompt":[5,6,7],"max_tokens":3,"ignore_eos":true,"stream":true})";

std::vector<std::string> lines_of(ServeConfig config) {
  {
    const std::lock_guard lock(g_mutex);
    g_lines.clear();
  }
  set_log_sink(keep);
  {
    TestServer server(std::move(config));
    Client c(server.port());
    EXPECT_EQ(c.post("/v1/completions", kWhole).status, 200);
    EXPECT_EQ(c.post("/v1/completions", kStream).status, 200);
    EXPECT_EQ(c.post("/v1/completions", R"({"prompt":[5],"max_tokens":"\n\"many\""})").status, 400);
    EXPECT_TRUE(server.wait_idle());
  }
  set_log_sink(nullptr);
  const std::lock_guard lock(g_mutex);
  return g_lines;
}

ServeConfig config_of(int level) {
  ServeConfig config = test_config();
  config.log_requests_level = level;
  return config;
}

TEST(RequestLog, LifecycleIsArrivalEndAndRefusal) {
  const auto lines = lines_of(config_of(0));
  EXPECT_EQ(count(lines, "Receive request cmpl-whole: prompt tokens 3, n 1, stream false, max_tokens 3"), 1u);
  EXPECT_EQ(count(lines, "Request cmpl-whole_0 finished: InputToken 3, OutputToken 3, cached tokens 0, reason length"),
            1u);
  EXPECT_EQ(count(lines, "Receive request cmpl-stream: prompt tokens 3, n 1, stream true, max_tokens 3"), 1u);
  EXPECT_EQ(count(lines, "Request cmpl-stream: first chunk"), 1u);
  EXPECT_EQ(count(lines, "Request cmpl-stream_0 finished: InputToken 3, OutputToken 3"), 1u);
  EXPECT_EQ(count(lines, "Request cmpl-stream: last chunk"), 1u);
  EXPECT_EQ(count(lines,
                  "Refuse request: \"Input should be a valid integer, unable to parse string as an integer\" "
                  "(max_tokens)"),
            1u);
  EXPECT_EQ(lines.size(), 7u);
}

TEST(RequestLog, StagesAddPlacesAndTimes) {
  const auto lines = lines_of(config_of(1));
  for (const char* id : {"whole", "stream"}) {
    EXPECT_EQ(count(lines, std::string("Request cmpl-") + id + " has a place in the engine"), 1u);
    EXPECT_EQ(count(lines, std::string("Request cmpl-") + id + "_0 has its first token"), 1u);
    EXPECT_EQ(count(lines, std::string("Request cmpl-") + id + "_0: queue "), 1u);
  }
  EXPECT_EQ(lines.size(), 7u + 6u);
}

TEST(RequestLog, ContentAddsBodiesParametersAndAnswersCut) {
  ServeConfig config = config_of(2);
  config.log_max_len = 20;
  const auto lines = lines_of(config);
  EXPECT_EQ(count(lines, R"-(Request cmpl-whole: body "{\"request_id\":\"whole")-"), 1u);
  EXPECT_EQ(count(lines, R"-(\"max_tokens\")-"), 0u);
  EXPECT_EQ(count(lines,
                  "Request cmpl-whole_0 goes to the engine: prompt tokens 3, max_tokens 3, min_tokens 1, temperature "
                  "0.25, top_p 0.7, top_k 0"),
            1u);
  EXPECT_EQ(count(lines, R"-(Request cmpl-whole: answer "{\"id\":\"cmpl-whole\",\"")-"), 1u);
  EXPECT_GE(count(lines, R"-(Request cmpl-stream: chunk "data: {\"id\":\"cmpl-st")-"), 3u);
  EXPECT_EQ(count(lines, R"-(Request cmpl-stream: chunk "data: [DONE]\n\n")-"), 1u);
}

TEST(RequestLog, FullIsUncut) {
  ServeConfig config = config_of(3);
  config.log_max_len = 20;
  const auto lines = lines_of(config);
  std::string body;
  json::append_quoted(body, kWhole);
  EXPECT_EQ(count(lines, "Request cmpl-whole: body " + body), 1u);
  EXPECT_EQ(count(lines, R"(\"usage\":{)"), 1u);
}

TEST(RequestLog, NothingWithoutLogging) {
  ServeConfig config = config_of(3);
  config.log_requests = false;
  EXPECT_TRUE(lines_of(config).empty());
}

TEST(RequestLog, AClientThatLeavesIsAnAbort) {
  {
    const std::lock_guard lock(g_mutex);
    g_lines.clear();
  }
  set_log_sink(keep);
  {
    engine::EchoConfig slow = test_engine_config();
    slow.step_ns = 20'000'000;
    TestServer server(config_of(0), slow);
    Client c(server.port());
    const std::string body = R"({"request_id":"gone","prompt":[5],"max_tokens":400,"ignore_eos":true,"stream":true})";
    c.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           body);
    EXPECT_FALSE(c.receive_some(64).empty());
    c.close();
    EXPECT_TRUE(server.wait_idle());
  }
  set_log_sink(nullptr);
  const std::lock_guard lock(g_mutex);
  EXPECT_EQ(count(g_lines, "Request cmpl-gone aborted: its client has gone"), 1u);
  EXPECT_EQ(count(g_lines, "finished"), 0u);
}

}  // namespace
}  // namespace tern::serve::testing
