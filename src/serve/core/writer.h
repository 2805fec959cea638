// From what an answer says to the bytes of a protocol. Each protocol has two writers, one for streams and one for whole
// answers; both are told the same.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "answer/events.h"
#include "base/error.h"
#include "serve/core/choice.h"

namespace tern::serve {

class Generation;

// What one token of a choice gave: the events it caused, and the facts that stand beside them.
struct TokenNews {
  std::span<answer::Event> events;             // their strings may be taken
  std::string_view raw;                        // the token's own text, before anything was cut out of it
  const engine::TokenOutput* token = nullptr;  // null: the end without a token
  bool last = false;                           // of the choice
  bool cut = false;                            // the parser ended the choice: no more calls are wanted
  bool end_token = false;                      // the token ends the text
  bool spaceless = false;                      // the text's first space, which the token begins with, is not shown
  int64_t offset = 0;                          // of the token in the text, in characters
  int64_t arrival_ns = 0;                      // since the request's arrival; later tokens: since it was scheduled
};

class Writer {
 public:
  virtual ~Writer() = default;
  // A stream appends bytes to `out`; a whole answer keeps what it needs.
  virtual void take(const Choice& choice, TokenNews& news, std::string& out) = 0;
  // Streams: the end, or an error and the end.
  virtual void end(std::string& out) = 0;
  virtual void fail(const Error& error, std::string& out) = 0;
  // The whole answer; all choices have finished.
  virtual std::string body() const = 0;
  // The body of status 200 for a request that failed before it had a stream; "": the error is OpenAI's.
  virtual std::string failure_body(const Error&) const { return {}; }
  // Bytes that body() will have to write, roughly.
  virtual size_t weight() const = 0;
};

// Made once the generation stands; it outlives the writer.
using MakeWriter = std::unique_ptr<Writer> (*)(const Generation& generation);

}  // namespace tern::serve
