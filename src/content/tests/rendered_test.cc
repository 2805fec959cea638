// Real chat templates against recorded prompts.
#include "content/tests/test_data.h"
#include "content/text/chat_template.h"

namespace tern::content {
namespace {

constexpr int64_t kRecordedTime = 1748779200;  // 2025-06-01 12:00:00

TEST(Rendered, EveryBindingCaseIsExact) {
  TERN_NEED_SHARED_DATA();
  const std::string root = shared_data() + "/chat/";
  const json::Value file = load_json(root + "rendered.json");
  int exact = 0;
  int other = 0;
  for (const json::Value& result : file.at("results").as_array()) {
    const json::Object& r = result.as_object();
    const std::string name(r.at("template").as_string());
    const json::Value* conversation = nullptr;
    for (const json::Value& c : file.at("conversations").as_array()) {
      if (c.at("case") == r.at("case")) conversation = &c;
    }
    ASSERT_NE(conversation, nullptr);
    SpecialText special;
    for (const auto& [key, text] : file.at("special_tokens").at(name).as_object()) {
      special.named.emplace_back(key, std::string(text.as_string()));
    }
    RenderInput input;
    input.messages = &conversation->at("messages");
    input.tools = &conversation->at("tools");
    input.kwargs = &conversation->at("extra").as_object();
    auto compiled = ChatTemplate::compile(slurp(root + "templates/" + name));
    ASSERT_TRUE(compiled.ok()) << name << ": " << compiled.error().message;
    auto variables = render_variables(input, special);
    ASSERT_TRUE(variables.ok());
    auto prompt = (*compiled)->render(*variables, kRecordedTime);
    const bool same = r.contains("text") ? prompt.ok() && *prompt == r.at("text").as_string() : !prompt.ok();
    const bool binding = !r.contains("binding") || r.at("binding").as_bool();
    if (binding) {
      EXPECT_TRUE(same) << name << " " << r.at("case") << "\n"
                        << (prompt.ok() ? *prompt : prompt.error().message) << "\nexpected\n"
                        << result;
    }
    (same ? exact : other) += 1;
  }
  EXPECT_EQ(exact + other, 192);
  EXPECT_GE(exact, 189);
}

TEST(Rendered, FunctionaryTranscript) {
  TERN_NEED_SHARED_DATA();
  const std::string root = shared_data() + "/chat/";
  const json::Value test_case = load_json(root + "transcripts/functionary/test_case_preprocessed.json");
  auto compiled = ChatTemplate::compile(slurp(root + "templates/functionary-qwen2.5-text-only.jinja"));
  ASSERT_TRUE(compiled.ok());
  RenderInput input;
  input.messages = &test_case.at("messages");
  input.tools = &test_case.at("tools");
  input.add_generation_prompt = false;
  auto variables = render_variables(input, {});
  auto prompt = (*compiled)->render(*variables, kRecordedTime);
  ASSERT_TRUE(prompt.ok()) << prompt.error().message;
  const auto trim = [](std::string s) {
    s.erase(0, s.find_first_not_of(" \n"));
    s.erase(s.find_last_not_of(" \n") + 1);
    return s;
  };
  EXPECT_EQ(trim(*prompt), trim(slurp(root + "transcripts/functionary/prompt_qwen2.5-text-only.txt")));
}

}  // namespace
}  // namespace tern::content
