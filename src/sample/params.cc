#include "sample/params.h"

#include <fmt/format.h>

#include <cmath>

#include "sample/processors.h"

namespace tern::sample {
namespace {

Error bad(const char* param, std::string what) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("{} {}", param, what), param);
}

// NaN fails every comparison, so ranges are asked for, not their opposites.
bool within(float v, float low, float high) { return v >= low && v <= high; }

Status check_ids(const SamplingParams& p, int64_t vocab) {
  for (const auto& [id, bias] : p.logit_bias) {
    if (id < 0 || id >= vocab)
      return bad("logit_bias", fmt::format("names token {}, outside the vocabulary of {}", id, vocab));
    if (!std::isfinite(bias)) return bad("logit_bias", "must be finite");
  }
  for (int32_t id : p.bad_words) {
    if (id < 0 || id >= vocab)
      return bad("bad_words", fmt::format("names token {}, outside the vocabulary of {}", id, vocab));
  }
  return {};
}

Status check_thinking(const SamplingParams& p, int64_t vocab, const SlotCapacity& capacity) {
  if (p.thinking_limit < 0) return {};
  const char* const param = "reasoning_max_tokens";
  if (p.thinking_mark.empty() || p.thinking_forced.empty()) return bad(param, "needs a mark that ends reasoning");
  if (p.thinking_mark.size() + p.thinking_forced.size() > static_cast<size_t>(capacity.thinking)) {
    return bad(param, fmt::format("ends reasoning with more than {} tokens", capacity.thinking));
  }
  for (const auto* ids : {&p.thinking_mark, &p.thinking_forced}) {
    for (const int32_t id : *ids) {
      if (id < 0 || id >= vocab)
        return bad(param, fmt::format("ends reasoning with token {}, which is never sampled", id));
    }
  }
  return {};
}

}  // namespace

Status validate(const SamplingParams& p, size_t stop_ids, int64_t vocab, int max_logprobs,
                const SlotCapacity& capacity) {
  if (!within(p.temperature, 0.0f, 1e6f)) return bad("temperature", "must be a number from 0 to 1e6");
  if (!within(p.top_p, 0.0f, 1.0f)) return bad("top_p", "must be a number from 0 to 1");
  if (!within(p.min_p, 0.0f, 1.0f)) return bad("min_p", "must be a number from 0 to 1");
  if (p.top_k < -1) return bad("top_k", "must be at least -1");
  if (!(p.repetition_penalty > 0.0f && p.repetition_penalty <= 1e6f)) {
    return bad("repetition_penalty", "must be a number above 0");
  }
  if (!within(p.frequency_penalty, -2.0f, 2.0f)) return bad("frequency_penalty", "must be a number from -2 to 2");
  if (!within(p.presence_penalty, -2.0f, 2.0f)) return bad("presence_penalty", "must be a number from -2 to 2");
  if (p.min_tokens < 0) return bad("min_tokens", "must not be negative");
  const int64_t most = max_logprobs < 0 ? vocab : max_logprobs;
  if (p.logprobs > most) return bad("top_logprobs", fmt::format("must be at most {}", most));
  if (p.prompt_logprobs > most) return bad("prompt_logprobs", fmt::format("must be at most {}", most));
  if (p.logit_bias.size() > static_cast<size_t>(capacity.logit_bias)) {
    return bad("logit_bias", fmt::format("has more than {} entries", capacity.logit_bias));
  }
  if (p.bad_words.size() > static_cast<size_t>(capacity.bad_words)) {
    return bad("bad_words", fmt::format("has more than {} entries", capacity.bad_words));
  }
  if (stop_ids > static_cast<size_t>(capacity.stop_ids)) {
    return bad("stop_token_ids", fmt::format("are more than {} with the model's own", capacity.stop_ids));
  }
  TERN_RETURN_IF_ERROR(check_thinking(p, vocab, capacity));
  return check_ids(p, vocab);
}

ops::SlotParams slot_params(const SamplingParams& p, int stop_ids) {
  ops::SlotParams s;
  s.seed = p.seed;
  s.greedy = p.greedy();
  s.temperature = p.greedy() ? 1.0f : p.temperature;
  s.scale = 1.0f / s.temperature;
  s.top_p = p.top_p, s.min_p = p.min_p, s.top_k = p.top_k;
  s.repetition = p.repetition_penalty, s.frequency = p.frequency_penalty, s.presence = p.presence_penalty;
  s.min_tokens = p.min_tokens;
  s.stop_count = stop_ids;
  s.bias_count = static_cast<int32_t>(p.logit_bias.size());
  s.bad_count = static_cast<int32_t>(p.bad_words.size());
  s.thinking_limit = p.thinking_limit;
  s.thinking_mark = static_cast<int32_t>(p.thinking_mark.size());
  s.thinking_forced = static_cast<int32_t>(p.thinking_forced.size());
  s.penalised = (wanted_processors(p) & kPenalties) != 0;
  return s;
}

ops::ThinkingIds thinking_ids(const SamplingParams& p) {
  return {p.thinking_mark.data(), p.thinking_forced.data(), static_cast<int32_t>(p.thinking_mark.size()),
          static_cast<int32_t>(p.thinking_forced.size())};
}

uint32_t wanted_processors(const SamplingParams& p) {
  uint32_t bits = 0;
  if (!p.logit_bias.empty()) bits |= kBias;
  if (p.min_tokens > 0) bits |= kMinTokens;
  if (p.repetition_penalty != 1.0f || p.frequency_penalty != 0.0f || p.presence_penalty != 0.0f) bits |= kPenalties;
  if (!p.bad_words.empty()) bits |= kBadWords;
  if (p.thinking_limit >= 0) bits |= kThinking;
  return bits;
}

}  // namespace tern::sample
