#include "serve/openai/prepare.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "serve/openai/error.h"

namespace tern::serve::openai {
namespace {

constexpr int64_t kMaxSeed = 922337203685477580;
constexpr int64_t kMaxPromptTokens = 16 << 20;  // of all samples together: each holds its prompt inside the engine

Expected<std::vector<int32_t>> encode(const PrepareInput& input, std::string_view text, bool special,
                                      const char* param) {
  const content::Tokenizer* tokenizer = input.content.tokenizer;
  if (tokenizer == nullptr) {
    return invalid_value("this model has no tokenizer: send the prompt as token ids", param);
  }
  auto ids = tokenizer->encode(text, special);
  if (!ids.ok()) return invalid_value(ids.error().message, param);
  const int32_t vocab = input.config->vocab_size;
  for (const int32_t id : *ids) {
    if (id < 0 || id >= vocab) {
      return invalid_value(fmt::format("the text gives token id {}, but the model knows {} tokens", id, vocab), param);
    }
  }
  return ids;
}

Status check_model(Ask& ask, const ServeConfig& config) {
  if (config.served_model_name.empty()) return {};
  if (ask.model == "default") ask.model = config.served_model_name;
  if (ask.model == config.served_model_name) return {};
  return make_error(
      ErrorCode::kNotFound,
      fmt::format("Unsupported model: [{}], support [{}] or default", ask.model, config.served_model_name), "model");
}

Expected<std::vector<PromptFacts>> encode_prompts(Ask& ask, const PrepareInput& input) {
  std::vector<PromptFacts> prompts;
  if (ask.chat && ask.prompts.empty()) {
    PromptFacts facts;
    TERN_ASSIGN_OR_RETURN(facts.text, render_chat(ask, input));
    TERN_ASSIGN_OR_RETURN(facts.ids, encode(input, facts.text, false, "messages"));
    if (!ask.return_token_ids) facts.text.clear();
    prompts.push_back(std::move(facts));
  }
  for (auto& prompt : ask.prompts) {
    PromptFacts facts;
    if (prompt.is_text) {
      TERN_ASSIGN_OR_RETURN(facts.ids, encode(input, prompt.text, true, "prompt"));
    } else {
      facts.ids = std::move(prompt.ids);
    }
    if (ask.echo || ask.return_token_ids) {
      if (prompt.is_text)
        facts.text = std::move(prompt.text);
      else if (input.content.tokenizer != nullptr)
        facts.text = input.content.tokenizer->decode(facts.ids, false);
    }
    prompts.push_back(std::move(facts));
  }
  for (auto& facts : prompts) {
    facts.ids.insert(facts.ids.end(), ask.completion_token_ids.begin(), ask.completion_token_ids.end());
  }
  return prompts;
}

Status check_lengths(const std::vector<PromptFacts>& prompts, const Ask& ask, const ServeConfig& config) {
  const int64_t min_tokens = ask.min_tokens.value_or(1);
  int64_t total = 0;
  for (const auto& prompt : prompts) {
    const auto length = static_cast<int64_t>(prompt.ids.size());
    if (length == 0) return invalid_value("the prompt has no tokens", ask.chat ? "messages" : "prompt");
    if (min_tokens >= config.max_model_len || length + std::max<int64_t>(min_tokens, 1) >= config.max_model_len) {
      return make_error(
          ErrorCode::kTooLarge,
          fmt::format("Input text is too long, length of prompt token({}) + min_dec_len ({}) >= max_model_len({})",
                      length, min_tokens, config.max_model_len),
          ask.chat ? "messages" : "prompt");
    }
    total += length * ask.n;
  }
  if (total > kMaxPromptTokens) {
    return invalid_value(fmt::format("prompts x n hold {} tokens; the limit is {}", total, kMaxPromptTokens), "n");
  }
  return {};
}

Status encode_stops(const Ask& ask, const PrepareInput& input, engine::Request& request) {
  for (const auto& stop : ask.stop) {
    TERN_ASSIGN_OR_RETURN(auto ids, encode(input, stop, false, "stop"));
    if (ids.size() > static_cast<size_t>(input.config->limits.stop_tokens)) {
      return invalid_value(fmt::format("length of stop_seqs ({}) is greater than FD_STOP_SEQS_MAX_LEN ({})", ids.size(),
                                       input.config->limits.stop_tokens),
                           "stop");
    }
    if (!ids.empty()) request.stop_sequences.push_back(std::move(ids));
  }
  return {};
}

// Words are taken with and without a leading space, and only where that is exactly one token.
Status encode_bad_words(const Ask& ask, const PrepareInput& input, SamplingParams& sampling) {
  sampling.bad_words = ask.bad_words_token_ids;
  for (const auto& word : ask.bad_words) {
    size_t kept = 0;
    for (const std::string& form : {word, " " + word}) {
      TERN_ASSIGN_OR_RETURN(auto ids, encode(input, form, false, "bad_words"));
      if (ids.size() != 1) continue;
      ++kept;
      if (std::find(sampling.bad_words.begin(), sampling.bad_words.end(), ids[0]) == sampling.bad_words.end()) {
        sampling.bad_words.push_back(ids[0]);
      }
    }
    if (kept == 0) TERN_WARN("a bad word is skipped: it is not a single token");
  }
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
  s.logprobs = ask.logprobs ? ask.top_logprobs : -1;
  s.prompt_logprobs = ask.prompt_logprobs.value_or(-1);
  s.temp_scaled_logprobs = ask.temp_scaled_logprobs;
  s.top_p_normalized_logprobs = ask.top_p_normalized_logprobs;
}

}  // namespace

std::string make_id(const Ask& ask, const std::string& hex) {
  const std::string_view prefix = ask.chat ? "chatcmpl-" : "cmpl-";
  if (!ask.request_id.empty()) {
    return ask.request_id.starts_with(prefix) ? ask.request_id : fmt::format("{}{}", prefix, ask.request_id);
  }
  const std::string_view h = hex;
  return fmt::format("{}{}{}{}-{}-{}-{}-{}", prefix, ask.user, ask.user.empty() ? "" : "-", h.substr(0, 8),
                     h.substr(8, 4), h.substr(12, 4), h.substr(16, 4), h.substr(20, 12));
}

Expected<std::string> render_chat(const Ask& ask, const PrepareInput& input) {
  const json::Array& messages = ask.messages.get_array();
  if (ask.disable_chat_template) {
    const json::Value* content = json::find(messages[0].get_object(), "content");
    return content != nullptr && content->is_string() ? std::string(content->get_string()) : std::string();
  }
  std::unique_ptr<content::ChatTemplate> own;
  const content::ChatTemplate* chosen = input.content.chat_template;
  if (!ask.tools.is_null() && input.content.tool_template != nullptr) chosen = input.content.tool_template;
  if (!ask.chat_template.empty()) {
    auto compiled = content::ChatTemplate::compile(ask.chat_template);
    if (!compiled.ok()) return invalid_value(compiled.error().message, "chat_template");
    own = *std::move(compiled);
    chosen = own.get();
  }
  if (chosen == nullptr) {
    return invalid_value(
        "this model has no chat template: start the server with --chat-template, or send "
        "disable_chat_template or token ids",
        "messages");
  }
  json::Object kwargs = ask.chat_template_kwargs;
  if (ask.enable_thinking && !kwargs.contains("enable_thinking")) kwargs["enable_thinking"] = *ask.enable_thinking;
  content::RenderInput render;
  render.messages = &ask.messages;
  render.tools = ask.tools.is_null() ? nullptr : &ask.tools;
  render.add_generation_prompt = ask.add_generation_prompt;
  render.kwargs = &kwargs;
  static const content::SpecialText kNone;
  const auto& special = input.content.tokenizer != nullptr ? input.content.tokenizer->special_text() : kNone;
  auto variables = content::render_variables(render, special);
  if (!variables.ok()) return invalid_value(variables.error().message, "chat_template_kwargs");
  auto text = chosen->render(*variables, static_cast<int64_t>(wall_seconds()));
  if (!text.ok()) return invalid_value(text.error().message, "messages");
  return text;
}

Expected<std::unique_ptr<Generation>> prepare(Ask ask, const PrepareInput& input) {
  const ServeConfig& config = *input.config;
  TERN_RETURN_IF_ERROR(check_model(ask, config));
  TERN_ASSIGN_OR_RETURN(auto prompts, encode_prompts(ask, input));
  TERN_RETURN_IF_ERROR(check_lengths(prompts, ask, config));
  if (ask.response_max_tokens && ask.enable_thinking && !*ask.enable_thinking) {
    ask.max_tokens = std::min(ask.max_tokens.value_or(*ask.response_max_tokens), *ask.response_max_tokens);
  }
  engine::Request prototype;
  prototype.max_tokens = config.max_model_len;
  prototype.ignore_eos = ask.ignore_eos;
  prototype.stop_token_ids = ask.stop_token_ids;
  prototype.arrival_ns = input.arrival_ns;
  fill_sampling(ask, input, prototype.sampling);
  TERN_RETURN_IF_ERROR(encode_stops(ask, input, prototype));
  TERN_RETURN_IF_ERROR(encode_bad_words(ask, input, prototype.sampling));
  if (input.salted) prototype.extra_keys.push_back({0, 0, {input.salt[0], input.salt[1]}});
  std::string id = make_id(ask, input.id_hex);
  std::string model = ask.model;
  ask.messages = nullptr;
  ask.tools = nullptr;
  ask.chat_template_kwargs.clear();
  ask.prompts.clear();
  return std::make_unique<Generation>(std::move(ask), std::move(id), std::move(model), std::move(prompts),
                                      std::move(prototype), input.content.tokenizer, config);
}

}  // namespace tern::serve::openai
