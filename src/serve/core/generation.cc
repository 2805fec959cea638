#include "serve/core/generation.h"

#include <algorithm>
#include <numeric>

#include "base/clock.h"

namespace tern::serve {

Generation::Generation(Ask ask, std::string id, std::vector<PromptFacts> prompts, engine::Request prototype,
                       const ServeConfig& config, AnswerParts parts)
    : ask_(std::move(ask)),
      id_(std::move(id)),
      created_(static_cast<int64_t>(wall_seconds())),
      prepared_ns_(monotonic_ns()),
      wall_offset_ns_(static_cast<int64_t>(wall_seconds() * 1e9) - prepared_ns_),
      prompts_(std::move(prompts)),
      prototype_(std::move(prototype)),
      parts_(std::move(parts)),
      mm_output_(config.mm_output && ask_.chat),
      sampling_mask_(config.sampling_mask),
      pooling_(config.pooling ? &*config.pooling : nullptr) {
  const size_t n = static_cast<size_t>(ask_.n);
  const TokenText::Rules rules = text_rules(config);
  choices_.reserve(prompts_.size() * n);
  for (size_t i = 0; i < prompts_.size() * n; ++i) {
    Choice& choice = choices_.emplace_back(rules);
    choice.index = static_cast<int32_t>(i);
    choice.prompt = static_cast<int32_t>(i / n);
    choice.seed = prototype_.sampling.seed + i % n;  // samples of one prompt differ; prompts of a list do not
    start_text(choice);
  }
  if (parses()) {
    answer::ReasoningStart start{};
    for (Choice& choice : choices_) {
      if (choice.index % ask_.n == 0) start = parts_.format->start(prompt(choice).ids);
      start_parser(choice, start);
    }
  }
  open_choices_ = static_cast<int>(choices_.size());
  writer_ = parts_.make_writer(*this);
}

TokenText::Rules Generation::text_rules(const ServeConfig& config) const {
  return {.tokenizer = parts_.tokenizer,
          .skip_special_tokens = config.skip_special_tokens || ask_.skip_special_tokens,
          .stop = &ask_.stop,
          .include_stop = ask_.include_stop_str_in_output,
          .count = ask_.logprobs};
}

// The text of a completion goes on where its prompt ends, so that both can be joined; an answer in a chat is a text of
// its own (it loses the first space of SentencePiece vocabularies, as in FastDeploy), unless it continues one.
void Generation::start_text(Choice& choice) const {
  const bool own = ask_.chat && ask_.completion_token_ids.empty() && !ask_.continue_final_message;
  if (!own) choice.text.continue_after(prompt(choice).ids);
  if (ask_.echo) choice.text.begin_at(count_characters(echoed_text(choice)));
}

void Generation::start_parser(Choice& choice, answer::ReasoningStart start) const {
  answer::AnswerOptions options;
  options.start = start;
  options.parse_calls = ask_.tool_specs != nullptr;
  options.tools = ask_.tool_specs;
  options.parallel_calls = ask_.parallel_calls;
  options.untagged = ask_.constraint.has_value();
  options.random_hex = parts_.random_hex;
  choice.parser.emplace(*parts_.format, std::move(options));
}

// A prompt of ids may end inside a character: its first bytes are then shown with the token that finishes it.
std::string_view Generation::echoed_text(const Choice& choice) const {
  std::string_view text = prompt(choice).text;
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
  for (int i = choice.text.unfinished(); i > 0 && text.ends_with(kReplacement); --i) {
    text.remove_suffix(kReplacement.size());
  }
  return text;
}

engine::Request Generation::engine_request(const Choice& choice) const {
  engine::Request request = prototype_;
  request.id = choice.request_id;
  request.external_id = choice_id(choice);
  const PromptFacts& facts = prompt(choice);
  request.prompt = facts.ids;
  request.media = facts.media;  // samples share the patches
  request.positions = facts.positions;
  request.rope_delta = facts.rope_delta;
  request.last_said = facts.last_said;
  request.sampling.seed = choice.seed;
  const auto room = static_cast<int64_t>(prototype_.max_tokens) - static_cast<int64_t>(request.prompt.size());
  const int64_t wanted = ask_.max_tokens.value_or(room);
  request.max_tokens = static_cast<int32_t>(std::max<int64_t>(wanted < room ? wanted : room, 1));
  if (ask_.pooling) request.max_tokens = 1;  // as every sequence of the engine; none is drawn
  for (auto& key : request.extra_keys) key.end = static_cast<int32_t>(request.prompt.size());
  return request;
}

void Generation::release_media() {
  for (PromptFacts& facts : prompts_) {
    facts.media = {};
    facts.positions = {};
  }
}

Generation::Outcome Generation::consume(Choice& choice, engine::Delta&& delta, int64_t now_ns, std::string& out) {
  Outcome outcome;
  if (choice.finished) return outcome;
  choice.times = delta.times;
  choice.received_ns = now_ns;
  if (delta.cached_tokens > choice.cached_tokens) choice.cached_tokens = delta.cached_tokens;
  if (!delta.prompt_logprobs.empty()) choice.prompt_logprobs = std::move(delta.prompt_logprobs);
  if (!delta.interruptions.empty()) choice.interruptions = std::move(delta.interruptions);
  if (delta.finish == engine::FinishReason::kError) {
    error_ = std::move(delta.error);
    if (error_.message.empty()) error_.message = "the engine ended this request";
    outcome.failed = true;
    return outcome;
  }
  choice.pooled = std::move(delta.pooled);
  if (ask_.pooling && delta.finish == engine::FinishReason::kAbort) {  // there is no part of a vector
    error_ = make_error(ErrorCode::kUnavailable, "the request was aborted");
    outcome.failed = true;
    return outcome;
  }
  if (ask_.says_nothing() && !delta.tokens.empty()) {  // the engine draws one token at least
    delta.tokens.clear();
    delta.finish = engine::FinishReason::kLength;
  }
  const int64_t since = choice.completion_tokens == 0 ? delta.times.arrival : delta.times.scheduled;
  const int64_t arrival = since > 0 ? now_ns - since : 0;
  for (size_t i = 0; i < delta.tokens.size() && choice.reason == engine::FinishReason::kNone; ++i) {
    take_token(choice, delta, i, arrival, outcome, out);
  }
  if (choice.reason == engine::FinishReason::kNone && delta.finish != engine::FinishReason::kNone) {  // without a token
    TokenText::Piece piece = choice.text.finish();
    TokenNews news{.last = true, .arrival_ns = arrival};
    choice.reason = delta.finish;
    tell(choice, piece, news, out);
  }
  if (choice.reason != engine::FinishReason::kNone) {
    choice.finished = true;
    outcome.choice_finished = true;
    --open_choices_;
  }
  return outcome;
}

void Generation::take_token(Choice& choice, const engine::Delta& delta, size_t number, int64_t arrival_ns,
                            Outcome& outcome, std::string& out) {
  const engine::TokenOutput& token = delta.tokens[number];
  const bool last_token = number + 1 == delta.tokens.size();
  const bool stops = delta.stop_token == token.id || (ask_.hide_stop_sequence && delta.stop_sequence >= 0);
  const bool ends_here = last_token && delta.finish == engine::FinishReason::kStop && stops;
  TokenNews news{.token = &token, .last = last_token && delta.finish != engine::FinishReason::kNone};
  news.end_token = ends_here;
  news.arrival_ns = arrival_ns;
  TokenText::Piece piece = choice.text.push(token.id, !ends_here || ask_.include_stop_str_in_output, news.last);
  ++choice.completion_tokens;
  if (!token.logprobs.empty()) choice.logprob_sum += static_cast<double>(token.logprobs[0].logprob);
  if (token.entropy >= 0) choice.entropies.push_back(token.entropy);
  ++outcome.tokens;
  if (piece.stopped) {  // what comes after is neither shown nor counted
    outcome.abort = delta.finish == engine::FinishReason::kNone;
    news.last = true;
    choice.reason = engine::FinishReason::kStop;
    choice.stop_string = piece.stop;
  } else if (news.last) {
    choice.reason = delta.finish;
  }
  tell(choice, piece, news, out);
  if (news.cut) outcome.abort = delta.finish == engine::FinishReason::kNone;
}

void Generation::parse(Choice& choice, const TokenText::Piece& piece, TokenNews& news) {
  AnswerText& parser = *choice.parser;
  events_.clear();
  // An end token belongs to no part: what comes with it is the rest of the tokens before.
  const bool own = news.token != nullptr && !news.end_token;
  parser.push(own ? std::optional(news.token->id) : std::nullopt, piece.raw.size(), piece.text, events_);
  if (!news.last && parser.wants_end()) {  // parallel_tool_calls: false
    news.last = news.cut = true;
    choice.reason = engine::FinishReason::kStop;
  }
  if (news.last) {
    parser.finish(choice.reason == engine::FinishReason::kStop, events_);
    choice.called = events_.back().complete;  // kFinish
  }
  if (!ask_.include_reasoning) {
    std::erase_if(events_, [](const answer::Event& e) { return e.kind == answer::EventKind::kReasoning; });
  }
}

// The piece's events, to the writer.
void Generation::tell(Choice& choice, TokenText::Piece& piece, TokenNews& news, std::string& out) {
  if (choice.parser) {
    parse(choice, piece, news);
    news.events = events_;
  } else if (!piece.text.empty()) {
    said_.text = std::move(piece.text);
    news.events = {&said_, 1};
  }
  news.raw = piece.raw;
  news.spaceless = piece.spaceless;
  news.offset = piece.offset;
  writer_->take(choice, news, out);
}

std::vector<size_t> Generation::shown() const {
  std::vector<size_t> all(choices_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  if (ask_.best == 0) return all;
  const auto mean = [&](size_t i) {
    const auto tokens = static_cast<double>(choices_[i].completion_tokens);
    return tokens > 0 ? choices_[i].logprob_sum / tokens : 0.0;
  };
  std::vector<size_t> out;
  const auto n = static_cast<std::ptrdiff_t>(ask_.n);
  for (auto from = all.begin(); from != all.end(); from += n) {
    std::stable_sort(from, from + n, [&](size_t a, size_t b) { return mean(a) > mean(b); });
    out.insert(out.end(), from, from + ask_.best);
  }
  return out;
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
    if (choices_[i].parser) usage.reasoning += choices_[i].parser->reasoning_tokens();
    if (i % n == 0) usage.cached += choices_[i].cached_tokens;  // the prompt is counted once
  }
  return usage;
}

UsageCounts Generation::usage(const Choice& choice) const {
  const PromptFacts& facts = prompt(choice);
  return {.prompt = static_cast<int64_t>(facts.ids.size()),
          .completion = choice.completion_tokens,
          .cached = choice.cached_tokens,
          .reasoning = choice.parser ? choice.parser->reasoning_tokens() : 0,
          .image = facts.image_tokens,
          .video = facts.video_tokens};
}

}  // namespace tern::serve
