// The bytes of one connection in both directions, whatever carries them. Nothing here blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "serve/net/fd.h"

namespace tern::serve::net {

class Stream {
 public:
  enum class Outcome : uint8_t {
    kMoved,  // bytes were moved; of reading perhaps none, when there was something to do below them
    kAgain,  // none now: the poller says when to try again
    kEnd,    // of reading: the other side sends no more
    kFailed  // the connection is of no use any more
  };
  struct Result {
    Outcome outcome = Outcome::kMoved;
    size_t bytes = 0;
  };

  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Of the socket, for the poller and for options.
  int fd() const { return fd_.get(); }
  virtual bool secure() const { return false; }           // nobody on the way can read the bytes
  virtual bool opening() const { return false; }          // reads go on with a handshake; there are no bytes yet
  virtual bool read_needs_room() const { return false; }  // the last one waits until the socket takes bytes
  virtual std::string_view why() const { return {}; }     // of a failure, for a log

  virtual Result read(char* to, size_t size) = 0;
  // What was not taken must begin the next call's bytes.
  virtual Result write(std::string_view bytes) = 0;
  // We send no more; the other side may.
  virtual void end_writing() = 0;
  // The socket is closed. `whole`: everything was said; else the other side shall see that it lacks the end, where the
  // protocol can tell.
  virtual void close(bool whole) = 0;

 protected:
  explicit Stream(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

// The bytes as the socket has them.
std::unique_ptr<Stream> plain_stream(Fd fd);

}  // namespace tern::serve::net
