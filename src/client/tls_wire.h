// Connections of the load generator, with TLS and without: what Boost.Beast reads from and writes to.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <memory>
#include <string>

#include "tls/session.h"

namespace tern::client {

class PlainWire {
 public:
  explicit PlainWire(boost::asio::io_context& context) : socket_(context) {}
  boost::asio::ip::tcp::socket& socket() { return socket_; }
  boost::asio::ip::tcp::socket& stream() { return socket_; }
  boost::asio::awaitable<std::string> open() { co_return std::string(); }
  void close();

 private:
  boost::asio::ip::tcp::socket socket_;
};

class TlsWire {
 public:
  using executor_type = boost::asio::ip::tcp::socket::executor_type;

  TlsWire(boost::asio::io_context& context, std::shared_ptr<const tls::Context> tls, std::string host)
      : socket_(context), tls_(std::move(tls)), host_(std::move(host)) {}
  boost::asio::ip::tcp::socket& socket() { return socket_; }
  TlsWire& stream() { return *this; }
  // The handshake on a connected socket; why it failed, or "".
  boost::asio::awaitable<std::string> open();
  void close();

  executor_type get_executor() { return socket_.get_executor(); }
  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    const boost::asio::mutable_buffer first(*boost::asio::buffer_sequence_begin(buffers));
    return start(static_cast<char*>(first.data()), nullptr, first.size(), std::forward<Token>(token));
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    const boost::asio::const_buffer first(*boost::asio::buffer_sequence_begin(buffers));
    return start(nullptr, static_cast<const char*>(first.data()), first.size(), std::forward<Token>(token));
  }

 private:
  using error_code = boost::system::error_code;

  // One read or write: tried, and tried again whenever the socket is ready for what the session waits for.
  struct Step {
    TlsWire& wire;
    char* to;
    const char* from;
    size_t size;
    bool posted = false;

    template <class Self>
    void operator()(Self& self, error_code error = {}) {
      if (!posted) {  // no handler is called by the function that takes it
        posted = true;
        boost::asio::post(wire.get_executor(), std::move(self));
        return;
      }
      while (!error && size > 0) {
        const tls::Session::Result r =
            to != nullptr ? wire.session_->read(to, size) : wire.session_->write({from, size});
        using Outcome = tls::Session::Outcome;
        if (r.outcome == Outcome::kMoved && r.bytes == 0) continue;
        if (r.outcome == Outcome::kMoved) return self.complete({}, r.bytes);
        if (r.outcome == Outcome::kEnd) error = boost::asio::error::eof;
        if (r.outcome == Outcome::kFailed) error = boost::asio::error::connection_reset;
        if (error) break;
        const auto side = r.outcome == Outcome::kNeedsRead ? boost::asio::socket_base::wait_read
                                                           : boost::asio::socket_base::wait_write;
        return wire.socket_.async_wait(side, std::move(self));
      }
      self.complete(error, 0);
    }
  };
  template <class Token>
  auto start(char* to, const char* from, size_t size, Token&& token) {
    return boost::asio::async_compose<Token, void(error_code, size_t)>(Step{*this, to, from, size}, token, socket_);
  }

  boost::asio::ip::tcp::socket socket_;
  std::shared_ptr<const tls::Context> tls_;
  std::string host_;
  std::unique_ptr<tls::Session> session_;
};

}  // namespace tern::client
