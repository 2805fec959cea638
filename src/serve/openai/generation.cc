#include "serve/openai/generation.h"

#include "base/clock.h"
#include "json/json.h"

namespace tern::serve::openai {

std::string_view finish_name(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop:
      return "stop";
    case engine::FinishReason::kLength:
      return "length";
    case engine::FinishReason::kAbort:
      return "abort";
    case engine::FinishReason::kRecoverStop:
      return "recover_stop";
    case engine::FinishReason::kError:
      return "error";
    case engine::FinishReason::kNone:
      break;
  }
  return "";
}

Generation::Generation(Ask ask, std::string id, std::string model, std::vector<PromptFacts> prompts,
                       engine::Request prototype, const content::Tokenizer* tokenizer, const ServeConfig& config)
    : ask_(std::move(ask)),
      id_(std::move(id)),
      model_(std::move(model)),
      created_(static_cast<int64_t>(wall_seconds())),
      prepared_ns_(monotonic_ns()),
      wall_offset_ns_(static_cast<int64_t>(wall_seconds() * 1e9) - prepared_ns_),
      prompts_(std::move(prompts)),
      prototype_(std::move(prototype)),
      tokenizer_(tokenizer),
      mm_output_(config.mm_output && ask_.chat),
      skip_special_(config.skip_special_tokens) {
  const size_t n = static_cast<size_t>(ask_.n);
  choices_.resize(prompts_.size() * n);
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    choice.index = static_cast<int32_t>(i);
    choice.prompt = static_cast<int32_t>(i / n);
    choice.seed = prototype_.sampling.seed + i % n;  // samples of one prompt differ; prompts of a list do not
    start_text(choice);
    if (!ask_.stop.empty()) {
      choice.stop = std::make_unique<content::StopMatcher>(ask_.stop, ask_.include_stop_str_in_output);
    }
    if (ask_.echo) choice.characters = count_characters(echoed_text(choice));
  }
  open_choices_ = static_cast<int>(choices_.size());
  build_templates();
}

// The text of a completion goes on where its prompt ends, so that both can be joined; an answer in a chat is a text of
// its own (it loses the first space of SentencePiece vocabularies, as in FastDeploy), unless it continues one.
void Generation::start_text(Choice& choice) const {
  if (tokenizer_ == nullptr) return;
  choice.detokenizer.emplace(*tokenizer_, skips_special());
  if (ask_.chat && ask_.completion_token_ids.empty() && !ask_.continue_final_message) return;
  choice.detokenizer->continue_after(prompts_[static_cast<size_t>(choice.prompt)].ids);
}

// A prompt of ids may end inside a character: its first bytes are then shown with the token that finishes it.
std::string_view Generation::echoed_text(const Choice& choice) const {
  std::string_view text = prompt_text(choice);
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
  for (int i = choice.detokenizer ? choice.detokenizer->unfinished() : 0; i > 0 && text.ends_with(kReplacement); --i) {
    text.remove_suffix(kReplacement.size());
  }
  return text;
}

engine::Request Generation::engine_request(const Choice& choice) const {
  engine::Request request = prototype_;
  request.id = choice.request_id;
  request.external_id = id_ + "_" + std::to_string(choice.index);
  const PromptFacts& facts = prompts_[static_cast<size_t>(choice.prompt)];
  request.prompt = facts.ids;
  request.media = facts.media;  // samples share the patches
  request.positions = facts.positions;
  request.rope_delta = facts.rope_delta;
  request.sampling.seed = choice.seed;
  const auto room = static_cast<int64_t>(prototype_.max_tokens) - static_cast<int64_t>(request.prompt.size());
  const int64_t wanted = ask_.max_tokens.value_or(room);
  request.max_tokens = static_cast<int32_t>(wanted < room ? wanted : room);
  request.max_tokens_given = ask_.max_tokens.has_value();
  for (auto& key : request.extra_keys) key.end = static_cast<int32_t>(request.prompt.size());
  return request;
}

void Generation::release_media() {
  for (PromptFacts& facts : prompts_) {
    facts.media = {};
    facts.positions = {};
  }
}

int64_t Generation::prompt_tokens(const Choice& choice) const {
  return static_cast<int64_t>(prompts_[static_cast<size_t>(choice.prompt)].ids.size());
}

// One token's text: through the detokenizer, then through the stop strings.
void Generation::take_text(Choice& choice, const engine::Delta& delta, bool last_token, Piece& piece, bool& stopped) {
  const bool ends_here =
      last_token && delta.finish == engine::FinishReason::kStop && delta.stop_token == piece.token->id;
  const bool shown = !ends_here || ask_.include_stop_str_in_output;
  piece.offset = choice.characters;
  if (choice.detokenizer) {
    if (shown) {
      const bool drops = choice.detokenizer->drops_space();
      piece.raw = choice.detokenizer->push(piece.token->id);
      piece.spaceless = drops && !choice.detokenizer->drops_space();
      piece.offset += choice.detokenizer->earlier();
    }
    if (piece.last) piece.raw += choice.detokenizer->finish();
    if (!shown) piece.offset += count_characters(piece.raw);  // all of it belongs to the tokens before
  }
  if (!choice.stop) {
    piece.text = piece.raw;
    return;
  }
  auto result = choice.stop->push(piece.raw);
  piece.text = std::move(result.text);
  stopped = result.stopped;
  if (piece.last && !stopped) piece.text += choice.stop->finish();
}

Generation::Outcome Generation::consume(Choice& choice, engine::Delta&& delta, int64_t now_ns, std::string& out) {
  Outcome outcome;
  if (choice.finished) return outcome;
  choice.times = delta.times;
  choice.received_ns = now_ns;
  if (delta.cached_tokens > choice.cached_tokens) choice.cached_tokens = delta.cached_tokens;
  if (!delta.prompt_logprobs.empty()) choice.prompt_logprobs = std::move(delta.prompt_logprobs);
  if (delta.finish == engine::FinishReason::kError) {
    error_ = std::move(delta.error);
    if (error_.message.empty()) error_.message = "the engine ended this request";
    outcome.failed = true;
    return outcome;
  }
  const int64_t since = choice.completion_tokens == 0 ? delta.times.arrival : delta.times.scheduled;
  const int64_t arrival = since > 0 ? now_ns - since : 0;
  for (size_t i = 0; i < delta.tokens.size(); ++i) {
    Piece piece;
    piece.token = &delta.tokens[i];
    piece.arrival_ns = arrival;
    const bool last_token = i + 1 == delta.tokens.size();
    piece.last = last_token && delta.finish != engine::FinishReason::kNone;
    bool stopped = false;
    take_text(choice, delta, last_token, piece, stopped);
    ++choice.completion_tokens;
    ++outcome.tokens;
    if (stopped) {  // what comes after is neither shown nor counted
      outcome.abort = delta.finish == engine::FinishReason::kNone;
      piece.last = true;
      choice.reason = engine::FinishReason::kStop;
    } else if (piece.last) {
      choice.reason = delta.finish;
    }
    show(choice, piece, out);
    if (piece.last) break;
  }
  if (choice.reason == engine::FinishReason::kNone &&
      delta.finish != engine::FinishReason::kNone) {  // ends without a token
    Piece piece;
    piece.last = true;
    piece.arrival_ns = arrival;
    choice.reason = delta.finish;
    if (choice.detokenizer) piece.raw = choice.detokenizer->finish();
    piece.text = choice.stop ? choice.stop->push(piece.raw).text + choice.stop->finish() : piece.raw;
    show(choice, piece, out);
  }
  if (choice.reason != engine::FinishReason::kNone) {
    choice.finished = true;
    outcome.choice_finished = true;
    --open_choices_;
  }
  return outcome;
}

// Hands one token to the stream, or keeps it for the whole answer.
void Generation::show(Choice& choice, Piece& piece, std::string& out) {
  if (ask_.stream) {
    if (!choice.started) append_first_chunk(choice, out);
    choice.started = true;
    append_entry(choice, piece, out);
  } else {
    choice.text += piece.text;
    if (piece.token != nullptr) {
      if (ask_.return_token_ids) choice.ids.push_back(piece.token->id);
      if (ask_.logprobs) {
        if (piece.spaceless) choice.spaceless = choice.tokens.size();
        choice.tokens.push_back(*piece.token);
        choice.offsets.push_back(piece.offset);
      }
    }
    if (ask_.return_token_ids) choice.raw_text += piece.raw;
  }
  if (ask_.logprobs) choice.characters += count_characters(piece.raw);
}

UsageCounts Generation::usage() const {
  UsageCounts usage;
  for (const PromptFacts& facts : prompts_) {
    usage.prompt += static_cast<int64_t>(facts.ids.size());
    usage.image += facts.image_tokens;
    usage.video += facts.video_tokens;
  }
  const size_t n = static_cast<size_t>(ask_.n);
  for (size_t i = 0; i < choices_.size(); ++i) {
    usage.completion += choices_[i].completion_tokens;
    if (i % n == 0) usage.cached += choices_[i].cached_tokens;  // the prompt is counted once
  }
  return usage;
}

UsageCounts Generation::usage(const Choice& choice) const {
  const PromptFacts& facts = prompts_[static_cast<size_t>(choice.prompt)];
  return {.prompt = static_cast<int64_t>(facts.ids.size()),
          .completion = choice.started ? choice.completion_tokens : 0,
          .cached = choice.cached_tokens,
          .image = facts.image_tokens,
          .video = facts.video_tokens};
}

}  // namespace tern::serve::openai
