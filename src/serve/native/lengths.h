// Lengths of a native request: what is cut silently, what is refused and what is clamped (paddlenlp-server.md 2.3 steps
// 5 to 8, 2.4). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "serve/native/request.h"
#include "serve/paddlenlp_config.h"

namespace tern::serve::native {

struct Lengths {
  int64_t max_dec_len = 0, min_dec_len = 1;
};

// The prompt is `text`.
bool from_text(const NativeRequest& request);

// Of a prompt of `input` tokens, how many are kept, before anything else is asked of it.
int64_t kept_tokens(const NativeRequest& request, const PaddleNlpConfig& config, int64_t max_seq_len, int64_t input);

// `input`: tokens of the prompt after that cut. The first failure's text is in `refused`.
Lengths settle_lengths(const NativeRequest& request, const PaddleNlpConfig& config, int64_t max_seq_len, int64_t input,
                       std::optional<std::string>& refused);

}  // namespace tern::serve::native
