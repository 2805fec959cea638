#include "serve/net/tls_stream.h"

#include <sys/socket.h>

#include "tls/session.h"

namespace tern::serve::net {
namespace {

using tls::Session;

// For a client that speaks HTTP without TLS: it would take an alert for garbage.
constexpr char kPlain[] =
    "HTTP/1.1 400 Bad Request\r\nserver: tern\r\ncontent-type: application/json\r\ncontent-length: 49\r\n"
    "connection: close\r\n\r\n{\"detail\":\"This port speaks HTTPS: use https://\"}";
static_assert(sizeof("{\"detail\":\"This port speaks HTTPS: use https://\"}") - 1 == 49);

class TlsStream final : public Stream {
 public:
  TlsStream(Fd socket, std::unique_ptr<Session> session) : Stream(std::move(socket)), session_(std::move(session)) {}

  bool secure() const override { return true; }
  bool opening() const override { return session_ != nullptr && !session_->established(); }
  bool read_needs_room() const override { return needs_room_; }
  std::string_view why() const override { return session_->why(); }

  Result read(char* to, size_t size) override {
    if (opening()) {
      const Result opened = result_of({session_->shake_hands()});
      if (opened.outcome == Outcome::kFailed && session_->plain_http()) say_plain();
      return opened;
    }
    return result_of(session_->read(to, size));
  }

  Result write(std::string_view bytes) override {
    if (opening()) return {Outcome::kFailed};  // nothing has been asked
    const Session::Result result = session_->write(bytes);
    if (result.outcome == Session::Outcome::kNeedsRoom) return {Outcome::kAgain};
    // There is no renegotiation: a write never waits for bytes of the other side.
    if (result.outcome != Session::Outcome::kMoved || result.bytes == 0) return {Outcome::kFailed};
    return {Outcome::kMoved, result.bytes};
  }

  void end_writing() override {
    session_->say_end();
    ::shutdown(fd(), SHUT_WR);
  }

  void close(bool whole) override {
    if (whole) session_->say_end();
    session_.reset();
    fd_.reset();
  }

 private:
  Result result_of(Session::Result result) {
    needs_room_ = result.outcome == Session::Outcome::kNeedsRoom;
    switch (result.outcome) {
      case Session::Outcome::kMoved:
        return {Outcome::kMoved, result.bytes};
      case Session::Outcome::kNeedsRead:
      case Session::Outcome::kNeedsRoom:
        return {Outcome::kAgain};
      case Session::Outcome::kEnd:
        return {Outcome::kEnd};
      case Session::Outcome::kFailed:
        break;
    }
    return {Outcome::kFailed};
  }

  void say_plain() const {
    char waste[4096];
    [[maybe_unused]] const auto n = ::recv(fd(), waste, sizeof waste, MSG_DONTWAIT);  // unread bytes would reset
    [[maybe_unused]] const auto m = ::send(fd(), kPlain, sizeof kPlain - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  std::unique_ptr<Session> session_;
  bool needs_room_ = false;
};

}  // namespace

std::unique_ptr<Stream> tls_stream(Fd fd, const tls::Context& context) {
  auto session = Session::accept(context, fd.get());
  if (session == nullptr) return nullptr;
  return std::make_unique<TlsStream>(std::move(fd), std::move(session));
}

}  // namespace tern::serve::net
