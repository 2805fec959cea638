#include "tls/session.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "tls/openssl.h"

namespace tern::tls {

// OpenSSL's own kind for sockets would raise SIGPIPE, and cannot tell whether the socket had no more.
struct SocketBio {
  static int read(BIO* bio, char* to, int size) {
    const OpenSsl& ssl = openssl();
    auto& session = *static_cast<Session*>(ssl.BIO_get_data(bio));
    ssl.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    ssize_t n = 0;
    do n = ::recv(session.socket_, to, static_cast<size_t>(size), MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    session.dry_ = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (session.dry_) ssl.BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
    return static_cast<int>(n);
  }

  static int write(BIO* bio, const char* from, int size) {
    const OpenSsl& ssl = openssl();
    const auto& session = *static_cast<Session*>(ssl.BIO_get_data(bio));
    ssl.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    ssize_t n = 0;
    do n = ::send(session.socket_, from, static_cast<size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      ssl.BIO_set_flags(bio, BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY);
    }
    return static_cast<int>(n);
  }

  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  static const BIO_METHOD* method() {
    static const BIO_METHOD* const made = [] {
      const OpenSsl& ssl = openssl();
      BIO_METHOD* const m = ssl.BIO_meth_new(BIO_TYPE_SOURCE_SINK | 0x74, "tern socket");
      if (m == nullptr) return m;
      ssl.BIO_meth_set_read(m, read);
      ssl.BIO_meth_set_write(m, write);
      ssl.BIO_meth_set_ctrl(m, control);
      return m;
    }();
    return made;
  }
};

Session::~Session() {
  if (ssl_ != nullptr) openssl().SSL_free(ssl_);
}

std::unique_ptr<Session> Session::over(const Context& context, int socket) {
  const OpenSsl& ssl = openssl();
  std::unique_ptr<Session> session(new Session(socket));
  session->ssl_ = ssl.SSL_new(context.get());
  const BIO_METHOD* const method = SocketBio::method();
  if (session->ssl_ == nullptr || method == nullptr) return nullptr;
  BIO* const bio = ssl.BIO_new(method);
  if (bio == nullptr) return nullptr;
  ssl.BIO_set_data(bio, session.get());
  ssl.BIO_set_init(bio, 1);
  ssl.SSL_set_bio(session->ssl_, bio, bio);  // owns it from here on
  return session;
}

std::unique_ptr<Session> Session::accept(const Context& context, int socket) {
  auto session = over(context, socket);
  if (session != nullptr) openssl().SSL_set_accept_state(session->ssl_);
  return session;
}

std::unique_ptr<Session> Session::connect(const Context& context, int socket, const std::string& host) {
  const OpenSsl& ssl = openssl();
  auto session = over(context, socket);
  if (session == nullptr || ssl.SSL_set1_host(session->ssl_, host.c_str()) != 1) return nullptr;
  std::string name = host;
  if (name.find_first_not_of("0123456789.") != std::string::npos && name.find(':') == std::string::npos) {
    ssl.SSL_ctrl(session->ssl_, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name.data());
  }
  ssl.SSL_set_connect_state(session->ssl_);
  return session;
}

Session::Outcome Session::outcome_of(int result) {
  const OpenSsl& ssl = openssl();
  const int error = errno;
  switch (ssl.SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
      return dry_ ? Outcome::kNeedsRead : Outcome::kMoved;
    case SSL_ERROR_WANT_WRITE:
      return Outcome::kNeedsRoom;
    case SSL_ERROR_ZERO_RETURN:
      return Outcome::kEnd;
    case SSL_ERROR_SYSCALL:
      why_ = error != 0 ? std::strerror(error) : "the connection ended";
      break;
    default:
      why_ = last_reason();
      plain_http_ = ERR_GET_LIB(ssl.ERR_peek_error()) == ERR_LIB_SSL &&
                    ERR_GET_REASON(ssl.ERR_peek_error()) == SSL_R_HTTP_REQUEST;
      if (const long verified = ssl.SSL_get_verify_result(ssl_); verified != X509_V_OK) {
        why_ += std::string(": ") + ssl.X509_verify_cert_error_string(verified);
      }
  }
  failed_ = true;
  return Outcome::kFailed;
}

Session::Outcome Session::shake_hands() {
  const OpenSsl& ssl = openssl();
  ssl.ERR_clear_error();
  dry_ = false;
  errno = 0;
  const int result = ssl.SSL_do_handshake(ssl_);
  if (result == 1) {
    established_ = true;
    return Outcome::kMoved;
  }
  const Outcome outcome = outcome_of(result);
  // Without an end of the handshake there is nothing but waiting, or the end.
  if (outcome == Outcome::kMoved) return Outcome::kNeedsRead;
  if (outcome != Outcome::kEnd) return outcome;
  why_ = "the other side ended the handshake";
  failed_ = true;
  return Outcome::kFailed;
}

Session::Result Session::read(char* to, size_t size) {
  if (failed_) return {Outcome::kFailed};
  const OpenSsl& ssl = openssl();
  ssl.ERR_clear_error();
  dry_ = false;
  errno = 0;
  const int most = static_cast<int>(std::min<size_t>(size, std::numeric_limits<int>::max()));
  const int result = ssl.SSL_read(ssl_, to, most);
  if (result > 0) return {Outcome::kMoved, static_cast<size_t>(result)};
  return {outcome_of(result)};
}

Session::Result Session::write(std::string_view bytes) {
  if (failed_) return {Outcome::kFailed};
  const OpenSsl& ssl = openssl();
  ssl.ERR_clear_error();
  dry_ = false;
  errno = 0;
  const int most = static_cast<int>(std::min<size_t>(bytes.size(), std::numeric_limits<int>::max()));
  const int result = ssl.SSL_write(ssl_, bytes.data(), most);
  if (result > 0) return {Outcome::kMoved, static_cast<size_t>(result)};
  return {outcome_of(result)};
}

void Session::say_end() {
  if (failed_ || !established_) return;
  const OpenSsl& ssl = openssl();
  ssl.ERR_clear_error();
  ssl.SSL_shutdown(ssl_);
}

}  // namespace tern::tls
