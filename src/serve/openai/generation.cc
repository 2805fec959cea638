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
  children_.resize(prompts_.size() * n);
  for (size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    child.index = static_cast<int32_t>(i);
    child.prompt = static_cast<int32_t>(i / n);
    child.seed = prototype_.sampling.seed + i % n;  // samples of one prompt differ; prompts of a list do not
    start_text(child);
    if (!ask_.stop.empty()) {
      child.stop = std::make_unique<content::StopMatcher>(ask_.stop, ask_.include_stop_str_in_output);
    }
    if (ask_.echo) child.characters = count_characters(echoed_text(child));
  }
  open_children_ = static_cast<int>(children_.size());
  build_templates();
}

// The text of a completion goes on where its prompt ends, so that both can be joined; an answer in a chat is a text of
// its own (it loses the first space of SentencePiece vocabularies, as in FastDeploy), unless it continues one.
void Generation::start_text(Child& child) const {
  if (tokenizer_ == nullptr) return;
  child.detokenizer.emplace(*tokenizer_, skips_special());
  if (ask_.chat && ask_.completion_token_ids.empty() && !ask_.continue_final_message) return;
  child.detokenizer->continue_after(prompts_[static_cast<size_t>(child.prompt)].ids);
}

// A prompt of ids may end inside a character: its first bytes are then shown with the token that finishes it.
std::string_view Generation::echoed_text(const Child& child) const {
  std::string_view text = prompt_text(child);
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
  for (int i = child.detokenizer ? child.detokenizer->unfinished() : 0; i > 0 && text.ends_with(kReplacement); --i) {
    text.remove_suffix(kReplacement.size());
  }
  return text;
}

engine::Request Generation::engine_request(const Child& child) const {
  engine::Request request = prototype_;
  request.id = child.request_id;
  request.external_id = id_ + "_" + std::to_string(child.index);
  const PromptFacts& facts = prompts_[static_cast<size_t>(child.prompt)];
  request.prompt = facts.ids;
  request.media = facts.media;  // samples share the patches
  request.positions = facts.positions;
  request.rope_delta = facts.rope_delta;
  request.sampling.seed = child.seed;
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

int64_t Generation::prompt_tokens(const Child& child) const {
  return static_cast<int64_t>(prompts_[static_cast<size_t>(child.prompt)].ids.size());
}

// One token's text: through the detokenizer, then through the stop strings.
void Generation::take_text(Child& child, const engine::Delta& delta, bool last_token, Piece& piece, bool& stopped) {
  const bool ends_here =
      last_token && delta.finish == engine::FinishReason::kStop && delta.stop_token == piece.token->id;
  const bool shown = !ends_here || ask_.include_stop_str_in_output;
  piece.offset = child.characters;
  if (child.detokenizer) {
    if (shown) {
      const bool drops = child.detokenizer->drops_space();
      piece.raw = child.detokenizer->push(piece.token->id);
      piece.spaceless = drops && !child.detokenizer->drops_space();
      piece.offset += child.detokenizer->earlier();
    }
    if (piece.last) piece.raw += child.detokenizer->finish();
    if (!shown) piece.offset += count_characters(piece.raw);  // all of it belongs to the tokens before
  }
  if (!child.stop) {
    piece.text = piece.raw;
    return;
  }
  auto result = child.stop->push(piece.raw);
  piece.text = std::move(result.text);
  stopped = result.stopped;
  if (piece.last && !stopped) piece.text += child.stop->finish();
}

Generation::Outcome Generation::consume(Child& child, engine::Delta&& delta, int64_t now_ns, std::string& out) {
  Outcome outcome;
  if (child.finished) return outcome;
  child.times = delta.times;
  child.received_ns = now_ns;
  if (delta.cached_tokens > child.cached_tokens) child.cached_tokens = delta.cached_tokens;
  if (!delta.prompt_logprobs.empty()) child.prompt_logprobs = std::move(delta.prompt_logprobs);
  if (delta.finish == engine::FinishReason::kError) {
    error_ = std::move(delta.error);
    if (error_.message.empty()) error_.message = "the engine ended this request";
    outcome.failed = true;
    return outcome;
  }
  const int64_t since = child.completion_tokens == 0 ? delta.times.arrival : delta.times.scheduled;
  const int64_t arrival = since > 0 ? now_ns - since : 0;
  for (size_t i = 0; i < delta.tokens.size(); ++i) {
    Piece piece;
    piece.token = &delta.tokens[i];
    piece.arrival_ns = arrival;
    const bool last_token = i + 1 == delta.tokens.size();
    piece.last = last_token && delta.finish != engine::FinishReason::kNone;
    bool stopped = false;
    take_text(child, delta, last_token, piece, stopped);
    ++child.completion_tokens;
    ++outcome.tokens;
    if (stopped) {  // what comes after is neither shown nor counted
      outcome.abort = delta.finish == engine::FinishReason::kNone;
      piece.last = true;
      child.reason = engine::FinishReason::kStop;
    } else if (piece.last) {
      child.reason = delta.finish;
    }
    show(child, piece, out);
    if (piece.last) break;
  }
  if (child.reason == engine::FinishReason::kNone &&
      delta.finish != engine::FinishReason::kNone) {  // ends without a token
    Piece piece;
    piece.last = true;
    piece.arrival_ns = arrival;
    child.reason = delta.finish;
    if (child.detokenizer) piece.raw = child.detokenizer->finish();
    piece.text = child.stop ? child.stop->push(piece.raw).text + child.stop->finish() : piece.raw;
    show(child, piece, out);
  }
  if (child.reason != engine::FinishReason::kNone) {
    child.finished = true;
    outcome.child_finished = true;
    --open_children_;
  }
  return outcome;
}

// Hands one token to the stream, or keeps it for the whole answer.
void Generation::show(Child& child, Piece& piece, std::string& out) {
  if (ask_.stream) {
    if (!child.started) append_first_chunk(child, out);
    child.started = true;
    append_entry(child, piece, out);
  } else {
    child.text += piece.text;
    if (piece.token != nullptr) {
      if (ask_.return_token_ids) child.ids.push_back(piece.token->id);
      if (ask_.logprobs) {
        if (piece.spaceless) child.spaceless = child.tokens.size();
        child.tokens.push_back(*piece.token);
        child.offsets.push_back(piece.offset);
      }
    }
    if (ask_.return_token_ids) child.raw_text += piece.raw;
  }
  if (ask_.logprobs) child.characters += count_characters(piece.raw);
}

UsageCounts Generation::usage() const {
  UsageCounts usage;
  for (const PromptFacts& facts : prompts_) {
    usage.prompt += static_cast<int64_t>(facts.ids.size());
    usage.image += facts.image_tokens;
    usage.video += facts.video_tokens;
  }
  const size_t n = static_cast<size_t>(ask_.n);
  for (size_t i = 0; i < children_.size(); ++i) {
    usage.completion += children_[i].completion_tokens;
    if (i % n == 0) usage.cached += children_[i].cached_tokens;  // the prompt is counted once
  }
  return usage;
}

UsageCounts Generation::usage(const Child& child) const {
  const PromptFacts& facts = prompts_[static_cast<size_t>(child.prompt)];
  return {.prompt = static_cast<int64_t>(facts.ids.size()),
          .completion = child.started ? child.completion_tokens : 0,
          .cached = child.cached_tokens,
          .image = facts.image_tokens,
          .video = facts.video_tokens};
}

}  // namespace tern::serve::openai
