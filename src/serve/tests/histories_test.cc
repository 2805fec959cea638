// Conversations as clients send them back, against the prompts of Python's renderer
// (tests/data/templates/histories.json).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/sha256.h"
#include "serve/openai/ask.h"
#include "serve/prepare/prepare.h"
#include "serve/tests/support.h"

namespace tern::serve {
namespace {

std::string data(const std::string& name) { return std::string(TERN_SOURCE_DIR) + "/tests/data/templates/" + name; }

// The folder of real templates, which is not part of the repository; "" when it is not there.
std::string shared_chat() {
  const char* set = std::getenv("TERN_SHARED_DATA");
  const std::string root = set ? std::string(set) : std::string(TERN_SOURCE_DIR) + "/../shared";
  return std::filesystem::is_directory(root + "/data/chat") ? root + "/data/chat" : std::string();
}

std::string hash(std::string_view text) {
  std::string out;
  for (const uint8_t byte : sha256(text)) out += fmt::format("{:02x}", byte);
  return out.substr(0, 32);
}

json::Value file() {
  auto value = json::parse_file(data("histories.json"));
  EXPECT_TRUE(value.ok()) << (value.ok() ? "" : value.error().message);
  return value.ok() ? *std::move(value) : json::Value();
}

struct Chat {
  // `path`: a template, or a model folder.
  explicit Chat(const std::string& path, json::Object variables = {}, bool sees = false)
      : kwargs(std::move(variables)) {
    auto found = content::find_templates(path);
    auto source = path.ends_with(".jinja") ? content::read_template(path) : found->default_template;
    EXPECT_TRUE(source.ok()) << path;
    auto made = content::ChatTemplate::compile(*source);
    EXPECT_TRUE(made.ok()) << path << ": " << (made.ok() ? "" : made.error().message);
    chat_template = *std::move(made);
    content::SpecialText special;
    for (const auto& [name, text] : kwargs) special.named.emplace_back(name, std::string(text.as_string()));
    const content::VisionProfile profile;
    form = prepare::probe_template(*chat_template, special, sees ? &profile : nullptr);
  }

  Expected<std::string> prompt(json::Value messages, json::Value tools = nullptr) const {
    json::Object body{{"messages", std::move(messages)}, {"tools", std::move(tools)}, {"chat_template_kwargs", kwargs}};
    const ServeConfig config = testing::test_config();
    TERN_ASSIGN_OR_RETURN(auto ask, openai::parse_chat(json::Value(std::move(body)), config));
    prepare::PrepareInput input;
    input.config = &config;
    input.content.chat_template = chat_template.get();
    input.chat_form = &form;
    return prepare::render_chat(ask, input);
  }

  json::Object kwargs;
  std::unique_ptr<content::ChatTemplate> chat_template;
  prepare::TemplateForm form;
};

json::Object tokens() { return {{"bos_token", "<s>"}, {"eos_token", "</s>"}}; }

// The tools a case was recorded with (tools/make_histories.py).
bool with_tools(std::string_view name, std::string_view conversation) {
  if (name == "llama-cpp-deepseek-r1") return false;
  for (const char* word : {"call", "argument", "tool "}) {
    if (conversation.find(word) != std::string_view::npos) return true;
  }
  return name.find("Hermes") != std::string_view::npos;
}

void check(const json::Value& all, std::string_view name, const Chat& chat, const json::Object& expected, bool hashed) {
  for (const auto& [conversation, want] : expected) {
    const auto got = chat.prompt(all.at("conversations").at(conversation),
                                 with_tools(name, conversation) ? all.at("tools") : json::Value(nullptr));
    const std::string shown = got.ok() ? *got : got.error().message;
    EXPECT_EQ(got.ok(), want.is_string()) << name << ", " << conversation << ": " << shown;
    if (!got.ok() || !want.is_string()) continue;
    EXPECT_EQ(hashed ? hash(*got) : *got, std::string(want.get_string())) << name << ", " << conversation << ":\n"
                                                                          << shown;
  }
}

TEST(Histories, RenderAsInPython) {
  const json::Value all = file();
  ASSERT_GE(all.at("own").as_object().size(), 8u);
  for (const auto& [name, expected] : all.at("own").as_object()) {
    const bool demo = name == "tern-demo-ocr";
    const Chat chat(
        demo ? std::string(TERN_SOURCE_DIR) + "/models/tern-demo-ocr" : data("own/" + std::string(name) + ".jinja"),
        tokens(), demo || name == "parts");
    check(all, name, chat, expected.as_object(), false);
  }
}

TEST(Histories, RealTemplatesRenderAsInPython) {
  const std::string folder = shared_chat();
  if (folder.empty()) GTEST_SKIP() << "no shared test data (set TERN_SHARED_DATA to its folder)";
  const json::Value all = file();
  const auto recorded = json::parse_file(folder + "/rendered.json");
  ASSERT_TRUE(recorded.ok());
  for (const auto& [name, expected] : all.at("others").as_object()) {
    const std::string jinja = std::string(name) + ".jinja";
    if (name == "minicpm") {
      check(all, name, Chat(folder + "/../tokenizers/minicpm", tokens()), expected.as_object(), true);
      continue;
    }
    const Chat chat(folder + "/templates/" + jinja, recorded->at("special_tokens").at(jinja).as_object(),
                    name.find("PaddleOCR") != std::string_view::npos);
    check(all, name, chat, expected.as_object(), true);
  }
}

TEST(Histories, ArgumentsOfManyDepths) {
  std::string deep = "1";
  for (int i = 0; i < 90; ++i) deep = "{\"a\": " + deep + "}";
  for (const char* name : {"joined", "parameters", "either_arguments", "written_arguments"}) {
    const Chat chat(data("own/" + std::string(name) + ".jinja"));
    for (const std::string& arguments : {deep, "[" + deep + "]", std::string(5000, '['), std::string(5000, '{')}) {
      const json::Array messages{
          json::Object{{"role", "user"}, {"content", "Hi"}},
          json::Object{{"role", "assistant"},
                       {"tool_calls", json::Array{json::Object{
                                          {"id", "abcdef123"},
                                          {"type", "function"},
                                          {"function", json::Object{{"name", "f"}, {"arguments", arguments}}}}}}},
          json::Object{{"role", "tool"}, {"tool_call_id", "abcdef123"}, {"content", "x"}}};
      const auto got = chat.prompt(messages);
      EXPECT_TRUE(got.ok()) << name << " " << arguments.substr(0, 20) << ": " << (got.ok() ? "" : got.error().message);
    }
  }
}

TEST(Histories, NoMessagesBesideIds) {
  const ServeConfig config = testing::test_config();
  const auto ask =
      openai::parse_chat(json::Object{{"messages", json::Array{}}, {"prompt_token_ids", json::Array{1, 2}}}, config);
  ASSERT_TRUE(ask.ok()) << ask.error().message;
  ASSERT_EQ(ask->prompts.size(), 1u);
  EXPECT_EQ(ask->prompts[0].ids, (std::vector<int32_t>{1, 2}));
  EXPECT_FALSE(openai::parse_chat(json::Object{{"messages", json::Array{}}}, config).ok());
  const json::Object none{{"messages", json::Array{}}, {"prompt_token_ids", json::Array{}}};
  EXPECT_FALSE(openai::parse_chat(none, config).ok());
}

}  // namespace
}  // namespace tern::serve
