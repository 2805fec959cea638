// A server on 127.0.0.1 that answers what a test tells it to, and counts who came.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "base/check.h"

namespace tern::fetch {

class Loopback {
 public:
  // Called for each connection with the request's head; writes the answer with send_text. Connections come one by one.
  using Handler = std::function<void(int fd, const std::string& head)>;

  explicit Loopback(Handler handler) : handler_(std::move(handler)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    TERN_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&at), size) == 0 && listen(listener_, 16) == 0);
    TERN_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~Loopback() {
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;

  int port() const { return port_; }
  int connections() const { return connections_; }
  bool stopping() const { return stopping_; }

  // False when the other side has gone.
  static bool send_text(int fd, std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      text.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  static bool send_body(int fd, const std::string& status, const std::string& body, const std::string& headers = {}) {
    return send_text(fd, "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
                             headers + "\r\n" + body);
  }

 private:
  void run() {
    while (true) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      ++connections_;
      std::string head;
      char buffer[4096];
      while (head.find("\r\n\r\n") == std::string::npos) {
        const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
        if (n <= 0) break;
        head.append(buffer, static_cast<size_t>(n));
      }
      handler_(fd, head);
      shutdown(fd, SHUT_WR);
      close(fd);
    }
  }

  Handler handler_;
  int listener_ = -1, port_ = 0;
  std::atomic<int> connections_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tern::fetch
