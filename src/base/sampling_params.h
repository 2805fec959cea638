// What a request asks of sampling (fastdeploy.md 3.1, 5). A value: no handles, no pointers.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tern {

enum class LogprobsMode : uint8_t { kRawLogprobs, kRawLogits, kProcessedLogprobs, kProcessedLogits };

struct SamplingParams {
  float temperature = 1.0f;  // below 1e-5: greedy (arg-max, lowest id wins ties)
  float top_p = 0.7f;        // FastDeploy's default, not OpenAI's
  int32_t top_k = 0;         // 0 and -1: off
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;     // over prompt and output
  bool repetition_over_prompt = true;  // false: over output alone, as PaddleNLP counts (paddlenlp-server.md 2.7)
  float frequency_penalty = 0.0f;      // over output
  float presence_penalty = 0.0f;       // over output
  uint64_t seed = 0;
  int32_t min_tokens = 0;                             // end-of-text and stop ids are masked before that many
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, bias
  std::vector<int32_t> bad_words;                     // single token ids never sampled
  // Ids that end reasoning; empty: the answer has none. When the limit of its tokens is reached before they have come,
  // `thinking_forced` is forced. -1: no limit.
  std::vector<int32_t> thinking_mark, thinking_forced;
  int32_t thinking_limit = -1;
  int32_t logprobs = -1;                   // alternatives per token; -1: none asked
  int32_t prompt_logprobs = -1;            // alternatives per prompt token; -1: none asked
  bool temp_scaled_logprobs = false;       // fastdeploy.md 5.5
  bool top_p_normalized_logprobs = false;  // fastdeploy.md 5.5

  bool greedy() const { return temperature < 1e-5f; }
  // Whether some token may be left out of what is drawn from.
  bool truncates() const { return greedy() || top_k > 0 || top_p < 1.0f || min_p > 0.0f; }
};

}  // namespace tern
