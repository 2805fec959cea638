// One sample of one prompt while it is answered: one row of the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "serve/core/answer_text.h"
#include "serve/core/token_text.h"

namespace tern::serve {

struct PromptFacts {
  std::vector<int32_t> ids;
  std::string text;       // filled when the answer shows it (return_token_ids, echo)
  std::string last_said;  // engine::Request::last_said
  // Prompts with pictures only; the first two go into the engine's requests and are released then.
  std::vector<engine::MediaItem> media;
  std::vector<int32_t> positions;  // [3, ids]
  int32_t rope_delta = 0;
  int32_t image_tokens = 0, video_tokens = 0;  // placeholders among ids
};

struct Choice {
  explicit Choice(const TokenText::Rules& rules) : text(rules) {}

  engine::RequestId request_id = 0;  // given when submitted
  int32_t index = 0, prompt = 0;
  uint64_t seed = 0;
  TokenText text;
  std::optional<AnswerText> parser;  // where the server has parsers, in chats

  bool finished = false;  // nothing more will be shown
  engine::FinishReason reason = engine::FinishReason::kNone;
  int32_t stop_string = -1;  // of the ask, which ended the text
  bool called = false;       // finished by itself, with tool calls and only complete ones
  int64_t completion_tokens = 0, cached_tokens = 0;
  double logprob_sum = 0;        // of its tokens, where log-probs are computed
  std::vector<float> entropies;  // of what its tokens were drawn from (--enable-entropy)
  int64_t last_token_ns = 0;
  int64_t submitted_ns = 0, received_ns = 0;  // handed to the engine; its newest delta came
  engine::RequestTimes times;
  std::vector<std::vector<engine::TokenLogprob>> prompt_logprobs;  // came with the first delta
  std::vector<engine::Preemption> interruptions;                   // with the last
  std::vector<float> pooled;                                       // of a pooling model
};

}  // namespace tern::serve
