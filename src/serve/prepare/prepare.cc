#include "serve/prepare/prepare.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "serve/core/invalid.h"
#include "serve/prepare/prompts.h"
#include "serve/prepare/template_form.h"

namespace tern::serve::prepare {
namespace {

constexpr int64_t kMaxSeed = 922337203685477580;
constexpr int64_t kContextsToCut = 16;          // texts that are cut may have been so much longer
constexpr int64_t kMaxPromptTokens = 16 << 20;  // of all samples together: each holds its prompt inside the engine

Status check_model(Ask& ask, const ServeConfig& config) {
  if (config.served_model_name.empty()) return {};
  if (ask.model == "default") ask.model = config.served_model_name;
  if (ask.model == config.served_model_name) return {};
  return make_error(
      ErrorCode::kNotFound,
      fmt::format("Unsupported model: [{}], support [{}] or default", ask.model, config.served_model_name), "model");
}

Status check_lengths(const std::vector<PromptFacts>& prompts, const Ask& ask, const ServeConfig& config) {
  const int64_t min_tokens = ask.min_tokens.value_or(1);
  int64_t total = 0;
  for (const auto& prompt : prompts) {
    const auto length = static_cast<int64_t>(prompt.ids.size());
    const char* const param = ask.chat ? "messages" : ask.pooling ? "input" : "prompt";
    if (length == 0) return invalid_value("the prompt has no tokens", param);
    if (min_tokens >= config.max_model_len || length + std::max<int64_t>(min_tokens, 1) >= config.max_model_len) {
      return make_error(
          ErrorCode::kTooLarge,
          fmt::format("Input text is too long, length of prompt token({}) + min_dec_len ({}) >= max_model_len({})",
                      length, min_tokens, config.max_model_len),
          param);
    }
    total += length * ask.n;
  }
  if (total > kMaxPromptTokens) {
    return invalid_value(fmt::format("prompts x n hold {} tokens; the limit is {}", total, kMaxPromptTokens), "n");
  }
  return {};
}

// Keeps the last tokens of prompts that are longer than a pooling request wants.
Status truncate(std::vector<PromptFacts>& prompts, const Ask& ask, const ServeConfig& config) {
  if (!ask.pooling || !ask.pooling->truncate_prompt_tokens) return {};
  const int64_t most = *ask.pooling->truncate_prompt_tokens, fits = config.max_model_len - 2;  // check_lengths()
  for (PromptFacts& prompt : prompts) {
    const auto length = static_cast<int64_t>(prompt.ids.size()), kept = most < 0 ? fits : most;
    if (length <= kept) continue;
    if (!prompt.media.empty()) {
      return invalid_value("a prompt with pictures is not cut: leave truncate_prompt_tokens out",
                           "truncate_prompt_tokens");
    }
    prompt.ids.erase(prompt.ids.begin(), prompt.ids.end() - static_cast<std::ptrdiff_t>(kept));
  }
  return {};
}

Status encode_stops(const Ask& ask, const PrepareInput& input, engine::Request& request) {
  for (const auto& stop : ask.stop) {
    TERN_ASSIGN_OR_RETURN(auto ids, encode_text(input, stop, false, "stop"));
    if (ids.size() > static_cast<size_t>(input.config->limits.stop_tokens)) {
      return invalid_value(
          fmt::format("Length of stop_seqs({}) exceeds the limit stop_seqs_max_len({}). Please reduce the length of "
                      "stop sequences or set a larger stop_seqs_max_len by `FD_STOP_SEQS_MAX_LEN`",
                      ids.size(), input.config->limits.stop_tokens),
          "stop");
    }
    if (!ids.empty()) request.stop_sequences.push_back(std::move(ids));
  }
  return {};
}

// Words are taken with and without a leading space, and only where that is exactly one token.
Status encode_bad_words(const Ask& ask, const PrepareInput& input, SamplingParams& sampling) {
  sampling.bad_words = ask.bad_words_token_ids;
  size_t skipped = 0;
  for (const auto& word : ask.bad_words) {
    size_t kept = 0;
    for (const std::string& form : {word, " " + word}) {
      TERN_ASSIGN_OR_RETURN(auto ids, encode_text(input, form, false, "bad_words"));
      if (ids.size() != 1) continue;
      ++kept;
      if (std::find(sampling.bad_words.begin(), sampling.bad_words.end(), ids[0]) == sampling.bad_words.end()) {
        sampling.bad_words.push_back(ids[0]);
      }
    }
    if (kept == 0) ++skipped;
  }
  if (skipped > 0)
    TERN_WARN("{} of {} bad words are skipped: they are no single tokens", skipped, ask.bad_words.size());
  return {};
}

void fill_sampling(const Ask& ask, const PrepareInput& input, SamplingParams& s) {
  const GenerationDefaults& d = input.config->defaults;
  const auto pick = [](const auto& asked, const auto& preset, auto constant) {
    return static_cast<decltype(constant)>(asked ? *asked : preset ? *preset : constant);
  };
  s.temperature = pick(ask.temperature, d.temperature, 1.0f);
  s.top_p = pick(ask.top_p, d.top_p, 0.7f);
  s.top_k = std::max(pick(ask.top_k, d.top_k, int32_t{0}), 0);
  s.min_p = static_cast<float>(ask.min_p.value_or(0));
  s.repetition_penalty = pick(ask.repetition_penalty, d.repetition_penalty, 1.0f);
  s.frequency_penalty = pick(ask.frequency_penalty, d.frequency_penalty, 0.0f);
  s.presence_penalty = pick(ask.presence_penalty, d.presence_penalty, 0.0f);
  if (s.top_p < 1e-5f) {
    s.top_p = 1e-5f;
    s.top_k = 1;
  }
  s.top_k = std::min(s.top_k, input.config->vocab_size);
  s.seed = ask.seed ? static_cast<uint64_t>(*ask.seed) : input.random % static_cast<uint64_t>(kMaxSeed);
  s.min_tokens = static_cast<int32_t>(ask.min_tokens.value_or(1));  // checked against the context
  s.logit_bias = ask.logit_bias;
  s.logprobs = ask.logprobs ? ask.top_logprobs : ask.best > 0 ? 0 : -1;
  const content::Tokenizer* tokenizer = input.content.tokenizer;
  if (ask.logprobs && ask.logprobs_by_name && tokenizer != nullptr && tokenizer->has_equal_tokens()) {
    s.logprobs = std::min(2 * s.logprobs, input.config->vocab_size);
  }
  s.prompt_logprobs = ask.prompt_logprobs.value_or(-1);
  if (ask.echoes_logprobs()) s.prompt_logprobs = std::max(s.prompt_logprobs, s.logprobs);
  s.temp_scaled_logprobs = ask.temp_scaled_logprobs;
  s.top_p_normalized_logprobs = ask.top_p_normalized_logprobs;
}

// The text of the last message that the client's side says: a user's, or a tool's result.
std::string last_said(const json::Value& messages) {
  if (!messages.is_array()) return {};
  const json::Array& list = messages.get_array();
  for (size_t i = list.size(); i-- > 0;) {
    const json::Object& message = list[i].get_object();
    const json::Value& role = message.at("role");
    if (role == "assistant" || role == "system" || role == "developer") continue;
    const json::Value* content = json::find(message, "content");
    if (content == nullptr) return {};
    return content->is_string() ? std::string(content->get_string()) : joined_text(content->get_array());
  }
  return {};
}

// The client's salt goes on top of its API key's.
void add_cache_salt(const Ask& ask, PrepareInput& input) {
  if (ask.cache_salt.empty()) return;
  const Hash128 salt = siphash128({input.salt[0], input.salt[1]}, ask.cache_salt.data(), ask.cache_salt.size());
  input.salted = true;
  input.salt[0] = salt.lo;
  input.salt[1] = salt.hi;
}

Status encode_words(PendingRequest& pending) {
  TERN_RETURN_IF_ERROR(encode_stops(pending.ask, pending.input, pending.prototype));
  TERN_RETURN_IF_ERROR(encode_bad_words(pending.ask, pending.input, pending.prototype.sampling));
  if (pending.ask.forbid_calls && pending.input.content.answers != nullptr) {
    auto& banned = pending.prototype.sampling.bad_words;
    const auto begins = pending.input.content.answers->call_tokens();
    banned.insert(banned.end(), begins.begin(), begins.end());
  }
  return {};
}

// Ids as FastDeploy makes them.
std::string make_id(const Ask& ask, const std::string& hex) {
  const std::string_view prefix = ask.id_prefix;
  if (!ask.request_id.empty()) {
    return ask.request_id.starts_with(prefix) ? ask.request_id : fmt::format("{}{}", prefix, ask.request_id);
  }
  const std::string_view h = hex;
  return fmt::format("{}{}{}{}-{}-{}-{}-{}", prefix, ask.user, ask.user.empty() ? "" : "-", h.substr(0, 8),
                     h.substr(8, 4), h.substr(12, 4), h.substr(16, 4), h.substr(20, 12));
}

}  // namespace

Expected<PendingRequest> begin(Ask ask, const PrepareInput& input) {
  PendingRequest pending{std::move(ask), input, {}, {}, {}, {}, {}};
  const ServeConfig& config = *input.config;
  TERN_RETURN_IF_ERROR(check_model(pending.ask, config));
  const Ask& known = pending.ask;
  pending.id = make_id(known, input.id_hex);
  engine::Request& prototype = pending.prototype;
  prototype.max_tokens = config.max_model_len;
  prototype.ignore_eos = known.ignore_eos;
  prototype.stop_token_ids = known.stop_token_ids;
  prototype.arrival_ns = input.arrival_ns;
  prototype.owner = input.owner;
  if (known.pooling) {
    prototype.pooled = config.pooling->rows;
    if (known.pooling->truncate_prompt_tokens) pending.input.contexts = kContextsToCut;
  }
  add_cache_salt(known, pending.input);
  if (pending.input.salted) prototype.extra_keys.push_back({0, 0, {pending.input.salt[0], pending.input.salt[1]}});
  fill_sampling(known, input, prototype.sampling);
  TERN_ASSIGN_OR_RETURN(pending.grammars, needed_grammars(known, input));
  if (config.scripted) pending.last_said = last_said(known.messages);
  if (known.chat && known.prompts.empty()) {
    TERN_ASSIGN_OR_RETURN(pending.rendered, render_chat(pending.ask, input));
  }
  // With media these come first: their mistakes should cost no picture. Without, an over-long prompt is named first.
  if (!known.media.empty()) TERN_RETURN_IF_ERROR(encode_words(pending));
  pending.ask.messages = nullptr;
  pending.ask.tools = nullptr;
  pending.ask.documents = nullptr;
  pending.ask.chat_template_kwargs.clear();
  return pending;
}

Expected<std::unique_ptr<Generation>> finish(PendingRequest pending, std::span<const content::PreparedMediaPtr> media) {
  const ServeConfig& config = *pending.input.config;
  Ask& ask = pending.ask;
  TERN_ASSIGN_OR_RETURN(auto prompts, encode_prompts(pending, media));
  TERN_RETURN_IF_ERROR(truncate(prompts, ask, config));
  TERN_RETURN_IF_ERROR(check_lengths(prompts, ask, config));
  const auto& ids = prompts[0].ids;
  const int64_t room = int64_t{config.max_model_len} - static_cast<int64_t>(ids.size());
  TERN_RETURN_IF_ERROR(constrain(ask, pending.grammars, ids, room, pending.input, pending.prototype));
  if (media.empty()) TERN_RETURN_IF_ERROR(encode_words(pending));
  ask.prompts.clear();
  ask.media.clear();
  PrepareInput& input = pending.input;
  return std::make_unique<Generation>(std::move(ask), std::move(pending.id), std::move(prompts),
                                      std::move(pending.prototype), config,
                                      AnswerParts{.tokenizer = input.content.tokenizer,
                                                  .format = input.content.answers,
                                                  .random_hex = std::move(input.random_hex),
                                                  .make_writer = input.make_writer});
}

}  // namespace tern::serve::prepare
