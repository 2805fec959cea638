// The health port of the PaddleNLP front (paddlenlp-server.md 4.1): up before the model loads, and answered by a thread
// of its own whatever the rest of the program does.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "base/error.h"
#include "serve/net/fd.h"
#include "serve/net/poller.h"

namespace tern::serve {

enum class HealthState : uint8_t { kReady = 0, kStarting = 1, kDown = 2, kHangs = 3 };

class HealthServer {
 public:
  // `plain`: status 400 without a body where it fails, as Triton's own health answers.
  static Expected<std::unique_ptr<HealthServer>> start(const std::string& host, int port, bool plain);
  ~HealthServer();
  HealthServer(const HealthServer&) = delete;
  HealthServer& operator=(const HealthServer&) = delete;

  // Asked for every probe, on this server's thread; it must not wait. Empty: kStarting.
  void watch(std::function<HealthState()> state);

 private:
  struct Client {
    net::Fd fd;
    std::string in;
    int64_t deadline_ns = 0;
  };
  HealthServer(std::vector<net::Listener> listeners, bool plain);
  void run();
  void accept_from(int listener);
  bool read_from(Client& client);  // false: the connection ends
  std::string answer(std::string_view request) const;
  HealthState state() const;

  std::vector<net::Listener> listeners_;
  const bool plain_;
  net::Poller poller_;
  mutable std::mutex mutex_;
  std::function<HealthState()> state_;
  std::unordered_map<uint64_t, Client> clients_;
  uint64_t next_ = 1024;  // keys below are listeners
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tern::serve
