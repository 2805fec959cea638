// Fields that steer a request beyond sampling, and those that have no effect.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <set>

#include "base/log.h"
#include "serve/openai/inert.h"
#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

struct Rig {
  explicit Rig(const ServeConfig& config = test_config()) {
    const auto& parts = text_parts();
    server =
        *Server::start(config, engine, {parts.tokenizer.get(), parts.chat_template.get(), parts.tool_template.get()});
  }
  ~Rig() {
    engine.ends_aborted = true;
    server->stop(0);
  }
  // What the engine is asked for a request.
  engine::Request asked(std::string_view path, std::string_view body) {
    open.push_back(std::make_unique<Client>(server->port()));
    open.back()->send(
        fmt::format("POST {} HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{}", path, body.size(), body));
    return engine.wait_request(open.size() - 1);
  }
  RecordingEngine engine;
  std::unique_ptr<Server> server;
  std::vector<std::unique_ptr<Client>> open;
};

std::string chat(std::string_view more) {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"hi"}}]{}}})", more);
}

TEST(RequestFields, CacheSaltKeepsEntriesApart) {
  Rig rig;
  const auto key = [&](std::string_view salt) {
    const auto r = rig.asked("/v1/completions", fmt::format(R"({{"prompt":[5,6,7]{}}})", salt));
    return r.extra_keys.empty() ? std::pair<uint64_t, uint64_t>{}
                                : std::pair<uint64_t, uint64_t>{r.extra_keys[0].key[0], r.extra_keys[0].key[1]};
  };
  const std::pair<uint64_t, uint64_t> none{};
  EXPECT_EQ(key(""), none);
  EXPECT_EQ(key(R"(,"cache_salt":"")"), none);
  const auto a = key(R"(,"cache_salt":"a")");
  EXPECT_NE(a, none);
  EXPECT_EQ(key(R"(,"cache_salt":"a")"), a);
  EXPECT_NE(key(R"(,"cache_salt":"b")"), a);
}

TEST(RequestFields, AddSpecialTokens) {
  Rig rig;
  const auto size = [&](std::string_view path, const std::string& body) { return rig.asked(path, body).prompt.size(); };
  const size_t with = size("/v1/completions", R"({"prompt":"hi there"})");
  EXPECT_EQ(size("/v1/completions", R"({"prompt":"hi there","add_special_tokens":true})"), with);
  EXPECT_EQ(size("/v1/completions", R"({"prompt":"hi there","add_special_tokens":false})"), with - 1);
  const size_t plain = size("/v1/chat/completions", chat(""));
  EXPECT_EQ(size("/v1/chat/completions", chat(R"(,"add_special_tokens":false)")), plain);
  EXPECT_EQ(size("/v1/chat/completions", chat(R"(,"add_special_tokens":true)")), plain + 1);
}

TEST(RequestFields, VariablesOfTheTemplate) {
  ServeConfig config = test_config();
  config.allow_client_chat_template = true;
  Rig rig(config);
  const auto prompt = [&](std::string_view more) {
    const auto r =
        rig.asked("/v1/chat/completions",
                  chat(fmt::format(R"(,"chat_template":"{{{{reasoning_effort}}}} {{{{documents}}}}"{})", more)));
    return text_parts().tokenizer->decode(r.prompt, false);
  };
  EXPECT_EQ(prompt(R"(,"reasoning_effort":"low","documents":["a"])"), "low ['a']");
  EXPECT_EQ(prompt(R"(,"reasoning_effort":"low","documents":[],"chat_template_kwargs":{"reasoning_effort":"high"})"),
            "high []")
      << "what is meant for the template comes first";
}

std::mutex g_lines_mutex;
std::vector<std::string> g_lines;
void keep_line(LogChannel, LogLevel, const char*, int, std::string_view message) {
  const std::lock_guard lock(g_lines_mutex);
  g_lines.emplace_back(message);
}

TEST(RequestFields, OneWarningForAFieldWithoutEffect) {
  ServeConfig config = test_config();
  config.allow_inert = true;
  Rig rig(config);
  set_log_sink(keep_line);
  for (int i = 0; i < 3; ++i) {
    rig.asked("/v1/chat/completions", chat(R"(,"thinking_token_budget":9,"media_io_kwargs":{"a":1},"store":false)"));
  }
  set_log_sink(nullptr);
  const std::lock_guard lock(g_lines_mutex);
  const auto lines = [](std::string_view field) {
    return std::count_if(g_lines.begin(), g_lines.end(),
                         [&](const std::string& line) { return line.find(field) != std::string::npos; });
  };
  EXPECT_LE(lines("thinking_token_budget"), 1) << "another test may have had it";
  EXPECT_LE(lines("media_io_kwargs"), 1);
  EXPECT_EQ(lines("store"), 0);
}

// docs/requests.md, "Refused": one row each.
TEST(RequestFields, DocumentNamesEveryFieldThatIsRefused) {
  std::ifstream in(std::string(TERN_SOURCE_DIR) + "/docs/requests.md");
  std::set<std::string> written;
  std::string line;
  bool refused = false;
  while (std::getline(in, line)) {
    if (line.starts_with("## ")) refused = line == "## Refused";
    for (size_t at = 0; refused && line.starts_with("| `") && at < line.find(" | ");) {
      const size_t open = line.find('`', at);
      const size_t close = line.find('`', open + 1);
      if (close == std::string::npos || open > line.find(" | ")) break;
      written.insert(line.substr(open + 1, close - open - 1));
      at = close + 1;
    }
  }
  std::set<std::string> known;
  for (const auto name : openai::inert_field_names()) known.emplace(name);
  EXPECT_EQ(written, known);
}

}  // namespace
}  // namespace tern::serve::testing
