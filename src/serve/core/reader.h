// Who waits for the answer to a request, as the I/O thread of the request sees it: a connection of HTTP, or a call of
// another transport.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "serve/http/response.h"

namespace tern::serve {

class Reader {
 public:
  explicit Reader(uint64_t number) : id(number) {}
  virtual ~Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  const uint64_t id;
  uint64_t exchange = 0;  // which of its requests is being answered
  int key_index = 0;      // of the API key that asked
  uint64_t owner = 0;     // of the request: its key where there are several, else its address
  uint64_t active = 0;    // key of its generation
  bool streaming = false;

  virtual bool congested() const = 0;  // it takes its stream too slowly
  virtual void begin_stream() = 0;
  virtual std::string& stream_out() = 0;              // the writer's bytes are appended to this
  virtual void touch() = 0;                           // has bytes to send: they go at the end of the turn
  virtual void end_stream() = 0;                      // nothing is appended any more
  virtual void respond(http::Response response) = 0;  // the whole answer, or an error in its place
  // Tells its client of an error in its transport's own way, and is then done; false: it is the protocol's to tell.
  virtual bool tell(const Error&) { return false; }
  virtual void drop() = 0;  // it has lost its right to the answer
};

}  // namespace tern::serve
