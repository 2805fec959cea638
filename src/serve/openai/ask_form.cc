// Fields about the form of an answer: limits of thoughts, guided decoding (fastdeploy.md 3.10, 3.12).
#include <fmt/format.h>

#include <limits>

#include "content/grammar/constraint.h"
#include "serve/openai/ask_parts.h"

namespace tern::serve::openai {
namespace {

void read_budget(Fields& f, std::string_view key, std::optional<int64_t>& tokens, int64_t least) {
  f.integer(key, tokens, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  if (!tokens || *tokens >= least) return;
  f.fail(least == 1 ? fmt::format("{} must be greater than 0", key) : fmt::format("{} must not be below 0", key), key);
}

// Arguments of ThinkingBudgetLogitsProcessor.
void read_processor(Fields& f, Ask& ask, const ServeConfig& config) {
  constexpr std::string_view kKey = "logits_processors_args", kBudget = "thinking_budget";
  const json::Object* args = f.object(kKey);
  if (args == nullptr || (!args->contains(kBudget) && !args->contains("think_stop_sentence"))) return;
  if (!config.thinking_budget_processor) {
    return f.fail("thinking_budget needs a server started with --logits-processors ThinkingBudgetLogitsProcessor",
                  kKey);
  }
  Fields a(*args);
  std::optional<int64_t> budget;
  read_budget(a, kBudget, budget, 0);
  a.string("think_stop_sentence", ask.think_stop_sentence, 4096);
  if (!a.ok()) return f.fail(a.error()->message, kKey);
  if (!budget) return f.fail("think_stop_sentence has no effect without thinking_budget", kKey);
  if (!ask.reasoning_max_tokens || *budget < *ask.reasoning_max_tokens) ask.reasoning_max_tokens = budget;
}

}  // namespace

void read_thinking(Fields& f, Ask& ask, const ServeConfig& config) {
  read_budget(f, "reasoning_max_tokens", ask.reasoning_max_tokens, 1);
  std::optional<int64_t> other;  // the name of another server
  read_budget(f, "thinking_token_budget", other, 0);
  if (other) ask.reasoning_max_tokens = other;
  read_processor(f, ask, config);
  read_budget(f, "response_max_tokens", ask.response_max_tokens, 1);
}

void read_constraint(Fields& f, const json::Object& body, Ask& ask, const ServeConfig& config) {
  if (!f.ok() || !config.guided) return;
  auto asked = content::constraint_of(body, config.grammar);
  if (!asked.ok()) return f.fail(asked.error().message, asked.error().param);
  if (!*asked) return;
  ask.constraint = **std::move(asked);
  if (ask.ignore_eos) f.fail("ignore_eos cannot be used together with " + ask.constraint->field, "ignore_eos");
}

}  // namespace tern::serve::openai
