// What only a completions request has (fastdeploy.md 3.2).
#include <fmt/format.h>

#include <algorithm>

#include "serve/core/invalid.h"
#include "serve/openai/ask_parts.h"

namespace tern::serve::openai {
namespace {

// The text behind the gap that the answer fills. A dictionary is merge_extras()'s.
void read_suffix(Fields& f, Ask& ask) {
  const json::Value* suffix = f.find("suffix");
  if (suffix == nullptr || !suffix->is_string() || suffix->get_string().empty()) return;
  ask.suffix = std::string(suffix->get_string());
  if (!std::ranges::all_of(ask.prompts, &PromptInput::is_text))
    return f.fail("suffix needs a prompt of text", "suffix");
  if (ask.echo) f.fail("echo together with suffix is not available", "echo");
}

}  // namespace

Expected<std::vector<PromptInput>> read_prompts(const json::Value& value, const ServeConfig& config,
                                                std::string_view key, int32_t most) {
  std::vector<PromptInput> prompts;
  const std::string param(key);
  if (value.is_string()) {
    prompts.push_back({true, std::string(value.get_string()), {}});
    return prompts;
  }
  if (!value.is_array()) return invalid_value("Input should be a valid string or list", param);
  const json::Array& list = value.get_array();
  if (list.empty()) return invalid_value("List should have at least 1 item", param);
  if (list[0].is_number()) {
    TERN_ASSIGN_OR_RETURN(auto ids, read_ids(list, config.vocab_size, max_prompt_ids(config), key));
    prompts.push_back({false, {}, std::move(ids)});
    return prompts;
  }
  if (list.size() > static_cast<size_t>(most)) {
    return invalid_value(fmt::format("List should have at most {} items, not {}", most, list.size()), param);
  }
  for (const auto& item : list) {
    if (item.is_string() && list[0].is_string()) {
      prompts.push_back({true, std::string(item.get_string()), {}});
    } else if (item.is_array() && list[0].is_array()) {
      TERN_ASSIGN_OR_RETURN(auto ids, read_ids(item.get_array(), config.vocab_size, max_prompt_ids(config), key));
      prompts.push_back({false, {}, std::move(ids)});
    } else {
      return invalid_value("Input should be a string, a list of strings, a list of ids or a list of lists of ids",
                           param);
    }
  }
  return prompts;
}

size_t max_prompt_ids(const ServeConfig& config) { return config.http.body_bytes / 2; }

void read_completion_only(Fields& f, Ask& ask, const ServeConfig& config) {
  const json::Value* ids = f.find("prompt_token_ids");
  const json::Value* prompt = ids != nullptr ? ids : f.find("prompt");
  const std::string_view key = ids != nullptr ? "prompt_token_ids" : "prompt";
  if (prompt == nullptr) return f.fail("Field required", key);
  if (ids != nullptr && !ids->is_array()) return f.fail("Input should be a valid list", key);
  auto prompts = read_prompts(*prompt, config, key, config.limits.prompts);
  if (!prompts.ok()) return f.fail(prompts.error().message, key);
  ask.prompts = *std::move(prompts);
  f.boolean("echo", ask.echo);
  read_suffix(f, ask);
  if (static_cast<int64_t>(ask.prompts.size()) * ask.n > config.limits.choices) {
    f.fail(fmt::format("prompts x n may be at most {}", config.limits.choices), "n");
  }
}

}  // namespace tern::serve::openai
