#include "serve/native/prepare.h"

#include <algorithm>

#include <fmt/format.h>

#include "serve/native/lengths.h"
#include "serve/native/writer.h"
#include "serve/prepare/messages.h"

namespace tern::serve::native {
namespace {

constexpr double kTopP = 0.7, kTemperature = 0.95;
constexpr float kLeastTopP = 1e-5f;
constexpr size_t kBytesPerToken = 8;  // first guess of how much of a long text is needed
constexpr size_t kMargin = 64;        // tokens behind the cut, which the text's end may change

bool too_many(const Error& error) { return error.code == ErrorCode::kResourceExhausted; }

// No longer than `bytes`, and not inside a character.
std::string_view text_prefix(std::string_view text, size_t bytes) {
  if (bytes >= text.size()) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

// The first `most` ids of a text; what lies behind them is hardly read.
Expected<std::vector<int32_t>> encode_first(const prepare::PrepareInput& input, std::string_view text, bool special,
                                            size_t most) {
  const content::Tokenizer* tokenizer = input.content.tokenizer;
  if (tokenizer == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "this model has no tokenizer: send input_ids");
  }
  auto ids = tokenizer->encode(text, special, {most, input.cancelled.get()});
  if (ids.ok() || !too_many(ids.error())) return ids;
  for (size_t bytes = (most + kMargin) * kBytesPerToken;; bytes *= 2) {
    const std::string_view part = text_prefix(text, bytes);
    ids = tokenizer->encode(part, special, {SIZE_MAX, input.cancelled.get()});
    if (!ids.ok()) return ids;
    if (ids->size() < most + kMargin && part.size() < text.size()) continue;
    if (ids->size() > most) ids->resize(most);
    return ids;
  }
}

Expected<std::vector<int32_t>> read_prompt_ids(const json::Array& list, int32_t vocab) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const json::Value& item : list) {
    if (!item.is_int64() || item.get_int64() < 0 || item.get_int64() >= vocab) {
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("input_ids holds {}, but the model knows ids from 0 to {}", json::dump(item), vocab - 1));
    }
    ids.push_back(static_cast<int32_t>(item.get_int64()));
  }
  return ids;
}

// One turn of the user, or the conversation, through the chat template.
Expected<std::string> render(json::Array messages, const prepare::PrepareInput& input) {
  Ask ask;
  ask.chat = true;
  TERN_RETURN_IF_ERROR(prepare::take_messages(messages, nullptr, *input.config, ask));
  if (!ask.media.empty()) {
    return make_error(ErrorCode::kUnsupported, "the native protocol takes no pictures; send OpenAI messages");
  }
  return prepare::render_chat(ask, input);
}

// 2.4, step 1: in front of every check.
void cut(const NativeRequest& r, const ServeConfig& config, std::vector<int32_t>& ids) {
  const int64_t kept = kept_tokens(r, *config.paddlenlp, config.max_model_len, static_cast<int64_t>(ids.size()));
  ids.resize(static_cast<size_t>(kept));
}

struct Prompt {
  std::vector<int32_t> ids;
  bool chat = false;  // the answer is a text of its own
  std::string said;   // the client's text, for engines that answer from a script
};

Expected<Prompt> read_prompt(NativeRequest& r, const prepare::PrepareInput& input) {
  const PaddleNlpConfig& config = *input.config->paddlenlp;
  const int64_t context = input.config->max_model_len;
  const bool from_text = native::from_text(r);
  // Ids beyond four contexts are not counted: a request of that length is refused or cut in any case.
  const int64_t most = from_text && r.truncate ? config.seq_len_limit : 4 * context;
  Prompt prompt;
  if (r.input_ids.is_array() && !r.input_ids.get_array().empty()) {
    TERN_ASSIGN_OR_RETURN(prompt.ids, read_prompt_ids(r.input_ids.get_array(), input.config->vocab_size));
    cut(r, *input.config, prompt.ids);
    return prompt;
  }
  if (from_text && input.config->scripted) prompt.said = std::string(r.text.get_string());
  const bool templated = input.content.chat_template != nullptr && !(from_text && config.raw_text);
  if (!from_text && !r.messages.is_array()) {
    return make_error(ErrorCode::kInvalidArgument, "input_ids is empty, and there is neither text nor messages");
  }
  std::string text;
  if (from_text && !templated) {
    text = std::string(r.text.get_string());
  } else {
    json::Array turns;
    if (from_text)
      turns.push_back(json::Object{{"role", "user"}, {"content", r.text}});
    else
      turns = std::move(r.messages.get_array());
    if (input.content.chat_template == nullptr) {
      return make_error(ErrorCode::kInvalidArgument, "this model has no chat template, which messages need");
    }
    TERN_ASSIGN_OR_RETURN(text, render(std::move(turns), input));
    prompt.chat = true;
  }
  TERN_ASSIGN_OR_RETURN(prompt.ids, encode_first(input, text, !prompt.chat, static_cast<size_t>(most)));
  cut(r, *input.config, prompt.ids);
  if (input.config->scripted && prompt.said.empty()) prompt.said = text;
  return prompt;
}

SamplingParams sampling_of(const NativeRequest& r, const Lengths& lengths, uint64_t random) {
  SamplingParams s;
  s.temperature = static_cast<float>(r.temperature.value_or(kTemperature));
  s.top_p = static_cast<float>(r.topp.value_or(kTopP));
  if (s.top_p < kLeastTopP) {  // 0: the most likely token
    s.top_p = kLeastTopP;
    s.top_k = 1;
  }
  s.repetition_penalty = static_cast<float>(r.penalty_score);
  s.repetition_over_prompt = false;
  s.frequency_penalty = static_cast<float>(r.frequency_score);
  s.presence_penalty = static_cast<float>(r.presence_score);
  const int64_t seed = r.seed.value_or(0);
  s.seed = seed != 0 ? static_cast<uint64_t>(seed) : random >> 1;  // [0, 2^63 - 1]
  s.min_tokens = static_cast<int32_t>(lengths.min_dec_len);
  return s;
}

Status take_stops(const NativeRequest& r, const prepare::PrepareInput& input, engine::Request& request) {
  const RequestLimits& limits = input.config->limits;
  const auto take = [&](std::vector<int32_t> ids) -> Status {
    if (ids.empty()) return {};
    if (ids.size() > static_cast<size_t>(limits.stop_tokens)) {
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("a stop sequence has {} tokens; STOP_SEQS_MAX_LEN is {}", ids.size(), limits.stop_tokens));
    }
    if (request.stop_sequences.size() >= static_cast<size_t>(limits.stop_strings)) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("there are more stop sequences than MAX_STOP_SEQS_NUM ({})", limits.stop_strings));
    }
    request.stop_sequences.push_back(std::move(ids));
    return {};
  };
  for (const std::string& text : r.stop_sequences) {
    TERN_ASSIGN_OR_RETURN(auto ids, encode_first(input, text, false, static_cast<size_t>(limits.stop_tokens) + 1));
    TERN_RETURN_IF_ERROR(take(std::move(ids)));
  }
  for (const auto& list : r.stop_seqs) {
    std::vector<int32_t> ids;
    for (const int64_t id : list) {
      if (id >= 0 && id < input.config->vocab_size) ids.push_back(static_cast<int32_t>(id));  // -1 is padding
    }
    TERN_RETURN_IF_ERROR(take(std::move(ids)));
  }
  for (const int64_t id : r.eos_token_ids) {
    if (id >= 0 && id < input.config->vocab_size) request.stop_token_ids.push_back(static_cast<int32_t>(id));
  }
  return {};
}

Ask ask_of(const NativeRequest& r, const Lengths& lengths, const ServeConfig& config, bool chat) {
  Ask ask;
  ask.chat = chat;
  ask.stream = r.stream;
  ask.max_tokens = lengths.max_dec_len;
  ask.hide_stop_sequence = true;
  ask.last_message_only = r.return_all_tokens || config.paddlenlp->disable_streaming;
  ask.message_timeout = r.timeout > 0 ? static_cast<double>(r.timeout) : 0;
  ask.native = {.return_all_tokens = r.return_all_tokens,
                .return_usage = r.return_usage,
                .benchmark = r.benchmark,
                .grpc = r.grpc};
  return ask;
}

}  // namespace

Prepared prepare(NativeRequest request, const prepare::PrepareInput& input) {
  const ServeConfig& config = *input.config;
  auto read = read_prompt(request, input);
  if (!read.ok()) return unexpected(read.error().message);
  Prompt prompt = *std::move(read);
  if (prompt.ids.empty()) return unexpected("the prompt has no tokens");
  std::optional<std::string> refused;
  const Lengths lengths = settle_lengths(request, *config.paddlenlp, config.max_model_len,
                                         static_cast<int64_t>(prompt.ids.size()), refused);
  if (refused) return Refusal{kRefused, *std::move(refused), request.req_id};
  engine::Request prototype;
  prototype.max_tokens = config.max_model_len;
  prototype.arrival_ns = input.arrival_ns;
  prototype.owner = input.owner;
  if (input.salted) prototype.extra_keys.push_back({0, 0, {input.salt[0], input.salt[1]}});
  prototype.sampling = sampling_of(request, lengths, input.random);
  if (const Status stops = take_stops(request, input, prototype); !stops.ok()) return unexpected(stops.error().message);
  std::vector<PromptFacts> prompts(1);
  prompts[0].ids = std::move(prompt.ids);
  prompts[0].last_said = std::move(prompt.said);
  return std::make_unique<Generation>(
      ask_of(request, lengths, config, prompt.chat), *request.req_id, std::move(prompts), std::move(prototype), config,
      AnswerParts{
          .tokenizer = input.content.tokenizer, .format = nullptr, .random_hex = {}, .make_writer = make_writer});
}

}  // namespace tern::serve::native
