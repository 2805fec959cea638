// An engine without a model: it says the prompt again, one token per step. Protocol tests and the HTTP benchmark stand
// on it; everything a client can see (limits, stops, aborts, log-probs, figures) behaves as with the real engine.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/client.h"

namespace tern::engine {

struct EchoConfig {
  int vocab_size = 1 << 20;
  int max_num_seqs = 256;     // running at once; further requests wait
  int64_t step_ns = 0;        // time between steps; 0: as fast as the reader takes them
  int32_t eos_token_id = -1;  // said after the prompt; -1: the last prompt token ends the answer
  int32_t fixed_tokens = 0;   // > 0: exactly that many (or max_tokens), the prompt over and over
  int max_model_len = 1 << 20;
  size_t inbox_capacity = 4096;
  size_t outbox_capacity = 65536;
};

// After the prompt the answer ends with the end-of-text id and kStop; with ignore_eos the prompt starts over until
// max_tokens. Log-probs are made up from the token and its place: the i-th candidate is token + i (modulo the
// vocabulary) with -0.25 * (i + 1), prompt log-probs alike.
std::unique_ptr<EngineClient> make_echo_engine(const EchoConfig& config);

}  // namespace tern::engine
