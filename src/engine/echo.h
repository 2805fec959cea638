// An engine without a model: it says the prompt again, or what a script says, one token per step. Protocol tests, the
// HTTP benchmark and `tern serve --scripted` stand on it; everything a client can see (limits, stops, aborts,
// log-probs, figures) behaves as with the real engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/client.h"
#include "engine/news_signal.h"

namespace tern::engine {

struct ScriptedAnswer {
  std::string match;         // what Request::last_said must hold; "": everything
  std::vector<int32_t> ids;  // of the text, without an end token
  int64_t token_delay_ns = 0;
  bool natural = true;  // ends with the end-of-text id and kStop; false: with its last token and kLength
};

struct EchoConfig {
  int vocab_size = 1 << 20;
  int max_num_seqs = 256;     // running at once; further requests wait
  int64_t step_ns = 0;        // time between steps; 0: as fast as the reader takes them
  int32_t eos_token_id = -1;  // said after the prompt; -1: the last prompt token ends the answer
  int32_t fixed_tokens = 0;   // > 0: exactly that many (or max_tokens), the prompt over and over
  int max_model_len = 1 << 20;
  size_t inbox_capacity = 4096;
  size_t outbox_capacity = 65536;
  NewsSignal* news = nullptr;                 // of several engines (engines.h)
  bool entropy = false, kept_tokens = false;  // as EngineConfig; made up: 0.5, and the token with the id behind it
  int pooled = 0;                             // a pooling engine: value j of a token's vector is its id + j
  // The first that matches is said; a request without a match fails. Empty: the prompt is said again.
  std::vector<ScriptedAnswer> script;
};

// After the prompt (or the script's text, whatever ignore_eos says) the answer ends with the end-of-text id and kStop;
// with ignore_eos the prompt starts over until max_tokens. Log-probs are made up from the token and its place: the i-th
// candidate is token + i (modulo the vocabulary) with -0.25 * (i + 1), prompt log-probs alike.
std::unique_ptr<EngineClient> make_echo_engine(const EchoConfig& config);

}  // namespace tern::engine
