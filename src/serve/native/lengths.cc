#include "serve/native/lengths.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"

namespace tern::serve::native {
namespace {

constexpr int64_t kRoomForAnswer = 800;  // where the request names no max_dec_len

}  // namespace

bool from_text(const NativeRequest& request) {
  const bool ids = request.input_ids.is_array() && !request.input_ids.get_array().empty();
  return !ids && request.text.is_string();
}

int64_t kept_tokens(const NativeRequest& request, const PaddleNlpConfig& config, int64_t max_seq_len, int64_t input) {
  if (!request.truncate) return input;
  // From text, the tokenizer itself stops at the limit.
  if (from_text(request)) input = std::min<int64_t>(input, config.seq_len_limit);
  const int64_t limit = max_seq_len - std::min(request.max_dec_len.value_or(kRoomForAnswer), max_seq_len);
  // An answer as long as the context leaves no room: the prompt stays, and the answer is clamped.
  return limit > 1 && input > limit ? limit - 1 : input;
}

Lengths settle_lengths(const NativeRequest& request, const PaddleNlpConfig& config, int64_t max_seq_len, int64_t input,
                       std::optional<std::string>& refused) {
  Lengths lengths;
  lengths.min_dec_len = std::min(request.min_dec_len.value_or(1), max_seq_len);
  lengths.max_dec_len = request.max_dec_len.value_or(std::min<int64_t>(max_seq_len - input, config.dec_len_limit));
  const int64_t blocks = std::min<int64_t>(ceil_div<int64_t>(input, config.block_size) + config.answer_blocks,
                                           config.query_blocks > 0 ? config.query_blocks : config.total_blocks);
  if (input + lengths.min_dec_len >= max_seq_len) {
    refused = fmt::format("Input text is too long, input_ids_len ({}) + min_dec_len ({}) >= max_seq_len ", input,
                          request.min_dec_len.value_or(1));
  } else if (input > config.seq_len_limit) {
    refused = fmt::format("Length of input token({}) exceeds the limit MAX_SEQ_LEN({}).", input, config.seq_len_limit);
  } else if (lengths.max_dec_len > config.dec_len_limit) {
    refused = fmt::format("The parameter max_dec_len({}) exceeds the limit MAX_DEC_LEN({}).", lengths.max_dec_len,
                          config.dec_len_limit);
  } else if (config.total_blocks > 0 && blocks > config.total_blocks) {
    refused = fmt::format(
        "The input task required resources is exceed the limit, task={{'req_id': '{}', 'input_ids_len': {}, "
        "'max_dec_len': {}, 'required_blocks': {}}}.",
        request.req_id.value_or(""), input, lengths.max_dec_len, blocks);
  }
  lengths.max_dec_len = std::clamp<int64_t>(lengths.max_dec_len, 1, std::max<int64_t>(max_seq_len - input, 1));
  lengths.min_dec_len = std::min(lengths.min_dec_len, lengths.max_dec_len);
  return lengths;
}

}  // namespace tern::serve::native
