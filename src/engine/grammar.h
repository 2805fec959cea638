// What may follow in an answer (guided decoding), as the engine sees it. Implemented by whoever compiles grammars.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"

namespace tern::engine {

// How far one answer has come in its grammar. Used by one thread at a time.
class TokenMatcher {
 public:
  virtual ~TokenMatcher() = default;
  // The answer goes on with these ids. An error ends the request.
  virtual Status consume(std::span<const int32_t> ids) = 0;
  // Which ids may come next: bit id % 32 of word id / 32 allows the id. An error (a limit of time, of memory) ends the
  // request alone.
  virtual Status fill(std::span<uint32_t> bits) = 0;
  // Appends the ids that have to come next whatever is sampled, at most `most`. None is always right.
  virtual Status forced(size_t most, std::vector<int32_t>& ids) = 0;
  // Takes the last `count` consumed ids back (tokens that were proposed and not accepted).
  virtual Status roll_back(size_t count) = 0;
};

// A compiled grammar: immutable, shared by requests.
class Grammar {
 public:
  virtual ~Grammar() = default;
  // At the beginning of an answer. Any thread.
  virtual Expected<std::unique_ptr<TokenMatcher>> start() const = 0;
};

// What a request asks of its answer.
struct Constraint {
  std::shared_ptr<const Grammar> grammar;  // null: nothing
  bool after_thinking = false;             // begins after SamplingParams::thinking_mark, else at the first token
};

}  // namespace tern::engine
