// TLS over one socket that does not block. Of one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tls/context.h"

struct ssl_st;  // OpenSSL's SSL

namespace tern::tls {

class Session {
 public:
  enum class Outcome : uint8_t {
    kMoved,      // bytes were moved; of reading perhaps none: there was a record without data
    kNeedsRead,  // again when the socket has bytes
    kNeedsRoom,  // again when the socket takes bytes
    kEnd,        // of reading: the other side has said that it sends no more
    kFailed      // nothing more can be done; why() says what was wrong
  };
  struct Result {
    Outcome outcome = Outcome::kMoved;
    size_t bytes = 0;
  };

  // The socket is the caller's and must outlive the session. Null: no memory.
  static std::unique_ptr<Session> accept(const Context& context, int socket);
  // `host`: the name that the other side's certificate must have.
  static std::unique_ptr<Session> connect(const Context& context, int socket, const std::string& host);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool established() const { return established_; }
  // Goes on with the handshake; kMoved: it is over.
  Outcome shake_hands();
  // Both only once established. A read takes a record at most: nothing that has come stays behind in the session when
  // `size` is 16 KiB or more.
  Result read(char* to, size_t size);
  Result write(std::string_view bytes);
  // Says that we send no more, if that can be said without waiting.
  void say_end();

  // Why it failed, for a log; and whether the other side spoke HTTP without TLS.
  const std::string& why() const { return why_; }
  bool plain_http() const { return plain_http_; }

 private:
  explicit Session(int socket) : socket_(socket) {}
  static std::unique_ptr<Session> over(const Context& context, int socket);
  Outcome outcome_of(int result);
  friend struct SocketBio;

  const int socket_;
  bool dry_ = false;  // the socket had no more bytes
  bool established_ = false, failed_ = false, plain_http_ = false;
  std::string why_;
  ssl_st* ssl_ = nullptr;
};

}  // namespace tern::tls
