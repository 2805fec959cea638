#include "serve/anthropic/request.h"

#include <fmt/format.h>

#include <limits>

#include "serve/anthropic/blocks.h"
#include "serve/openai/chat_words.h"
#include "serve/openai/json/error.h"
#include "serve/openai/json/fields.h"

namespace tern::serve::anthropic {
namespace {

using openai::Fields;

constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();

void read_conversation(Fields& f, json::Object& body, json::Object& chat, prepare::Places& places) {
  prepare::Conversation conversation;
  const auto keep = [&](const Status& status) {
    if (!status.ok()) f.fail(status.error().message, status.error().param);
  };
  if (const json::Value* system = f.find("system")) keep(read_system(*system, conversation));
  json::Value* messages = body.if_contains("messages");
  if (messages == nullptr || messages->is_null()) return f.fail("messages: Field required", "messages");
  if (!messages->is_array()) return f.fail("messages: Input should be a valid list", "messages");
  if (messages->get_array().empty()) return f.fail("messages: at least one message is required", "messages");
  keep(read_messages(messages->get_array(), conversation));
  if (conversation.ends_in_call()) {
    f.fail("messages: the last tool_use has no tool_result behind it", "messages");
  }
  if (conversation.ends_in_text()) {  // the answer goes on where that message ends
    chat["continue_final_message"] = true;
    chat["add_generation_prompt"] = false;
  }
  chat["messages"] = conversation.take(places);
}

std::string text_under(const json::Object& object, std::string_view key) {
  const json::Value* value = json::find(object, key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

// Tools of the client; those with other types run in Anthropic's servers, and are left out.
void read_tools(Fields& f, json::Object& chat) {
  const json::Value* tools = f.find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) return f.fail("tools: Input should be a valid list", "tools");
  json::Array made;
  for (size_t i = 0; i < tools->get_array().size(); ++i) {
    const json::Value& value = tools->get_array()[i];
    const std::string where = fmt::format("tools[{}]", i);
    if (!value.is_object()) return f.fail(where + ": Input should be a valid dictionary", where);
    const json::Object& tool = value.get_object();
    const std::string type = text_under(tool, "type"), name = text_under(tool, "name");
    if (!type.empty() && type != "custom") continue;
    if (name.empty()) return f.fail(where + ".name: Field required", where + ".name");
    const json::Value* schema = json::find(tool, "input_schema");
    if (schema == nullptr || !schema->is_object()) {
      return f.fail(where + ".input_schema: Input should be a valid dictionary", where + ".input_schema");
    }
    const json::Value* description = json::find(tool, "description");
    const json::Value* strict = json::find(tool, "strict");
    made.push_back(openai::chat_tool(json::Value(name), description != nullptr ? *description : json::Value(), *schema,
                                     strict != nullptr ? *strict : json::Value()));
  }
  if (!made.empty()) chat["tools"] = std::move(made);
}

void read_choice(Fields& f, json::Object& chat) {
  const json::Object* choice = f.object("tool_choice");
  if (choice == nullptr) return;
  const std::string type = text_under(*choice, "type"), name = text_under(*choice, "name");
  if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "tool" && !name.empty()) {
    chat["tool_choice"] = openai::chat_choice(name);
  } else if (type == "tool") {
    return f.fail("tool_choice.name: Field required", "tool_choice.name");
  } else {
    return f.fail("tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'", "tool_choice.type");
  }
  Fields c(*choice);
  bool one = false;
  c.boolean("disable_parallel_tool_use", one);
  if (!c.ok()) return f.fail(c.error()->message, "tool_choice.disable_parallel_tool_use");
  if (one) chat["parallel_tool_calls"] = false;
}

// "enabled" limits the thoughts; "adaptive" leaves them to the model, as no field at all does.
void read_thinking(Fields& f, json::Object& chat) {
  const json::Object* thinking = f.object("thinking");
  if (thinking == nullptr) return;
  const std::string type = text_under(*thinking, "type");
  if (type == "adaptive") return;
  if (type != "enabled" && type != "disabled") {
    return f.fail("thinking.type: Input should be 'enabled', 'disabled' or 'adaptive'", "thinking.type");
  }
  chat["enable_thinking"] = type == "enabled";
  if (type == "disabled") return;
  Fields t(*thinking);
  std::optional<int64_t> budget;
  t.integer("budget_tokens", budget, 1, kMaxInt);
  if (!t.ok()) return f.fail("thinking.budget_tokens: " + t.error()->message, "thinking.budget_tokens");
  if (!budget) return f.fail("thinking.budget_tokens: Field required", "thinking.budget_tokens");
  chat["reasoning_max_tokens"] = *budget;
}

void read_output(Fields& f, json::Object& chat) {
  const json::Object* output = f.object("output_config");
  if (output == nullptr) return;
  const std::string effort = text_under(*output, "effort");
  if (!effort.empty()) chat["reasoning_effort"] = effort;
  const json::Value* format = json::find(*output, "format");
  if (format == nullptr) return;
  if (!format->is_object() || text_under(format->get_object(), "type") != "json_schema") {
    return f.fail("output_config.format.type: Input should be 'json_schema'", "output_config.format.type");
  }
  const json::Value* schema = json::find(format->get_object(), "schema");
  if (schema == nullptr || !schema->is_object()) {
    return f.fail("output_config.format.schema: Field required", "output_config.format.schema");
  }
  chat["response_format"] =
      json::Object{{"type", "json_schema"},
                   {"json_schema", json::Object{{"name", "answer"}, {"schema", *schema}, {"strict", true}}}};
}

void read_same(Fields& f, json::Object& chat, openai::Purpose purpose) {
  std::optional<int64_t> limit;
  f.integer("max_tokens", limit, 1, kMaxInt);
  if (limit)
    chat["max_tokens"] = *limit;
  else if (purpose == openai::Purpose::kAnswer)
    f.fail("max_tokens: Field required", "max_tokens");
  for (const std::string_view key : {"model", "stream", "temperature", "top_p", "top_k"}) {
    if (const json::Value* value = f.find(key)) chat[key] = *value;
  }
  if (const json::Value* stops = f.find("stop_sequences")) {
    if (!stops->is_array()) return f.fail("stop_sequences: Input should be a valid list", "stop_sequences");
    chat["stop"] = *stops;
  }
}

constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"stop", "stop_sequences"},
    {"response_format", "output_config.format"},
    {"json_schema", "output_config.format"},
    {"reasoning_effort", "output_config.effort"},
    {"reasoning_max_tokens", "thinking.budget_tokens"},
    {"parallel_tool_calls", "tool_choice.disable_parallel_tool_use"},
    {"tool_choice.function.name", "tool_choice.name"}};

// Errors of this protocol have no field for the place: it stands in front of the words.
Error placed(Error error) {
  if (!error.param.empty() && !error.message.starts_with(error.param)) {
    error.message = fmt::format("{}: {}", error.param, error.message);
  }
  return error;
}

}  // namespace

Expected<Ask> read_request(json::Value body, const ServeConfig& config, openai::Purpose purpose) {
  if (!body.is_object()) return invalid_value("Input should be a valid dictionary", "body");
  json::Object& object = body.get_object();
  Fields f(object);
  json::Object chat;
  prepare::Places places;
  read_conversation(f, object, chat, places);
  constexpr std::string_view kTaken[] = {"stop", "top_k", "reasoning_max_tokens"};
  openai::move_extras(object, kTaken, chat);
  read_same(f, chat, purpose);
  read_tools(f, chat);
  read_choice(f, chat);
  read_thinking(f, chat);
  read_output(f, chat);
  if (!f.ok()) return placed(f.take_error());
  auto ask = openai::parse_chat(std::move(chat), config, purpose);
  if (!ask.ok()) {
    Error error = openai::renamed(std::move(ask).error(), kNames);
    prepare::rename_place(places, error.param);
    return placed(std::move(error));
  }
  for (content::MediaPart& part : ask->media) prepare::rename_place(places, part.where);
  if (ask->n != 1) return invalid_value("n can only be 1: a message is one answer", "n");
  ask->id_prefix = "msg_";
  return ask;
}

}  // namespace tern::serve::anthropic
