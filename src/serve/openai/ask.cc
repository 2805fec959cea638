#include "serve/openai/ask.h"

#include <fmt/format.h>

#include <algorithm>

#include "serve/core/trace_context.h"
#include "serve/openai/ask_parts.h"
#include "serve/openai/inert.h"
#include "serve/openai/json/error.h"
#include "serve/openai/json/fields.h"
#include "serve/prepare/messages.h"

namespace tern::serve::openai {
namespace {

constexpr int64_t kMaxSeed = 922337203685477580;
constexpr int64_t kMinInt = std::numeric_limits<int64_t>::min();
constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
constexpr double kMaxFloat = std::numeric_limits<float>::max();
constexpr size_t kAnyLength = std::numeric_limits<size_t>::max();

// Keys of `metadata` and `suffix` stand for top-level fields that are not there (the obsolete way to send extras).
Status merge_extras(json::Object& body, std::string_view key) {
  const json::Value* extras = json::find(body, key);
  if (extras == nullptr || (key == "suffix" && extras->is_string())) return {};  // a text: read_completion_only()
  if (!extras->is_object()) return invalid_value("Input should be a valid dictionary", std::string(key));
  if (extras->get_object().contains("raw_request")) {
    return invalid_value("The parameter `raw_request` is not supported now, please use completion api instead.",
                         "raw_request");
  }
  const json::Object copy = extras->get_object();
  constexpr std::string_view kFixed[] = {"messages",       "prompt", "model",    "stream",
                                         "stream_options", "n",      "metadata", "suffix"};
  for (const auto& [name, value] : copy) {
    if (std::find(std::begin(kFixed), std::end(kFixed), name) != std::end(kFixed)) continue;
    if (json::find(body, name) == nullptr) body[name] = value;
  }
  return {};
}

bool printable_id(std::string_view id) {
  return std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7f && c != '"' && c != '\\'; });
}

bool no_control(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

void read_identity(Fields& f, Ask& ask, const ServeConfig& config) {
  if (const json::Value* context = f.find("trace_context")) ask.traceparent = traceparent_of(*context);
  f.string("model", ask.model, 4096);
  f.string("request_id", ask.request_id, config.limits.id_bytes);
  if (!printable_id(ask.request_id)) f.fail("request_id may hold visible ASCII characters only", "request_id");
  f.string("user", ask.user, config.limits.id_bytes);
  if (!no_control(ask.user)) f.fail("user may not hold control characters", "user");
}

void read_stream(Fields& f, Ask& ask, const ServeConfig& config) {
  f.boolean("stream", ask.stream);
  if (const json::Object* options = f.object("stream_options")) {
    if (!ask.stream) f.fail("Stream options can only be defined when `stream=True`.", "stream_options");
    Fields o(*options);
    ask.include_usage = true;
    o.boolean("include_usage", ask.include_usage);
    o.boolean("continuous_usage_stats", ask.continuous_usage);
    if (!o.ok()) f.fail(o.error()->message, o.error()->param);
  }
  f.integer("max_streaming_response_tokens", ask.stream_group, std::numeric_limits<int32_t>::min(),
            std::numeric_limits<int32_t>::max());
  ask.stream_group = std::clamp(ask.stream_group, 1, config.limits.stream_group);
  f.boolean("collect_metrics", ask.collect_metrics);
}

// The likeliest n of so many samples are shown. 1 is what clients send for none.
void read_best_of(Fields& f, Ask& ask, const RequestLimits& limits) {
  std::optional<int32_t> best_of;
  f.integer("best_of", best_of, 1, limits.n);
  if (!f.ok() || !best_of || *best_of == 1 || *best_of == ask.n) return;
  if (*best_of < ask.n) return f.fail(fmt::format("best_of must not be below n={}", ask.n), "best_of");
  if (ask.stream) return f.fail("best_of above n cannot be streamed: all samples must have ended", "best_of");
  ask.best = ask.n;
  ask.n = *best_of;
}

// A limit on tokens below 1 has a sentence of its own in the original.
void read_max_tokens(Fields& f, std::string_view key, Ask& ask, const ServeConfig& config) {
  std::optional<int64_t> tokens;
  f.integer(key, tokens, kMinInt, kMaxInt);
  if (!tokens) return;
  if (*tokens == 0 && key == "max_completion_tokens") return;  // the same as not sent
  const int least = ask.chat ? 1 : 0;                          // a completion may be merely scored
  if (*tokens < least) {
    f.fail(fmt::format("{} can be defined [{}, {}), but now it's {}.", key, least, config.max_model_len, *tokens), key);
  }
  ask.max_tokens = tokens;
}

void read_sampling(Fields& f, Ask& ask, const ServeConfig& config) {
  const RequestLimits& limits = config.limits;
  f.number("frequency_penalty", ask.frequency_penalty, -2, 2);
  f.number("presence_penalty", ask.presence_penalty, -2, 2);
  f.integer("n", ask.n, 1, limits.n);
  read_best_of(f, ask, limits);
  f.integer("seed", ask.seed, 0, kMaxSeed);
  f.number("temperature", ask.temperature, 0, kMaxFloat);
  f.number("top_p", ask.top_p, 0, 1);
  f.integer("top_k", ask.top_k, -1, std::numeric_limits<int32_t>::max());
  f.number("min_p", ask.min_p, 0, 1);
  f.positive("repetition_penalty", ask.repetition_penalty);
  read_max_tokens(f, "max_tokens", ask, config);
  read_max_tokens(f, "max_completion_tokens", ask, config);  // wins over max_tokens
  f.integer("min_tokens", ask.min_tokens, 0, kMaxInt);
  if (ask.max_tokens && ask.min_tokens && *ask.min_tokens > *ask.max_tokens) {
    f.fail(fmt::format("min_tokens must be less than or equal to max_tokens={}, got {}.", *ask.max_tokens,
                       *ask.min_tokens),
           "min_tokens");
  }
  f.strings("stop", ask.stop, kAnyLength);
  if (ask.stop.size() > static_cast<size_t>(limits.stop_strings)) {
    f.fail(fmt::format("Length of stop ({}) exceeds the limit max_stop_seqs_num({}). Please reduce the number of stop "
                       "or set a larger max_stop_seqs_num by `FD_MAX_STOP_SEQS_NUM`",
                       ask.stop.size(), limits.stop_strings),
           "stop");
  }
  std::erase(ask.stop, "");
  f.ids("stop_token_ids", ask.stop_token_ids, config.vocab_size, static_cast<size_t>(limits.stop_token_ids));
  f.boolean("include_stop_str_in_output", ask.include_stop_str_in_output);
  f.boolean("skip_special_tokens", ask.skip_special_tokens);
  f.strings("bad_words", ask.bad_words, static_cast<size_t>(limits.bad_words));
  f.ids("bad_words_token_ids", ask.bad_words_token_ids, config.vocab_size, static_cast<size_t>(limits.bad_words));
  f.boolean("ignore_eos", ask.ignore_eos);
}

void read_common(Fields& f, Ask& ask, const ServeConfig& config) {
  read_identity(f, ask, config);
  read_stream(f, ask, config);
  read_sampling(f, ask, config);
  read_bias(f, ask, config);
  read_logprobs(f, ask, config);
  f.boolean("return_token_ids", ask.return_token_ids);
  f.boolean("add_special_tokens", ask.add_special_tokens);
  f.string("cache_salt", ask.cache_salt, config.http.body_bytes);  // only hashed
  f.ids("completion_token_ids", ask.completion_token_ids, config.vocab_size, static_cast<size_t>(config.max_model_len));
}

bool says_off(const json::Object& object, std::string_view key) {
  const json::Value* value = json::find(object, key);
  return value != nullptr && value->is_bool() && !value->get_bool();
}

// The template's own switches come before the top-level field.
bool thinking_is_off(const Ask& ask) {
  const json::Object& kwargs = ask.chat_template_kwargs;
  if (json::find(kwargs, "enable_thinking") != nullptr) return says_off(kwargs, "enable_thinking");
  if (json::find(kwargs, "thinking") != nullptr) return says_off(kwargs, "thinking");
  const json::Value* options = json::find(kwargs, "options");
  if (options != nullptr && options->is_object()) {
    const json::Value* mode = json::find(options->get_object(), "thinking_mode");
    if (mode != nullptr && mode->is_string()) return mode->get_string() == "close";
  }
  return ask.enable_thinking && !*ask.enable_thinking;
}

// What the template reads. `reasoning_effort` and `documents` are variables of it, as in other servers.
void read_template_fields(Fields& f, Ask& ask) {
  if (const json::Object* kwargs = f.object("chat_template_kwargs")) ask.chat_template_kwargs = *kwargs;
  f.string("chat_template", ask.chat_template, 1u << 20);
  f.boolean("enable_thinking", ask.enable_thinking);
  std::string effort;
  f.string("reasoning_effort", effort, 64);
  if (!effort.empty()) ask.chat_template_kwargs.emplace("reasoning_effort", effort);
  const json::Value* documents = f.find("documents");
  if (documents != nullptr && !documents->is_array()) f.fail("Input should be a valid list", "documents");
  if (documents != nullptr) ask.documents = *documents;
  ask.thinking_off = thinking_is_off(ask);
}

void read_continuation(Fields& f, Ask& ask) {
  constexpr std::string_view kKey = "continue_final_message";
  f.boolean(kKey, ask.continue_final_message);
  if (!ask.continue_final_message) return;
  if (ask.add_generation_prompt)
    f.fail("Cannot set both `continue_final_message` and `add_generation_prompt` to True.", kKey);
  if (ask.disable_chat_template || !ask.prompts.empty())
    f.fail("continue_final_message needs messages and the chat template", kKey);
}

void read_chat_only(Fields& f, json::Object& body, Ask& ask, const ServeConfig& config) {
  json::Value* messages = body.if_contains("messages");
  std::vector<int32_t> ids;
  f.ids("prompt_token_ids", ids, config.vocab_size, max_prompt_ids(config));
  const json::Object* media_kwargs = f.object("mm_processor_kwargs");
  if (messages == nullptr || messages->is_null()) {
    f.fail("Field required", "messages");
  } else if (!messages->is_array()) {
    f.fail("Input should be a valid list", "list[any]");  // the place as the original names it
  } else if (json::Array& list = messages->get_array(); !list.empty() && list[0].is_number()) {
    f.ids("messages", ids, config.vocab_size, max_prompt_ids(config));
  } else if (list.empty() && !ids.empty()) {
    // The ids are the whole prompt.
  } else if (Status taken = prepare::take_messages(list, media_kwargs, config, ask); !taken.ok()) {
    f.fail(taken.error().message, taken.error().param);
  }
  if (!ids.empty()) ask.prompts.push_back({false, {}, std::move(ids)});
  read_tools(f, ask, config);
  f.boolean("include_reasoning", ask.include_reasoning);
  read_template_fields(f, ask);
  if (!ask.chat_template.empty() && !config.allow_client_chat_template) {
    f.fail("chat_template of a request is not accepted by this server", "chat_template");
  }
  f.boolean("add_generation_prompt", ask.add_generation_prompt);
  f.boolean("disable_chat_template", ask.disable_chat_template);
  read_continuation(f, ask);
  read_thinking(f, ask, config);
}

Expected<Ask> parse(json::Value body, const ServeConfig& config, bool chat, Purpose purpose) {
  if (!body.is_object()) return invalid_value("Input should be a valid dictionary", "body");
  TERN_RETURN_IF_ERROR(merge_extras(body.get_object(), "metadata"));
  if (!chat) TERN_RETURN_IF_ERROR(merge_extras(body.get_object(), "suffix"));
  Ask ask;
  ask.chat = chat;
  ask.id_prefix = chat ? "chatcmpl-" : "cmpl-";
  ask.logprobs_by_name = !chat;
  Fields f(body.get_object());
  if (chat && f.find("messages") == nullptr) f.fail("Field required", "messages");
  read_common(f, ask, config);
  if (chat)
    read_chat_only(f, body.get_object(), ask, config);
  else
    read_completion_only(f, ask, config);
  if (purpose == Purpose::kAnswer) {
    check_inert(f, ask, config);
    read_constraint(f, body.get_object(), ask, config);
  }
  if (!f.ok()) return f.take_error();
  return ask;
}

// The one form has `input`, the other `messages`; rewards know the latter only.
Expected<Ask> parse_pooling(json::Value body, const ServeConfig& config, bool reward) {
  if (!body.is_object()) return invalid_value("Input should be a valid dictionary", "body");
  Ask ask;
  Fields f(body.get_object());
  ask.chat = reward || f.find("messages") != nullptr;
  ask.id_prefix = reward ? "reward-" : "embd-";
  ask.add_generation_prompt = false;
  ask.pooling.emplace();
  read_identity(f, ask, config);
  f.boolean("add_special_tokens", ask.add_special_tokens);
  f.string("cache_salt", ask.cache_salt, config.http.body_bytes);
  f.boolean("return_token_ids", ask.return_token_ids);
  read_pooling(f, ask, config, reward);
  if (ask.chat)
    read_chat_only(f, body.get_object(), ask, config);
  else
    read_embedding_input(f, ask, config);
  if (!f.ok()) return f.take_error();
  return ask;
}

}  // namespace

Expected<Ask> parse_embedding(json::Value body, const ServeConfig& config) {
  return parse_pooling(std::move(body), config, false);
}
Expected<Ask> parse_reward(json::Value body, const ServeConfig& config) {
  return parse_pooling(std::move(body), config, true);
}
Expected<Ask> parse_chat(json::Value body, const ServeConfig& config, Purpose purpose) {
  return parse(std::move(body), config, true, purpose);
}
Expected<Ask> parse_completion(json::Value body, const ServeConfig& config) {
  return parse(std::move(body), config, false, Purpose::kAnswer);
}

}  // namespace tern::serve::openai
