// A request of PaddleNLP's native protocol (paddlenlp-server.md 2.2): which bodies are one, types, field checks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "json/json.h"
#include "serve/native/errors.h"

namespace tern::serve::native {

struct NativeRequest {
  std::optional<std::string> req_id;
  // The source of the prompt: ids before text before messages. Values as they came, checked by check_fields().
  json::Value input_ids, text, messages;
  std::optional<int64_t> max_dec_len, min_dec_len, seed;
  std::optional<double> topp, temperature;
  double penalty_score = 1.0, frequency_score = 0.0, presence_score = 0.0;
  std::vector<int64_t> eos_token_ids;
  std::vector<std::string> stop_sequences;
  std::vector<std::vector<int64_t>> stop_seqs;  // as ids
  bool return_all_tokens = false, return_usage = false, stream = false, benchmark = false;
  bool truncate = true;
  bool grpc = false;      // the transport it came over
  int64_t timeout = 300;  // seconds between two messages
};

// On routes that both protocols share: a body with any field that only the native one has.
bool is_native(const json::Value& body);

// The types of HTTP's fields, read as leniently as FastAPI reads them ("5" and 5.0 are integers); what is lenient is
// replaced by the value it stands for, and fields that hold null are dropped.
void check_types(json::Object& body, Faults& faults);

// Step 3: every message of the checks, in their order. The body's types may be any: other transports check none.
std::vector<std::string> check_fields(const json::Object& body);

// The values of a body without faults.
NativeRequest take_request(json::Object& body);

}  // namespace tern::serve::native
