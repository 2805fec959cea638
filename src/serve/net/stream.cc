#include "serve/net/stream.h"

#include <sys/socket.h>

#include <cerrno>

namespace tern::serve::net {
namespace {

class PlainStream final : public Stream {
 public:
  explicit PlainStream(Fd fd) : Stream(std::move(fd)) {}

  Result read(char* to, size_t size) override {
    while (true) {
      const ssize_t n = ::recv(fd(), to, size, MSG_DONTWAIT);
      if (n > 0) return {Outcome::kMoved, static_cast<size_t>(n)};
      if (n == 0) return {Outcome::kEnd};
      if (errno != EINTR) return blocked_or_failed();
    }
  }

  Result write(std::string_view bytes) override {
    while (true) {
      const ssize_t n = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0) return {Outcome::kMoved, static_cast<size_t>(n)};
      if (errno != EINTR) return blocked_or_failed();
    }
  }

  void end_writing() override { ::shutdown(fd(), SHUT_WR); }
  void close(bool) override { fd_.reset(); }

 private:
  static Result blocked_or_failed() {
    return {errno == EAGAIN || errno == EWOULDBLOCK ? Outcome::kAgain : Outcome::kFailed};
  }
};

}  // namespace

std::unique_ptr<Stream> plain_stream(Fd fd) { return std::make_unique<PlainStream>(std::move(fd)); }

}  // namespace tern::serve::net
