#include "serve/openai/inert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <limits>
#include <optional>
#include <string>

#include "base/log.h"
#include "serve/prepare/messages.h"

namespace tern::serve::openai {
namespace {

// Which values of a field ask for something. Absent and null never do.
enum class Asks {
  kAnything,
  kTrue,
  kFalse,
  kOtherThanZero,
  kOtherThanOne,
  kSomeItems,  // of a list or an object
  kOtherThanMedium,
  kAudio,            // among a list
  kFormat,           // a response_format other than text
  kForcedCall,       // tool_choice: required, or a name, where calls cannot be forced
  kObsoleteCall,     // function_call: a name
  kGuided,           // guided decoding, where it is off
  kStrictTool,       // of a tool: strict arguments, where no call can be held to a schema
  kUnparsed,         // a limit of thoughts, where no parser tells them apart
  kWhileThinking,    // response_max_tokens, the same, and nothing says that thinking is off
  kProcessors,       // arguments that no logits processor of this server reads
  kSpecialAndMedia,  // add_special_tokens, where pictures lay the prompt out
  kMediaKeys,        // mm_processor_kwargs with a key that no picture or video reads
  kFalseUnparsed,    // what needs --tool-call-parser, or --reasoning-parser
};

constexpr uint8_t kOfChat = 1, kOfCompletions = 2, kBoth = 3;

struct Row {
  std::string_view name;
  uint8_t api;
  Asks asks;
  std::string_view needs;
};

// The original's words, which are the whole message.
constexpr std::string_view kGuided =
    "guided_backend is None, use --guided-decoding-backend to specify the backend at server startup";
constexpr std::string_view kOtherName =
    "is another server's name for guided decoding; guided_json, guided_regex, "
    "guided_grammar, guided_choice and response_format act here";
constexpr std::string_view kThinking = "needs a server started with --reasoning-parser";
constexpr std::string_view kForced =
    "cannot be kept: to force a call the server needs --tool-call-parser, and --guided-decoding-backend not off";
constexpr std::string_view kBeams = "needs beam search, which this server does not have";
constexpr std::string_view kTransfer =
    "needs prefill and decode in separate servers, which this server does not have yet";

constexpr std::string_view kOfChats = "belongs to chat requests: a completion has no messages and no template";

constexpr Row kRows[] = {
    {"response_format", kBoth, Asks::kFormat, kGuided},
    {"structured_outputs", kBoth, Asks::kGuided, kGuided},
    {"guided_json", kBoth, Asks::kGuided, kGuided},
    {"guided_regex", kBoth, Asks::kGuided, kGuided},
    {"guided_choice", kBoth, Asks::kGuided, kGuided},
    {"guided_grammar", kBoth, Asks::kGuided, kGuided},
    {"guided_json_object", kBoth, Asks::kGuided, kGuided},
    {"structural_tag", kBoth, Asks::kGuided, kGuided},
    {"json_schema", kBoth, Asks::kAnything, kOtherName},
    {"grammar", kBoth, Asks::kAnything, kOtherName},
    {"regex", kBoth, Asks::kAnything, kOtherName},
    {"ebnf", kBoth, Asks::kAnything, kOtherName},
    {"tool_choice", kOfChat, Asks::kForcedCall, kForced},
    {"tools", kOfChat, Asks::kStrictTool,
     "asks for strict arguments, which need --tool-call-parser, and --guided-decoding-backend not off"},
    {"functions", kOfChat, Asks::kSomeItems, "is the obsolete form of `tools`, which acts"},
    {"function_call", kOfChat, Asks::kObsoleteCall, "is the obsolete form of `tool_choice`, which acts"},
    {"parallel_tool_calls", kOfChat, Asks::kFalseUnparsed,
     "cannot be kept: this server finds no tool calls (--tool-call-parser)"},
    {"reasoning_max_tokens", kOfChat, Asks::kUnparsed, kThinking},
    {"thinking_token_budget", kOfChat, Asks::kUnparsed, kThinking},
    {"response_max_tokens", kOfChat, Asks::kWhileThinking,
     "needs a server started with --reasoning-parser, or thinking that is off (chat_template_kwargs.enable_thinking: "
     "false)"},
    {"include_reasoning", kOfChat, Asks::kFalseUnparsed,
     "cannot be kept: this server does not part reasoning from answers (--reasoning-parser)"},
    {"logits_processors_args", kBoth, Asks::kProcessors, "holds a key that no logits processor of this server reads"},
    {"logits_processors", kBoth, Asks::kSomeItems, "names processors; a request cannot bring any"},
    {"echo", kOfChat, Asks::kTrue, "has no effect in chat requests"},
    {"use_beam_search", kBoth, Asks::kTrue, kBeams},
    {"length_penalty", kBoth, Asks::kOtherThanOne, kBeams},
    {"early_stopping", kBoth, Asks::kTrue, kBeams},
    {"allowed_token_ids", kBoth, Asks::kAnything, "is not available in this server"},
    {"truncate_prompt_tokens", kBoth, Asks::kAnything, "is not available in this server: prompts are never cut"},
    {"prompt_embeds", kOfCompletions, Asks::kAnything, "is not available in this server"},
    {"detokenize", kBoth, Asks::kFalse, "cannot be kept: answers are text (return_token_ids adds the ids)"},
    {"return_tokens_as_token_ids", kBoth, Asks::kTrue, "is not available in this server (return_token_ids is)"},
    {"include_draft_logprobs", kBoth, Asks::kTrue, "needs speculative decoding, which this server does not have yet"},
    {"priority", kBoth, Asks::kOtherThanZero, "needs scheduling by priority, which this server does not have"},
    {"disaggregate_info", kBoth, Asks::kAnything, kTransfer},
    {"kv_transfer_params", kBoth, Asks::kAnything, kTransfer},
    {"ec_transfer_params", kBoth, Asks::kAnything, kTransfer},
    {"vllm_xargs", kBoth, Asks::kSomeItems, "is not available in this server"},
    {"media_io_kwargs", kOfChat, Asks::kSomeItems, "is not available in this server (mm_processor_kwargs is)"},
    {"mm_processor_kwargs", kOfChat, Asks::kMediaKeys,
     "holds a key that has no effect; fps, min_frames, max_frames, target_frames, frames_sample, min_pixels and "
     "max_pixels have (also with image_ or video_ in front)"},
    {"add_special_tokens", kOfChat, Asks::kSpecialAndMedia, "has no effect beside pictures"},
    {"audio", kOfChat, Asks::kAnything, "needs spoken answers, which this server does not have"},
    {"modalities", kOfChat, Asks::kAudio, "needs spoken answers, which this server does not have"},
    {"suffix", kOfChat, Asks::kAnything, "has no effect in chat requests"},
    {"tools", kOfCompletions, Asks::kSomeItems, kOfChats},
    {"tool_choice", kOfCompletions, Asks::kForcedCall, kOfChats},
    {"chat_template", kOfCompletions, Asks::kAnything, kOfChats},
    {"chat_template_kwargs", kOfCompletions, Asks::kSomeItems, kOfChats},
    {"enable_thinking", kOfCompletions, Asks::kAnything, kOfChats},
    {"reasoning_effort", kOfCompletions, Asks::kAnything, kOfChats},
    {"reasoning_max_tokens", kOfCompletions, Asks::kAnything, kOfChats},
    {"response_max_tokens", kOfCompletions, Asks::kAnything, kOfChats},
    {"thinking_token_budget", kOfCompletions, Asks::kAnything, kOfChats},
    {"documents", kOfCompletions, Asks::kSomeItems, kOfChats},
    {"mm_processor_kwargs", kOfCompletions, Asks::kSomeItems, kOfChats},
    {"continue_final_message", kOfCompletions, Asks::kTrue, kOfChats},
    {"web_search_options", kOfChat, Asks::kAnything, "needs a web search, which this server does not have"},
    {"verbosity", kOfChat, Asks::kOtherThanMedium, "is not available in this server"},
    {"store", kOfChat, Asks::kTrue, "cannot be kept: this server stores no answers"},
};

bool number_other_than(Fields& f, std::string_view key, double neutral) {
  std::optional<double> number;
  f.number(key, number, std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max());
  return number && *number != neutral;
}

bool flag_is(Fields& f, std::string_view key, bool wanted) {
  std::optional<bool> flag;
  f.boolean(key, flag);
  return flag == wanted;
}

bool some_items(const json::Value& value) {
  if (value.is_array()) return !value.get_array().empty();
  if (value.is_object()) return !value.get_object().empty();
  return true;
}

bool is_text(const json::Value& value, std::initializer_list<std::string_view> texts) {
  return value.is_string() &&
         std::find(texts.begin(), texts.end(), std::string_view(value.get_string())) != texts.end();
}

bool any_strict_tool(const json::Value& tools) {
  return tools.is_array() && std::ranges::any_of(tools.get_array(), [](const json::Value& tool) {
           const json::Object* object = tool.if_object();
           const json::Value* function = object != nullptr ? json::find(*object, "function") : nullptr;
           const json::Object* inner = function != nullptr ? function->if_object() : nullptr;
           const json::Value* strict = inner != nullptr ? json::find(*inner, "strict") : nullptr;
           return strict != nullptr && strict->is_bool() && strict->get_bool();
         });
}

bool holds_audio(const json::Value& value) {
  if (!value.is_array()) return true;
  const json::Array& list = value.get_array();
  return !std::all_of(list.begin(), list.end(), [](const json::Value& v) { return is_text(v, {"text"}); });
}

// Anything else is for processors that are not here.
bool unread_arguments(const json::Value& value) {
  if (!value.is_object()) return true;
  constexpr std::string_view kRead[] = {"logit_bias", "thinking_budget", "think_stop_sentence"};
  return std::ranges::any_of(value.get_object(), [&](const auto& entry) {
    return std::ranges::find(kRead, std::string_view(entry.key())) == std::end(kRead) && !entry.value().is_null();
  });
}

bool asks_for(const Row& row, const json::Value& value, const Ask& ask, const ServeConfig& config, Fields& f) {
  switch (row.asks) {
    case Asks::kAnything:
      return true;
    case Asks::kTrue:
      return flag_is(f, row.name, true);
    case Asks::kFalse:
      return flag_is(f, row.name, false);
    case Asks::kOtherThanZero:
      return number_other_than(f, row.name, 0);
    case Asks::kOtherThanOne:
      return number_other_than(f, row.name, 1);
    case Asks::kSomeItems:
      return some_items(value);
    case Asks::kOtherThanMedium:
      return !is_text(value, {"medium"});
    case Asks::kAudio:
      return holds_audio(value);
    case Asks::kFormat:
      return !config.guided && !is_text(*json::find(value.get_object(), "type"), {"text"});
    case Asks::kGuided:
      return !config.guided && !(value.is_bool() && !value.get_bool());
    case Asks::kForcedCall:
      return !ask.force_calls && !is_text(value, {"auto", "none"});
    case Asks::kObsoleteCall:
      return !is_text(value, {"auto", "none"});
    case Asks::kStrictTool:
      return !(config.guided && config.tool_call_parser) && any_strict_tool(value);
    case Asks::kUnparsed:
      return !config.reasoning_parser;
    case Asks::kWhileThinking:
      return !ask.thinking_off && !config.reasoning_parser;
    case Asks::kProcessors:
      return unread_arguments(value);
    case Asks::kSpecialAndMedia:
      return ask.add_special_tokens.value_or(false) && !ask.media.empty();
    case Asks::kFalseUnparsed:
      return row.name == "include_reasoning" ? !ask.include_reasoning && !config.reasoning_parser
                                             : !ask.parallel_calls && !config.tool_call_parser;
    case Asks::kMediaKeys:
      return value.is_object() && std::any_of(value.get_object().begin(), value.get_object().end(),
                                              [](const auto& m) { return !prepare::is_shared_media_kwarg(m.key()); });
  }
  return true;
}

void check_format(Fields& f) {
  const json::Object* format = f.object("response_format");
  if (format == nullptr) return;
  const json::Value* type = json::find(*format, "type");
  if (type == nullptr || !type->is_string()) return f.fail("Input should have a type", "response_format");
  if (!is_text(*type, {"text", "json_object", "json_schema", "structural_tag"})) {
    return f.fail("response_format: type should be 'text', 'json_object', 'json_schema' or 'structural_tag'",
                  "response_format");
  }
  if (type->get_string() != "json_schema") return;
  const json::Value* schema = json::find(*format, "json_schema");
  if (schema == nullptr || !schema->is_object()) {
    f.fail("response_format of type json_schema needs json_schema", "response_format");
  }
}

void check_guided_types(Fields& f) {
  for (const std::string_view key : {"guided_regex", "guided_grammar", "structural_tag"}) {
    const json::Value* text = f.find(key);
    if (text != nullptr && !text->is_string()) f.fail("Input should be a valid string", key);
  }
  const json::Value* schema = f.find("guided_json");
  if (schema != nullptr && !schema->is_string() && !schema->is_object()) {
    f.fail("Input should be a valid string or dictionary", "guided_json");
  }
  const json::Value* choice = f.find("guided_choice");
  if (choice == nullptr) return;
  if (!choice->is_array()) return f.fail("Input should be a valid list", "guided_choice");
  const json::Array& list = choice->get_array();
  if (!std::all_of(list.begin(), list.end(), [](const json::Value& v) { return v.is_string(); })) {
    f.fail("Input should be a valid string", "guided_choice");
  }
}

void check_types(Fields& f) {
  check_format(f);
  check_guided_types(f);
  const auto given = [&](std::string_view key) { return f.find(key) != nullptr; };
  constexpr std::string_view kKinds[] = {"guided_json", "guided_regex", "guided_choice", "guided_grammar",
                                         "structural_tag"};
  if (std::count_if(std::begin(kKinds), std::end(kKinds), given) > 1) {
    f.fail(
        "You can only use one kind of guided decoding ('guided_json', 'guided_regex', 'guided_choice', "
        "'guided_grammar', 'structural_tag').",
        "guided_json");
  }
  const json::Value* choice = f.find("tool_choice");
  if (choice != nullptr && !choice->is_object() && !is_text(*choice, {"none", "auto", "required"})) {
    f.fail("Input should be 'none', 'auto', 'required' or a named tool", "tool_choice");
  }
  for (const Row& row : kRows) {
    if (row.asks == Asks::kTrue || row.asks == Asks::kFalse) flag_is(f, row.name, true);
    if (row.asks == Asks::kOtherThanZero || row.asks == Asks::kOtherThanOne) number_other_than(f, row.name, 0);
  }
}

// One line per field and process: requests must not fill the log.
void warn_once(size_t row) {
  static std::array<std::atomic<bool>, std::size(kRows)> warned{};
  if (warned[row].exchange(true, std::memory_order_relaxed)) return;
  TERN_WARN("a field of a request is ignored (--allow-inert-flags): {} {}; further ones are not logged",
            kRows[row].name, kRows[row].needs);
}

}  // namespace

void check_inert(Fields& f, const Ask& ask, const ServeConfig& config) {
  check_types(f);
  if (!f.ok()) return;
  for (size_t i = 0; i < std::size(kRows); ++i) {
    const Row& row = kRows[i];
    if ((row.api & (ask.chat ? kOfChat : kOfCompletions)) == 0) continue;
    const json::Value* value = f.find(row.name);
    if (value == nullptr || !asks_for(row, *value, ask, config, f)) continue;
    if (config.allow_inert) {
      warn_once(i);
      continue;
    }
    if (row.needs == kGuided) return f.fail(std::string(kGuided), row.name);
    return f.fail(fmt::format("{} {}; leave it out, or start the server with --allow-inert-flags to have it ignored",
                              row.name, row.needs),
                  row.name);
  }
}

std::vector<std::string_view> inert_field_names() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.name);
  return names;
}

}  // namespace tern::serve::openai
