// continue_final_message and return_token_strs: prompts that end inside their last message.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "serve/prepare/continue_message.h"
#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

constexpr const char* kPlain =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% "
    "endif %}";
constexpr const char* kTrims = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }} </>{% endfor %}";
constexpr const char* kDrops = "{% for m in messages if m.role != 'assistant' %}{{ m.content }}{% endfor %}";

ServeConfig own_templates() {
  ServeConfig config = test_config();
  config.allow_client_chat_template = true;
  return config;
}

std::string body_of(std::string_view last, std::string_view more, std::string_view chat_template = {}) {
  json::Object user, assistant, body;
  user["role"] = "user";
  user["content"] = "Say </> twice";
  assistant["role"] = "assistant";
  assistant["content"] = last;
  body["messages"] = json::Array{user, assistant};
  if (!chat_template.empty()) body["chat_template"] = chat_template;
  const json::Object fields = json::parse(more)->as_object();
  for (const auto& [key, value] : fields) body[key] = value;
  return json::dump(body);
}

constexpr const char* kContinue = R"({"continue_final_message":true,"add_generation_prompt":false})";

// The prompt of a chat request, as text again.
std::string prompt_of(int port, const std::string& body) {
  Client c(port);
  const auto reply = c.post("/tokenize", body);
  if (reply.status != 200) return fmt::format("{} {}", reply.status, reply.body);
  const auto ids = reply.json().as_object().at("tokens");
  return std::string(c.post("/detokenize", fmt::format("{{\"tokens\":{}}}", json::dump(ids)))
                         .json()
                         .as_object()
                         .at("prompt")
                         .as_string());
}

TEST(ContinueMessage, ThePromptEndsInsideTheLastMessage) {
  TestServer server(own_templates());
  const auto prompt = [&](std::string_view last, const char* text) {
    return prompt_of(server.port(), body_of(last, kContinue, text));
  };
  const std::string head = "<user>Say </> twice</><assistant>";
  EXPECT_EQ(prompt("Sure: </> and", kPlain), head + "Sure: </> and");
  EXPECT_EQ(prompt(" Sure, \n", kPlain), head + " Sure, \n") << "a template that keeps white space keeps it";
  EXPECT_EQ(prompt("Sure, \n", kTrims), "<user>Say </> twice </><assistant>Sure,") << "one that trims does not";
  EXPECT_EQ(prompt("", kPlain), head);
  EXPECT_EQ(prompt("Say </> twice", kPlain), head + "Say </> twice")
      << "the last one, not the first that looks like it";
  EXPECT_EQ(prompt_of(server.port(), body_of("Sure", R"({"add_generation_prompt":false})", kPlain)), head + "Sure</>");
  EXPECT_EQ(prompt_of(server.port(), body_of("Sure", "{}", kPlain)), head + "Sure</><assistant>");
}

TEST(ContinueMessage, WithTheModelsOwnTemplate) {
  TestServer server;
  const std::string whole = prompt_of(server.port(), body_of("Sure, here", R"({"add_generation_prompt":false})"));
  const std::string open = prompt_of(server.port(), body_of("Sure, here", kContinue));
  EXPECT_TRUE(open.ends_with("Sure, here")) << open;
  EXPECT_TRUE(whole.starts_with(open) && whole.size() > open.size());

  // The engine gets the same ids as /tokenize counts.
  RecordingEngine engine;
  engine.refuse = true;
  auto recording =
      Server::start(test_config(), engine, {text_parts().tokenizer.get(), text_parts().chat_template.get()});
  ASSERT_TRUE(recording.ok());
  Client((*recording)->port()).post("/v1/chat/completions", body_of("Sure, here", kContinue));
  (*recording)->stop(0);
  ASSERT_EQ(engine.requests().size(), 1u);
  EXPECT_EQ(text_parts().tokenizer->decode(engine.requests()[0].prompt, false), open);
}

TEST(ContinueMessage, WhatCannotBeContinued) {
  TestServer server(own_templates());
  const auto error = [&](const std::string& body) {
    const auto reply = Client(server.port()).post("/v1/chat/completions", body);
    EXPECT_EQ(reply.status, 400) << body;
    const auto e = reply.json().as_object().at("error").as_object();
    EXPECT_EQ(e.at("param").as_string(), "continue_final_message") << body;
    return std::string(e.at("message").as_string());
  };
  EXPECT_EQ(error(body_of("Sure", R"({"continue_final_message":true})")),
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True.");
  EXPECT_EQ(error(body_of("Sure", R"({"continue_final_message":true,"add_generation_prompt":true})")),
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True.");
  EXPECT_NE(error(body_of("Sure", kContinue, kDrops)).find("does not print the final message"), std::string::npos);
  const char* fields = R"("continue_final_message":true,"add_generation_prompt":false)";
  EXPECT_NE(error(fmt::format(
                      R"({{"messages":[{{"role":"assistant","content":null,"tool_calls":[{{"id":"a","type":"function",)"
                      R"("function":{{"name":"f","arguments":"{{}}"}}}}]}}],{}}})",
                      fields))
                .find("calls tools"),
            std::string::npos);
  EXPECT_NE(error(fmt::format(R"({{"messages":[],"prompt_token_ids":[5],{}}})", fields)).find("needs messages"),
            std::string::npos);
  EXPECT_NE(
      error(body_of("Sure", fmt::format(R"({{"disable_chat_template":true,{}}})", fields))).find("needs messages"),
      std::string::npos);
}

TEST(ContinueMessage, TheLastTextOfAListOfParts) {
  auto messages = *json::parse(
      R"([{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"b"},{"type":"text","text":"c"},{"type":"image"}]}])");
  ASSERT_TRUE(prepare::mark_final_message(messages).ok());
  const auto& parts = messages.at(1).at("content");
  EXPECT_EQ(parts.at(0).at("text").as_string(), "b");
  EXPECT_NE(parts.at(1).at("text").as_string(), "c");
  EXPECT_TRUE(parts.at(1).at("text").as_string().starts_with("c"));
  auto none = *json::parse(R"([{"role":"assistant","content":[{"type":"image"}]}])");
  EXPECT_FALSE(prepare::mark_final_message(none).ok());
}

TEST(TokenStrs, AsTheVocabularySpellsThem) {
  TestServer server;
  Client c(server.port());
  const auto tokens = [&](const std::string& body) { return c.post("/tokenize", body).json().as_object(); };
  const auto plain = tokens(R"({"prompt":"a b<|end|>"})");
  EXPECT_TRUE(plain.at("token_strs").is_null());
  EXPECT_TRUE(tokens(R"({"prompt":"a b","return_token_strs":false})").at("token_strs").is_null());
  const auto named = tokens(R"({"prompt":"a b<|end|>","return_token_strs":true})");
  EXPECT_EQ(named.at("tokens"), plain.at("tokens"));
  ASSERT_EQ(named.at("token_strs").as_array().size(), named.at("tokens").as_array().size());
  for (size_t i = 0; i < named.at("tokens").as_array().size(); ++i) {
    const auto id = static_cast<int32_t>(named.at("tokens").at(i).as_int64());
    EXPECT_EQ(named.at("token_strs").at(i).as_string(), text_parts().tokenizer->id_to_token(id));
  }
  EXPECT_EQ(named.at("token_strs").as_array().back().as_string(), "<|end|>");
  EXPECT_NE(json::dump(named.at("token_strs"))
                .find("\xc4\xa0"
                      "b"),
            std::string::npos)
      << "a space is spelled as there";
  const auto chat = tokens(R"({"messages":[{"role":"user","content":"a b"}],"return_token_strs":true})");
  EXPECT_EQ(chat.at("token_strs").as_array().size(), static_cast<size_t>(chat.at("count").as_int64()));
  EXPECT_EQ(c.post("/tokenize", R"({"prompt":"a","return_token_strs":"maybe"})").status, 400);
}

}  // namespace
}  // namespace tern::serve::testing
