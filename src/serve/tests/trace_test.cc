// Traces of requests: whose place in a trace they take, their events and spans; the label of figures.
#include <gtest/gtest.h>

#include <mutex>

#include "base/log.h"
#include "serve/core/trace_context.h"
#include "serve/report/metrics.h"
#include "serve/report/trace.h"
#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

constexpr const char* kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContext, WellFormedOrNone) {
  EXPECT_EQ(checked_traceparent(kParent), kParent);
  EXPECT_EQ(checked_traceparent("01" + std::string(kParent).substr(2) + "-more"),
            "01" + std::string(kParent).substr(2));
  for (std::string bad : {"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", "x"}) {
    EXPECT_EQ(checked_traceparent(bad), "") << bad;
  }
  const auto with = [](size_t at, std::string_view text) {
    return std::string(kParent).replace(at, text.size(), text);
  };
  EXPECT_EQ(checked_traceparent(with(0, "ff")), "");
  EXPECT_EQ(checked_traceparent(with(3, "0AF7")), "") << "capitals";
  EXPECT_EQ(checked_traceparent(with(3, std::string(32, '0'))), "");
  EXPECT_EQ(checked_traceparent(with(36, std::string(16, '0'))), "");
  EXPECT_EQ(checked_traceparent(with(2, "_")), "");
  EXPECT_EQ(checked_traceparent(std::string(kParent) + "-more"), "") << "version 00 has no more";
  EXPECT_TRUE(is_sampled(kParent));
  EXPECT_FALSE(is_sampled(with(53, "00")));
  EXPECT_TRUE(is_sampled(with(53, "0b")));
}

TEST(TraceContext, OfABody) {
  const std::string object = "{\"traceparent\":\"" + std::string(kParent) + "\"}";
  EXPECT_EQ(traceparent_of(json::Value(kParent)), kParent);
  EXPECT_EQ(traceparent_of(json::Value(object)), kParent);
  EXPECT_EQ(traceparent_of(*json::parse(object)), kParent);
  for (const char* odd : {"5", "null", "[]", "{}", R"({"traceparent":5})", R"("{")", R"("{\"traceparent\":[]}")"}) {
    EXPECT_EQ(traceparent_of(*json::parse(odd)), "") << odd;
  }
}

struct Traced {
  explicit Traced(std::string headers, std::string more = {}) {
    ServeConfig config = test_config();
    config.export_spans = [this](std::string text) {
      std::lock_guard lock(mutex);
      spans = "[" + text + "]";
    };
    TestServer server(config);
    const std::string body = R"({"prompt":[5,6,7],"max_tokens":2)" + more + "}";
    EXPECT_EQ(Client(server.port()).post("/v1/completions", body, headers).status, 200);
  }
  json::Array read() {
    std::lock_guard lock(mutex);
    return spans.empty() ? json::Array() : json::parse(spans)->get_array();
  }
  std::mutex mutex;
  std::string spans;
};

TEST(Spans, StagesOfARequestBelowItsCaller) {
  const json::Array spans = Traced("traceparent: " + std::string(kParent) + "\r\n").read();
  ASSERT_EQ(spans.size(), 6u);
  const json::Object& root = spans[0].get_object();
  EXPECT_EQ(root.at("parentSpanId"), "b7ad6b7169203331");
  EXPECT_EQ(root.at("kind"), 2);
  const auto at = [](const json::Object& span, const char* key) {
    return std::stoll(std::string(span.at(key).get_string()));
  };
  constexpr const char* kNames[] = {"request", "receive", "queue", "prefill", "decode", "finish"};
  int64_t end = at(root, "startTimeUnixNano");
  for (size_t i = 0; i < 6; ++i) {
    const json::Object& span = spans[i].get_object();
    EXPECT_EQ(span.at("name"), kNames[i]);
    EXPECT_EQ(span.at("traceId"), "0af7651916cd43dd8448eb211c80319c");
    EXPECT_EQ(span.at("spanId").get_string().size(), 16u);
    EXPECT_LE(at(span, "startTimeUnixNano"), at(span, "endTimeUnixNano"));
    if (i == 0) continue;
    EXPECT_EQ(span.at("parentSpanId"), root.at("spanId"));
    EXPECT_EQ(at(span, "startTimeUnixNano"), end) << "a stage begins where the one before ends";
    end = at(span, "endTimeUnixNano");
  }
  EXPECT_EQ(end, at(root, "endTimeUnixNano"));
}

TEST(Spans, ATraceOfTheirOwnAndNone) {
  EXPECT_EQ(Traced("").read().at(0).at("parentSpanId"), "");
  EXPECT_EQ(Traced("traceparent: nonsense\r\n").read().at(0).at("parentSpanId"), "");
  const std::string twice = "traceparent: " + std::string(kParent) + "\r\n";
  EXPECT_EQ(Traced(twice + twice).read().at(0).at("parentSpanId"), "") << "two make neither count";
  EXPECT_EQ(Traced("", R"(,"trace_context":")" + std::string(kParent) + "\"").read().at(0).at("traceId"),
            "0af7651916cd43dd8448eb211c80319c");
  const std::string unsampled = std::string(kParent).replace(53, 2, "00");
  EXPECT_TRUE(Traced("traceparent: " + unsampled + "\r\n").read().empty()) << "whose caller records nothing";
}

TEST(MetricLabels, EveryFigureOfTheModel) {
  Metrics plain(1, {{"block_size", "64"}}), labelled(1, {{"block_size", "64"}}, "a\"b");
  labelled.shard(0).http("GET", "/x", 200, 0.5);
  const std::string text = labelled.text({}, 0);
  EXPECT_EQ(plain.text({}, 0).find("model_id"), std::string::npos);
  EXPECT_NE(text.find("fastdeploy:num_requests_running{model_id=\"a\\\"b\"} 0.0\n"), std::string::npos);
  EXPECT_NE(text.find("fastdeploy:cache_config_info{model_id=\"a\\\"b\",block_size=\"64\"} 1.0\n"), std::string::npos);
  EXPECT_NE(text.find("fastdeploy:request_prompt_tokens_bucket{model_id=\"a\\\"b\",le=\"1.0\"} 0.0\n"),
            std::string::npos);
  EXPECT_NE(text.find("http_requests_total{method=\"GET\",path=\"/x\",status_code=\"200\"} 1.0\n"), std::string::npos);
  EXPECT_NE(text.find("# TYPE fastdeploy:num_requests_running gauge\n"), std::string::npos);
}

}  // namespace
}  // namespace tern::serve::testing
