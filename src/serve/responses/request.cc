#include "serve/responses/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "serve/openai/ask.h"
#include "serve/openai/chat_words.h"
#include "serve/openai/json/error.h"
#include "serve/openai/json/fields.h"
#include "serve/responses/items.h"

namespace tern::serve::responses {
namespace {

using openai::Fields;

constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
constexpr std::string_view kKeepsNothing = "this server keeps no answers: send the whole conversation as input";

// What only a server that keeps answers, or works behind the client's back, could do.
void refuse_state(Fields& f, const ServeConfig& config) {
  for (const std::string_view key : {"previous_response_id", "conversation"}) {
    if (f.find(key) != nullptr) f.fail(fmt::format("{} is not available: {}", key, kKeepsNothing), key);
  }
  if (f.find("prompt") != nullptr) {
    const json::Value& prompt = *f.find("prompt");
    if (prompt.is_object()) f.fail("prompt names a stored template, and this server stores none", "prompt");
  }
  bool background = false, store = false;
  f.boolean("background", background);
  if (background) f.fail(fmt::format("background is not available: {}", kKeepsNothing), "background");
  f.boolean("store", store);
  if (store && !config.allow_inert) f.fail("store cannot be kept: this server stores no answers", "store");
  std::string truncation;
  f.string("truncation", truncation, 64);
  if (!truncation.empty() && truncation != "disabled") {
    f.fail("truncation can only be 'disabled': prompts are never cut", "truncation");
  }
}

// Log-probs are asked for by a name in `include`; the other names speak of tools that no answer here has.
void read_include(Fields& f, json::Object& chat) {
  constexpr std::string_view kLogprobs = "message.output_text.logprobs";
  constexpr std::string_view kNames[] = {kLogprobs,
                                         "reasoning.encrypted_content",
                                         "file_search_call.results",
                                         "web_search_call.results",
                                         "web_search_call.action.sources",
                                         "message.input_image.image_url",
                                         "computer_call_output.output.image_url",
                                         "code_interpreter_call.outputs"};
  const json::Value* include = f.find("include");
  if (include == nullptr) return;
  if (!include->is_array()) return f.fail("Input should be a valid list", "include");
  for (const json::Value& name : include->get_array()) {
    if (!name.is_string()) return f.fail("Input should be a valid string", "include");
    const std::string_view text = name.get_string();
    if (std::ranges::find(kNames, text) == std::end(kNames)) {
      return f.fail(fmt::format("include: {} is not known", text.substr(0, 64)), "include");
    }
    if (text == kLogprobs) chat["logprobs"] = true;
  }
}

void read_reasoning(Fields& f, json::Object& chat) {
  const json::Object* reasoning = f.object("reasoning");
  if (reasoning == nullptr) return;
  Fields r(*reasoning);
  std::string effort, summary;
  r.string("effort", effort, 64);
  r.string("summary", summary, 64);
  if (!r.ok()) return f.fail(r.error()->message, "reasoning." + r.error()->param);
  if (effort.empty()) return;
  chat["reasoning_effort"] = effort;
  if (effort == "none" && !chat.contains("enable_thinking")) chat["enable_thinking"] = false;
}

void read_text(Fields& f, json::Object& chat) {
  const json::Object* text = f.object("text");
  if (text == nullptr) return;
  if (const json::Value* verbosity = json::find(*text, "verbosity")) chat["verbosity"] = *verbosity;
  const json::Value* format = json::find(*text, "format");
  if (format == nullptr) return;
  if (!format->is_object()) return f.fail("Input should be a valid dictionary", "text.format");
  const json::Object& given = format->get_object();
  json::Object made = given;
  const json::Value* type = json::find(given, "type");
  if (type != nullptr && *type == "json_schema") {
    made.clear();
    made["type"] = "json_schema";
    json::Object schema = given;
    schema.erase("type");
    made["json_schema"] = std::move(schema);
  }
  chat["response_format"] = std::move(made);
}

std::string_view kind_of(const json::Value& tool) {
  const json::Object* object = tool.if_object();
  const json::Value* type = object != nullptr ? json::find(*object, "type") : nullptr;
  return type != nullptr && type->is_string() ? std::string_view(type->get_string()) : std::string_view();
}

// Functions; tools of other kinds run in OpenAI's servers, and are left out. `kept` are the client's own words.
void read_tools(Fields& f, json::Array& kept, json::Object& chat) {
  const json::Value* tools = f.find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) return f.fail("Input should be a valid list", "tools");
  json::Array made;
  for (size_t i = 0; i < tools->get_array().size(); ++i) {
    const json::Value& tool = tools->get_array()[i];
    const std::string_view kind = kind_of(tool);
    if (kind.empty()) return f.fail("Field required", fmt::format("tools[{}].type", i));
    if (kind != "function") continue;
    const json::Object& function = tool.get_object();
    const auto part = [&](std::string_view key) {
      const json::Value* value = json::find(function, key);
      return value != nullptr ? *value : json::Value();
    };
    const json::Value name = part("name"), schema = part("parameters");
    if (!name.is_string() || name.get_string().empty()) {
      return f.fail("Field required", fmt::format("tools[{}].name", i));
    }
    if (!schema.is_null() && !schema.is_object()) {
      return f.fail("Input should be a valid dictionary", fmt::format("tools[{}].parameters", i));
    }
    made.push_back(openai::chat_tool(name, part("description"), schema, part("strict")));
    kept.push_back(tool);
  }
  if (!made.empty()) chat["tools"] = std::move(made);
}

// {"type":"allowed_tools","mode","tools":[{"type":"function","name"}]}: the others are not shown to the model.
void allow_tools(Fields& f, const json::Object& choice, json::Object& chat) {
  const json::Value* list = json::find(choice, "tools");
  const json::Value* mode = json::find(choice, "mode");
  if (list == nullptr || !list->is_array()) return f.fail("Field required", "tool_choice.tools");
  const auto allowed = [&](const json::Value& tool) {
    const json::Value& name = tool.at("function").at("name");
    return std::ranges::any_of(list->get_array(), [&](const json::Value& one) {
      const json::Object* object = one.if_object();
      const json::Value* given = object != nullptr ? json::find(*object, "name") : nullptr;
      return given != nullptr && *given == name;
    });
  };
  json::Array made;
  if (json::Value* tools = chat.if_contains("tools")) {
    for (json::Value& tool : tools->get_array()) {
      if (allowed(tool)) made.push_back(std::move(tool));
    }
  }
  if (made.empty()) return f.fail("tool_choice allows none of the tools", "tool_choice.tools");
  chat["tools"] = std::move(made);
  chat["tool_choice"] = mode != nullptr ? *mode : json::Value("auto");
}

void read_choice(Fields& f, json::Object& chat) {
  const json::Value* choice = f.find("tool_choice");
  if (choice == nullptr) return;
  if (!choice->is_object()) {
    chat["tool_choice"] = *choice;
    return;
  }
  const std::string_view kind = kind_of(*choice);
  if (kind == "allowed_tools") return allow_tools(f, choice->get_object(), chat);
  const json::Value* name = json::find(choice->get_object(), "name");
  if (kind != "function") {
    return f.fail(fmt::format("tool_choice: only functions can be chosen, not {}", kind.substr(0, 64)), "tool_choice");
  }
  if (name == nullptr || !name->is_string()) return f.fail("Field required", "tool_choice.name");
  chat["tool_choice"] = openai::chat_choice(name->get_string());
}

// What the answer says again of its request, with the values that hold.
json::Object repeated(const Fields& f, json::Array tools, const ServeConfig& config) {
  const auto given = [&](std::string_view key, json::Value otherwise) {
    const json::Value* value = f.find(key);
    return value != nullptr ? *value : std::move(otherwise);
  };
  json::Object out;
  for (const std::string_view key :
       {"instructions", "max_output_tokens", "max_tool_calls", "prompt_cache_key", "safety_identifier", "user"}) {
    out[key] = given(key, nullptr);
  }
  out["metadata"] = given("metadata", json::Object());
  out["parallel_tool_calls"] = given("parallel_tool_calls", true);
  out["reasoning"] = given("reasoning", json::Object{{"effort", nullptr}, {"summary", nullptr}});
  out["temperature"] = given("temperature", config.defaults.temperature.value_or(1.0));
  json::Object text = given("text", json::Object()).as_object();
  if (json::find(text, "format") == nullptr) text["format"] = json::Object{{"type", "text"}};
  out["text"] = std::move(text);
  out["tool_choice"] = given("tool_choice", "auto");
  out["tools"] = std::move(tools);
  out["top_logprobs"] = given("top_logprobs", 0);
  out["top_p"] = given("top_p", config.defaults.top_p.value_or(0.7));
  return out;
}

void read_conversation(Fields& f, json::Object& body, json::Object& chat, prepare::Places& places) {
  prepare::Conversation conversation;
  std::string instructions;
  f.string("instructions", instructions, std::numeric_limits<size_t>::max());
  if (!instructions.empty()) conversation.system(instructions);
  json::Value* input = body.if_contains("input");
  if (input == nullptr || input->is_null()) return f.fail("Field required", "input");
  if (Status read = read_input(*input, conversation); !read.ok())
    return f.fail(read.error().message, read.error().param);
  chat["messages"] = conversation.take(places);
}

// Fields that mean the same under another name, or under their own.
void read_same(Fields& f, json::Object& chat) {
  std::optional<int64_t> limit;
  f.integer("max_output_tokens", limit, 1, kMaxInt);
  if (limit) chat["max_tokens"] = *limit;
  for (const std::string_view key : {"model", "stream", "temperature", "top_p", "parallel_tool_calls"}) {
    if (const json::Value* value = f.find(key)) chat[key] = *value;
  }
  std::optional<int32_t> top;
  f.integer("top_logprobs", top, 0, std::numeric_limits<int32_t>::max());
  if (!top || *top == 0) return;
  chat["logprobs"] = true;
  chat["top_logprobs"] = *top;
}

constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"messages", "input"},
                                                                    {"role", "input"},
                                                                    {"content", "input"},
                                                                    {"max_tokens", "max_output_tokens"},
                                                                    {"response_format", "text.format"},
                                                                    {"json_schema", "text.format"},
                                                                    {"reasoning_effort", "reasoning.effort"},
                                                                    {"verbosity", "text.verbosity"},
                                                                    {"tool_choice.function.name", "tool_choice.name"},
                                                                    {"logprobs", "include"}};

}  // namespace

Expected<Ask> read_request(json::Value body, const ServeConfig& config) {
  if (!body.is_object()) return invalid_value("Input should be a valid dictionary", "body");
  json::Object& object = body.get_object();
  Fields f(object);
  json::Object chat;
  refuse_state(f, config);
  prepare::Places places;
  read_conversation(f, object, chat, places);
  json::Array tools;
  read_same(f, chat);
  openai::move_extras(object, {}, chat);
  read_include(f, chat);
  read_reasoning(f, chat);
  read_text(f, chat);
  read_tools(f, tools, chat);
  read_choice(f, chat);
  if (!f.ok()) return f.take_error();
  auto ask = openai::parse_chat(std::move(chat), config);
  if (!ask.ok()) {
    Error error = openai::renamed(std::move(ask).error(), kNames);
    prepare::rename_place(places, error.param);
    return error;
  }
  for (content::MediaPart& part : ask->media) prepare::rename_place(places, part.where);
  if (ask->n != 1) return invalid_value("n can only be 1: a response is one answer", "n");
  ask->id_prefix = "resp_";
  ask->shown = repeated(f, std::move(tools), config);
  return ask;
}

}  // namespace tern::serve::responses
