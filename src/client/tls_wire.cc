#include "client/tls_wire.h"

#include <fmt/format.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace tern::client {

namespace asio = boost::asio;

void PlainWire::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void TlsWire::close() {
  if (session_) session_->say_end();
  session_.reset();
  boost::system::error_code ignored;
  socket_.close(ignored);
}

asio::awaitable<std::string> TlsWire::open() {
  session_ = tls::Session::connect(*tls_, socket_.native_handle(), host_);
  if (!session_) co_return "no memory for TLS";
  boost::system::error_code error;
  while (!error) {
    const auto outcome = session_->shake_hands();
    if (outcome == tls::Session::Outcome::kMoved) co_return std::string();
    if (outcome == tls::Session::Outcome::kFailed) co_return fmt::format("TLS: {}", session_->why());
    const auto side =
        outcome == tls::Session::Outcome::kNeedsRead ? asio::socket_base::wait_read : asio::socket_base::wait_write;
    co_await socket_.async_wait(side, asio::redirect_error(asio::use_awaitable, error));
  }
  co_return error.message();
}

}  // namespace tern::client
