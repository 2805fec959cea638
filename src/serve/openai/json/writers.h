// Pieces of responses, appended to a byte string: no document is built.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "content/text/tokenizer.h"
#include "engine/request.h"
#include "serve/core/usage.h"

namespace tern::serve::openai {

void append_int(std::string& out, int64_t value);
void append_ids(std::string& out, std::span<const int32_t> ids);  // [1,2,3]
// Of each token the ids that truncation left, [[1,2],[2]]; null where none have any: nothing was truncated.
void append_sampling_mask(std::string& out, std::span<const std::vector<int32_t>> tokens);
// Seconds with six decimals, from nanoseconds; a negative span is 0.
void append_seconds(std::string& out, int64_t ns);

void append_usage(std::string& out, const UsageCounts& usage);  // the object of fastdeploy.md 3.8

// How tokens of log-prob lists are named: text (or "bytes:\xNN...").
struct TokenNames {
  const content::Tokenizer* tokenizer = nullptr;  // null: the id's digits
  bool spaceless = false;                         // at the start of a text that drops its first space
  bool with_ids = false;                          // lists name ids too (return_token_ids)
  std::string name(int32_t id) const;
  void append_bytes(std::string& out, int32_t id) const;  // [226,130] of the token's own bytes

 private:
  bool drops_space(int32_t id) const;
};

struct ChatLogprobForm {
  int32_t top = 0;     // alternatives
  bool nulls = false;  // whole answers name the fields that an alternative does not have
  bool decode = true;  // false: tokens and bytes are null (include_logprobs_decode_token)
};
// One element of chat logprobs.content: the sampled token, then the alternatives.
void append_chat_logprob(std::string& out, const TokenNames& names, const engine::TokenOutput& token,
                         ChatLogprobForm form);
// The completions' object: tokens, token_logprobs, top_logprobs (of each the `top` likeliest that have different
// names), text_offset; with ids top_token_ids too, in the order of top_logprobs. null: a token without log-probs, which
// a prompt's first is.
void append_completion_logprobs(std::string& out, const TokenNames& names, std::span<const engine::TokenOutput> tokens,
                                std::span<const int64_t> offsets, int32_t top);
// [null,{"id":{"logprob","rank","decoded_token"}},...] for every prompt position; without `decode` the last is null.
void append_prompt_logprobs(std::string& out, const TokenNames& names, bool decode,
                            const std::vector<std::vector<engine::TokenLogprob>>& positions);

}  // namespace tern::serve::openai
