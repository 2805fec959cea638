#include "serve/prepare/constrain.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "answer/answer_parser.h"
#include "base/log.h"
#include "serve/core/engine_grammar.h"
#include "serve/core/invalid.h"
#include "serve/prepare/prepare.h"
#include "serve/prepare/prompts.h"

namespace tern::serve::prepare {
namespace {

using answer::ReasoningStart;

bool any_strict(const answer::Tools& tools) { return std::ranges::any_of(tools, &answer::ToolSpec::strict); }

const answer::ToolFormat* tool_format(const PrepareInput& input) {
  return input.content.answers != nullptr ? input.content.answers->tools() : nullptr;
}

// Strict tools bind an answer that is not forced to call from the first call on.
bool begins_with_call(const Ask& ask) { return ask.tool_specs && !ask.force_calls && any_strict(*ask.tool_specs); }

std::string calls_grammar(const Ask& ask, const answer::AnswerFormat& format, bool after_trigger) {
  return format.tools()->grammar({.tools = *ask.tool_specs,
                                  .parallel = ask.parallel_calls,
                                  .after_trigger = after_trigger,
                                  .vocabulary = &format.vocabulary()});
}

// Either calls or an answer by a schema: a request may bring tools and a response_format.
std::string calls_or_schema(std::string calls, const content::GrammarSpec& schema) {
  constexpr std::string_view kStart = "start:";
  const bool any = schema.kind == content::GrammarKind::kJsonObject;
  return fmt::format("start: all_calls | answer\nanswer: %json {}\nall_calls:{}",
                     any ? std::string_view(R"({"type":"object"})") : std::string_view(schema.text),
                     std::string_view(calls).substr(kStart.size()));
}

void need_strict_tools(const Ask& ask, const content::GrammarOptions& options, std::vector<NeededGrammar>& needed) {
  for (const answer::ToolSpec& tool : *ask.tool_specs) {
    if (!tool.strict || tool.parameters.is_null()) continue;
    needed.push_back(
        {content::schema_spec(tool.parameters, options), "tools", "parameters of the tool " + tool.name, nullptr});
  }
}

struct Thoughts {
  answer::ReasoningMarks marks;
  ReasoningStart start{};
};

// By the marks of the reasoning parser, or those that ThinkingBudgetLogitsProcessor looks for. Nothing where there can
// be no thoughts, or nothing is asked of them.
std::optional<Thoughts> thoughts_of(const Ask& ask, bool guided, const PrepareInput& input,
                                    std::span<const int32_t> prompt) {
  if (!ask.chat || input.content.tokenizer == nullptr) return std::nullopt;
  const answer::AnswerFormat* format = input.content.answers;
  const bool limited = ask.reasoning_max_tokens || ask.response_max_tokens;
  if (format != nullptr && format->reasoning() != nullptr) {
    const answer::ReasoningMarks& marks = *format->reasoning();
    if (!limited && !guided && marks.format->most_percent == 0) return std::nullopt;
    return Thoughts{marks, format->start(prompt)};
  }
  if (!ask.reasoning_max_tokens) return std::nullopt;
  const answer::Vocabulary vocabulary = answer::vocabulary_of(*input.content.tokenizer);
  const auto marks = answer::reasoning_marks(*answer::find_reasoning_format("qwen3"), vocabulary);
  return Thoughts{marks, answer::reasoning_start(marks, vocabulary, prompt)};
}

std::optional<int64_t> thought_limit(const Ask& ask, const Thoughts& thoughts, int64_t max_tokens) {
  if (ask.reasoning_max_tokens) return ask.reasoning_max_tokens;
  const int32_t percent = thoughts.marks.format->most_percent;
  if (percent == 0 || thoughts.start != ReasoningStart::kThinking) return std::nullopt;
  return std::max<int64_t>(max_tokens * percent / 100, 1);
}

Expected<std::vector<int32_t>> mark_ids(const answer::ReasoningMarks& marks, const PrepareInput& input) {
  if (marks.end) return std::vector{*marks.end};
  return encode_text(input, marks.format->end, false, "reasoning_max_tokens");
}

// What is forced when thoughts reach their limit: the client's sentence, or the server's text; with the mark at its
// end.
Expected<std::vector<int32_t>> forced_ids(const Ask& ask, const PrepareInput& input, std::span<const int32_t> mark) {
  constexpr const char* kParam = "reasoning_max_tokens";
  const bool own = !ask.think_stop_sentence.empty();
  TERN_ASSIGN_OR_RETURN(auto ids, encode_text(input, own ? ask.think_stop_sentence : input.config->thinking_truncate,
                                              false, own ? "logits_processors_args" : kParam));
  const auto found = std::search(ids.begin(), ids.end(), mark.begin(), mark.end());
  if (found == ids.end()) ids.insert(ids.end(), mark.begin(), mark.end());
  constexpr size_t kMost = 96;  // the engine keeps 128 with the mark
  if (ids.size() <= kMost) return ids;
  return invalid_value(
      fmt::format("the text that ends thoughts has {} tokens; at most {} can be forced", ids.size(), kMost),
      own ? "logits_processors_args" : kParam);
}

// Fills the mark that ends thoughts and their limit.
Status limit_thoughts(const Ask& ask, const Thoughts& thoughts, int64_t max_tokens, const PrepareInput& input,
                      engine::Request& request) {
  SamplingParams& s = request.sampling;
  TERN_ASSIGN_OR_RETURN(s.thinking_mark, mark_ids(thoughts.marks, input));
  if (ask.response_max_tokens) {
    request.max_answer_tokens =
        static_cast<int32_t>(std::min<int64_t>(*ask.response_max_tokens, std::numeric_limits<int32_t>::max()));
  }
  const auto limit = thought_limit(ask, thoughts, max_tokens);
  if (!limit) return {};
  TERN_ASSIGN_OR_RETURN(s.thinking_forced, forced_ids(ask, input, s.thinking_mark));
  int64_t free = *limit;
  // The sentence counts as thoughts.
  if (!ask.think_stop_sentence.empty()) {
    free -= static_cast<int64_t>(s.thinking_forced.size() - s.thinking_mark.size());
  }
  s.thinking_limit = static_cast<int32_t>(std::clamp<int64_t>(free, 0, std::numeric_limits<int32_t>::max() / 2));
  return {};
}

std::optional<int32_t> call_trigger(const answer::AnswerFormat& format) {
  return format.vocabulary().mark_id(format.tools()->trigger);
}

Error as_client_error(const Error& error, const NeededGrammar& grammar) {
  const bool textual = error.code == ErrorCode::kUnsupported || error.code == ErrorCode::kTooLarge ||
                       error.code == ErrorCode::kInvalidArgument;
  if (textual) return invalid_value(fmt::format("{}: {}", grammar.place, error.message), grammar.field);
  return error;
}

}  // namespace

Expected<std::vector<NeededGrammar>> needed_grammars(const Ask& ask, const PrepareInput& input) {
  std::vector<NeededGrammar> needed;
  const answer::ToolFormat* format = tool_format(input);
  const bool calls = ask.tool_specs != nullptr && format != nullptr;
  const bool schema = ask.constraint && (ask.constraint->spec.kind == content::GrammarKind::kJsonSchema ||
                                         ask.constraint->spec.kind == content::GrammarKind::kJsonObject);
  if (ask.force_calls && ask.constraint && ask.constraint->field != "response_format") {
    return invalid_value("tool_choice that forces a call cannot be used together with " + ask.constraint->field,
                         "tool_choice");
  }
  if (ask.constraint && !ask.force_calls) {
    needed.push_back({ask.constraint->spec, ask.constraint->field, ask.constraint->field, nullptr});
  }
  if (!calls || !(ask.force_calls || any_strict(*ask.tool_specs) || (ask.constraint && schema))) return needed;
  if (!input.config->guided) return needed;
  if (ask.constraint && !ask.force_calls && !schema) return needed;  // the constraint leaves no room for calls
  const bool either = ask.constraint && !ask.force_calls;
  content::GrammarOptions options = either ? ask.constraint->spec.options : input.config->grammar;
  need_strict_tools(ask, options, needed);
  std::string text = calls_grammar(ask, *input.content.answers, !ask.force_calls && !either);
  if (either) text = calls_or_schema(std::move(text), ask.constraint->spec);
  options.lenient = !std::ranges::all_of(*ask.tool_specs, &answer::ToolSpec::strict);
  needed.push_back({{content::GrammarKind::kLark, std::move(text), options}, "tools", "tools", nullptr});
  return needed;
}

bool find_grammars(std::span<NeededGrammar> needed, content::GrammarCompiler* compiler) {
  bool all = true;
  for (NeededGrammar& one : needed) {
    if (!one.compiled) one.compiled = compiler->find(one.spec);
    all = all && one.compiled;
  }
  return all;
}

Status compile_grammars(std::span<NeededGrammar> needed, content::GrammarCompiler& compiler) {
  for (NeededGrammar& one : needed) {
    if (one.compiled) continue;
    auto compiled = compiler.compile(one.spec);
    if (!compiled.ok()) return as_client_error(compiled.error(), one);
    one.compiled = *std::move(compiled);
    const auto& left_out = one.compiled->warnings();
    if (!left_out.empty()) TERN_WARN("{}: {} keywords are not enforced: {}", one.place, left_out.size(), left_out[0]);
  }
  return {};
}

Status constrain(Ask& ask, std::span<const NeededGrammar> grammars, std::span<const int32_t> prompt, int64_t room,
                 const PrepareInput& input, engine::Request& request) {
  const auto thoughts = thoughts_of(ask, !grammars.empty(), input, prompt);
  const auto start = thoughts ? thoughts->start : ReasoningStart::kAnswer;
  const bool limited = ask.reasoning_max_tokens || ask.response_max_tokens;
  const bool thinks =
      start == ReasoningStart::kThinking || (start == ReasoningStart::kOpenable && limited && !ask.thinking_off);
  const int64_t most = std::min(room, ask.max_tokens.value_or(room));
  if (thinks) {
    TERN_RETURN_IF_ERROR(limit_thoughts(ask, *thoughts, most, input, request));
  } else if (ask.response_max_tokens) {
    ask.max_tokens = std::min(most, *ask.response_max_tokens);
  }
  if (grammars.empty()) return {};
  GrammarPlace place;
  if (!thinks && start == ReasoningStart::kOpenable && thoughts->marks.begin && thoughts->marks.end) {
    place.thoughts_begin = thoughts->marks.begin;
    place.thoughts_end = thoughts->marks.end;
  }
  if (!ask.constraint && begins_with_call(ask)) {
    place.trigger = call_trigger(*input.content.answers);
    if (!place.trigger) {
      return invalid_value(fmt::format("strict tools need tool_choice \"required\" with --tool-call-parser {} and this "
                                       "tokenizer: {} is no token of it",
                                       input.content.answers->tools()->name, input.content.answers->tools()->trigger),
                           "tools");
    }
  }
  const NeededGrammar& last = grammars.back();
  request.constraint.grammar = engine_grammar(last.compiled, place);
  request.constraint.after_thinking = thinks;
  return {};
}

}  // namespace tern::serve::prepare
