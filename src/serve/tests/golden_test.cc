// The transcripts of tests/protocol against the server.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "base/check.h"
#include "serve/router.h"
#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

// Wildcards of make_cases.py; "" when `got` fits `want`, else where and how they differ.
std::string difference(const json::Value& want, const json::Value& got, const std::string& where) {
  const auto both = [&] { return fmt::format("{}: want {} got {}", where, json::dump(want), json::dump(got)); };
  if (want.is_string() && want.get_string().starts_with("$")) {
    const std::string_view card(want.get_string());
    if (card == "$any") return {};
    if (card == "$string") return got.is_string() ? "" : both();
    if (card == "$int") return got.is_int64() ? "" : both();
    if (card == "$number") return got.is_number() ? "" : both();
    if (card == "$seconds") return got.is_double() && got.get_double() >= 0 && got.get_double() < 60 ? "" : both();
    if (card.starts_with("$id:")) {
      return got.is_string() && got.get_string().starts_with(card.substr(4)) && got.get_string().size() > card.size()
                 ? ""
                 : both();
    }
  }
  if (want.is_number() && got.is_number()) return want.to_number<double>() == got.to_number<double>() ? "" : both();
  if (want.kind() != got.kind()) return both();
  if (want.is_object()) {
    for (const auto& [key, value] : want.get_object()) {
      const json::Value* other = got.get_object().if_contains(key);
      if (other == nullptr) return fmt::format("{}: no key {}", where, std::string_view(key));
      if (auto d = difference(value, *other, where + "." + std::string(key)); !d.empty()) return d;
    }
    for (const auto& [key, value] : got.get_object()) {
      if (!want.get_object().contains(key)) return fmt::format("{}: unexpected key {}", where, std::string_view(key));
    }
    return {};
  }
  if (want.is_array()) {
    const auto& a = want.get_array();
    const auto& b = got.get_array();
    if (a.size() != b.size()) return both();
    for (size_t i = 0; i < a.size(); ++i) {
      if (auto d = difference(a[i], b[i], fmt::format("{}[{}]", where, i)); !d.empty()) return d;
    }
    return {};
  }
  return want == got ? "" : both();
}

ServeConfig config_of(const json::Object& overrides) {
  ServeConfig config = test_config();
  for (const auto& [key, value] : overrides) {
    if (key == "skip_special_tokens")
      config.skip_special_tokens = value.get_bool();
    else if (key == "enable_logprob")
      config.enable_logprob = value.get_bool();
    else if (key == "allow_inert")
      config.allow_inert = value.get_bool();
    else if (key == "prompt_logprobs_allowed")
      config.prompt_logprobs_allowed = value.get_bool();
    else if (key == "original_error_status")
      config.original_error_status = value.get_bool();
    else if (key == "sampling_mask")
      config.sampling_mask = value.get_bool();
    else if (key == "pooling")
      config.pooling = {.width = value == "rewards" || value == "steps" ? 2 : 3,
                        .rewards = value == "rewards" || value == "steps",
                        .rows = value == "steps" ? engine::PooledRows::kAll : engine::PooledRows::kLast};
    else if (key == "served_model_name")
      config.served_model_name = std::string(value.get_string());
    else if (key == "metrics_port")
      config.metrics_port = 0;
    else if (key == "dynamic_weights")
      config.dynamic_weights = value.get_bool();
    else if (key == "controller_port")
      config.controller_port = 0;
    else if (key == "config_info")
      config.config_info = std::string(value.get_string());
    else if (key != "parsers")  // format_of
      ADD_FAILURE() << "unknown override " << std::string_view(key);
  }
  return config;
}

engine::EchoConfig engine_of(const ServeConfig& config) {
  engine::EchoConfig engine = test_engine_config();
  engine.kept_tokens = config.sampling_mask;
  if (config.pooling) engine.pooled = config.pooling->width;
  return engine;
}

// Of a case, with what its port needs.
json::Object overrides_of(const json::Object& c) {
  json::Object overrides = c.at("server").get_object();
  if (const auto* port = json::find(c, "port")) overrides[std::string(port->get_string()) + "_port"] = true;
  return overrides;
}

int port_of(const json::Object& c, TestServer& server) {
  const auto* port = json::find(c, "port");
  if (port == nullptr) return server.port();
  return port->get_string() == "metrics" ? server.server().metrics_port() : server.server().controller_port();
}

// "parsers": the names of --reasoning-parser and --tool-call-parser, "" for none.
std::unique_ptr<answer::AnswerFormat> format_of(const json::Object& overrides) {
  const auto* names = json::find(overrides, "parsers");
  if (names == nullptr) return nullptr;
  const auto& pair = names->get_array();
  auto made = answer::AnswerFormat::make(pair.at(0).get_string(), pair.at(1).get_string(),
                                         answer::vocabulary_of(*text_parts().tokenizer));
  TERN_CHECK_MSG(made.ok(), made.error().message);
  return std::make_unique<answer::AnswerFormat>(*std::move(made));
}

std::string unhex(std::string_view hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return out;
}

std::string body_of(const json::Object& c) {
  if (const auto* raw = json::find(c, "raw")) return std::string(raw->get_string());
  if (const auto* raw = json::find(c, "raw_hex")) return unhex(raw->get_string());
  if (const auto* body = json::find(c, "body")) return json::dump(*body);
  return c.at("method").get_string() == "POST" ? "{}" : "";
}

void check_events(const json::Object& c, const Reply& reply) {
  const auto& want = c.at("events").get_array();
  std::vector<json::Value> got;
  for (const auto& event : reply.events()) {
    auto value = event == "[DONE]" ? Expected<json::Value>(json::Value("[DONE]")) : json::parse(event);
    ASSERT_TRUE(value.ok()) << event;
    got.push_back(*std::move(value));
  }
  ASSERT_EQ(got.size(), want.size()) << reply.body;
  EXPECT_EQ(reply.header("content-type"), "text/event-stream; charset=utf-8");
  const bool unordered = json::find(c, "unordered") != nullptr;  // prompts of one request run side by side
  std::vector<bool> used(got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    std::string d = difference(want[i], got[i], fmt::format("event {}", i));
    for (size_t j = 0; unordered && !d.empty() && j < got.size(); ++j) {
      if (!used[j] && difference(want[i], got[j], "").empty()) {
        used[j] = true;
        d.clear();
      }
    }
    EXPECT_EQ(d, "");
  }
}

class Golden : public ::testing::TestWithParam<const char*> {};

TEST_P(Golden, Transcripts) {
  const auto file = json::parse_file(fmt::format("{}/tests/protocol/{}.json", TERN_SOURCE_DIR, GetParam()));
  ASSERT_TRUE(file.ok()) << file.error().message;
  std::map<std::string, std::unique_ptr<answer::AnswerFormat>> formats;
  std::map<std::string, std::unique_ptr<TestServer>> servers;
  for (const auto& item : file->get_array()) {
    const auto& c = item.get_object();
    SCOPED_TRACE(std::string(c.at("name").get_string()));
    const json::Object overrides = overrides_of(c);
    const std::string key = json::dump(overrides);
    auto& server = servers[key];
    if (!server) {
      formats[key] = format_of(overrides);
      const ServeConfig config = config_of(overrides);
      server = std::make_unique<TestServer>(config, engine_of(config), true, formats[key].get());
    }
    Client client(port_of(c, *server));
    const Reply reply = client.request(c.at("method").get_string(), c.at("path").get_string(), body_of(c));
    EXPECT_EQ(reply.status, c.at("status").get_int64()) << reply.body;
    if (const auto* want = json::find(c, "json")) {
      EXPECT_EQ(difference(*want, reply.json(), ""), "");
      EXPECT_EQ(reply.header("content-type"), "application/json");
    } else if (json::find(c, "events") != nullptr) {
      check_events(c, reply);
    } else if (const auto* lines = json::find(c, "lines")) {
      for (const json::Value& line : lines->get_array()) {
        EXPECT_NE(("\n" + reply.body).find("\n" + std::string(line.get_string()) + "\n"), std::string::npos) << line;
      }
    } else {
      EXPECT_EQ(reply.body, std::string_view(c.at("text").get_string()));
    }
    if (reply.header("connection") != "close") {
      EXPECT_NE(client.get("/health").status, 0) << "the connection goes on";
    }
  }
}

constexpr const char* kFiles[] = {"chat",    "chat_stream", "completions", "completions_stream", "errors",   "inert",
                                  "lenient", "endpoints",   "answers",     "responses",          "messages", "pooling"};

INSTANTIATE_TEST_SUITE_P(Protocol, Golden, ::testing::ValuesIn(kFiles),
                         [](const auto& instance) { return std::string(instance.param); });

// The PaddleNLP front's ports and the page have tests of their own (tests/paddlenlp, tests/page).
TEST(GoldenRoutes, EachHasACase) {
  std::vector<std::string> asked;  // "GET /health"
  for (const char* name : kFiles) {
    const auto file = json::parse_file(fmt::format("{}/tests/protocol/{}.json", TERN_SOURCE_DIR, name));
    ASSERT_TRUE(file.ok()) << file.error().message;
    for (const auto& item : file->get_array()) {
      const auto& c = item.get_object();
      asked.push_back(fmt::format("{} {}", std::string_view(c.at("method").get_string()),
                                  std::string_view(c.at("path").get_string())));
    }
  }
  for (const Route& route : routes()) {
    if ((route.ports & (kMainPort | kMetricsPort | kControllerPort)) == 0 || route.page) continue;
    for (const auto& [bit, method] : {std::pair{kGetBit, "GET"}, {kPostBit, "POST"}}) {
      if ((route.methods & bit) == 0) continue;
      const size_t brace = route.path.find('{');
      const std::string want = fmt::format("{} {}", method, route.path.substr(0, brace));
      EXPECT_TRUE(std::ranges::any_of(asked,
                                      [&](const std::string& a) {
                                        return brace == std::string_view::npos
                                                   ? a == want
                                                   : a.starts_with(want) && a.size() > want.size();
                                      }))
          << "no case in tests/protocol: " << want;
    }
  }
}

}  // namespace
}  // namespace tern::serve::testing
