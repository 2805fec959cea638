#include "serve/openai/chat_words.h"

#include <algorithm>

namespace tern::serve::openai {
namespace {

constexpr std::string_view kExtras[] = {"seed",
                                        "stop",
                                        "stop_token_ids",
                                        "include_stop_str_in_output",
                                        "skip_special_tokens",
                                        "ignore_eos",
                                        "min_tokens",
                                        "top_k",
                                        "min_p",
                                        "repetition_penalty",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "logit_bias",
                                        "bad_words",
                                        "bad_words_token_ids",
                                        "request_id",
                                        "trace_context",
                                        "cache_salt",
                                        "chat_template",
                                        "disable_chat_template",
                                        "prompt_token_ids",
                                        "chat_template_kwargs",
                                        "enable_thinking",
                                        "documents",
                                        "include_reasoning",
                                        "reasoning_max_tokens",
                                        "response_max_tokens",
                                        "thinking_token_budget",
                                        "logits_processors_args",
                                        "mm_processor_kwargs",
                                        "structured_outputs",
                                        "guided_json",
                                        "guided_regex",
                                        "guided_choice",
                                        "guided_grammar",
                                        "guided_json_object",
                                        "structural_tag",
                                        "n",
                                        "best_of",
                                        "use_beam_search",
                                        "priority",
                                        "allowed_token_ids",
                                        "truncate_prompt_tokens"};

}  // namespace

void move_extras(json::Object& body, std::span<const std::string_view> taken, json::Object& chat) {
  for (const std::string_view key : kExtras) {
    json::Value* value = body.if_contains(key);
    if (value == nullptr || std::ranges::find(taken, key) != taken.end()) continue;
    chat[key] = std::move(*value);
  }
}

json::Object chat_tool(json::Value name, json::Value description, json::Value schema, json::Value strict) {
  json::Object function;
  function["name"] = std::move(name);
  if (!description.is_null()) function["description"] = std::move(description);
  if (!schema.is_null()) function["parameters"] = std::move(schema);
  if (!strict.is_null()) function["strict"] = std::move(strict);
  json::Object tool;
  tool["type"] = "function";
  tool["function"] = std::move(function);
  return tool;
}

json::Object chat_choice(std::string_view name) {
  return {{"type", "function"}, {"function", json::Object{{"name", name}}}};
}

Error renamed(Error error, std::span<const std::pair<std::string_view, std::string_view>> names) {
  for (const auto& [chat, here] : names) {
    if (error.param != chat) continue;
    error.param = here;
    break;
  }
  return error;
}

}  // namespace tern::serve::openai
