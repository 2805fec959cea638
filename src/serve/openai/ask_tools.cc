// Tools of a chat request (fastdeploy.md 3.1, 3.11).
#include <fmt/format.h>

#include <algorithm>

#include "serve/openai/ask_parts.h"

namespace tern::serve::openai {
namespace {

// Faults name the place: tools[0].function.name.
bool read_tool(Fields& f, const json::Value& tool, size_t number, answer::ToolSpec& spec) {
  const auto fail = [&](std::string message, std::string_view part) {
    f.fail(std::move(message), fmt::format("tools[{}]{}", number, part));
    return false;
  };
  if (!tool.is_object()) return fail("Input should be a valid dictionary", "");
  if (const json::Value* type = json::find(tool.get_object(), "type")) {
    if (!type->is_string() || type->get_string() != "function") return fail("Input should be 'function'", ".type");
  }
  const json::Value* function = json::find(tool.get_object(), "function");
  if (function == nullptr) return fail("Field required", ".function");
  if (!function->is_object()) return fail("Input should be a valid dictionary", ".function");
  const json::Object& object = function->get_object();
  const json::Value* name = json::find(object, "name");
  if (name == nullptr) return fail("Field required", ".function.name");
  if (!name->is_string()) return fail("Input should be a valid string", ".function.name");
  if (name->get_string().empty()) return fail("String should have at least 1 character", ".function.name");
  if (const json::Value* parameters = json::find(object, "parameters")) {
    if (!parameters->is_object()) return fail("Input should be a valid dictionary", ".function.parameters");
    spec.parameters = *parameters;
  }
  const json::Value* strict = json::find(object, "strict");
  spec.strict = strict != nullptr && strict->is_bool() && strict->get_bool();
  spec.name = std::string(name->get_string());
  return true;
}

const json::Value* find_name(const json::Object& choice) {
  const json::Value* function = json::find(choice, "function");
  return json::find(function != nullptr && function->is_object() ? function->get_object() : choice, "name");
}

std::string chosen_name(const json::Object& choice) { return std::string(find_name(choice)->get_string()); }

// A choice by name must name one of the tools.
void check_choice(Fields& f, const json::Object& choice, const answer::Tools& tools) {
  const json::Value* name = find_name(choice);
  if (name == nullptr || !name->is_string()) return f.fail("Field required", "tool_choice.function.name");
  const std::string_view wanted = name->get_string();
  if (std::ranges::any_of(tools, [&](const answer::ToolSpec& tool) { return tool.name == wanted; })) return;
  f.fail(fmt::format("tool_choice names a tool that is not among tools: {}", wanted.substr(0, 64)),
         "tool_choice.function.name");
}

// tool_choice: "required", a tool's name in an object, or neither.
void read_choice(Fields& f, Ask& ask, const ServeConfig& config, const json::Value& choice, answer::Tools& tools) {
  if (choice.is_string() && choice.get_string() != "required") return;
  if (tools.empty()) return f.fail("tool_choice needs tools", "tool_choice");
  if (choice.is_object()) check_choice(f, choice.get_object(), tools);
  if (!f.ok()) return;
  if (!config.tool_call_parser || !config.guided) return;  // refused by check_inert()
  ask.force_calls = true;
  if (!choice.is_object()) return;
  const std::string named = chosen_name(choice.get_object());
  std::erase_if(tools, [&](const answer::ToolSpec& tool) { return tool.name != named; });
  ask.parallel_calls = false;  // just this call
}

}  // namespace

void read_tools(Fields& f, Ask& ask, const ServeConfig& config) {
  auto specs = std::make_shared<answer::Tools>();
  if (const json::Value* tools = f.find("tools")) {
    if (!tools->is_array()) return f.fail("Input should be a valid list", "tools");
    const json::Array& list = tools->get_array();
    if (list.size() > static_cast<size_t>(config.limits.tools)) return f.fail("too many tools", "tools");
    specs->resize(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      if (!read_tool(f, list[i], i, (*specs)[i])) return;
    }
    if (!list.empty()) ask.tools = *tools;
  }
  f.boolean("parallel_tool_calls", ask.parallel_calls);
  const json::Value* choice = f.find("tool_choice");
  if (choice != nullptr) read_choice(f, ask, config, *choice, *specs);
  if (choice != nullptr && choice->is_string() && choice->get_string() == "none") {
    ask.forbid_calls = !specs->empty();
    ask.tools = nullptr;  // the model does not see them
  } else if (!specs->empty() && config.tool_call_parser) {
    ask.tool_specs = std::move(specs);
  }
}

}  // namespace tern::serve::openai
