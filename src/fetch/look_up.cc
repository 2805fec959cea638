// The system's resolver, with a deadline that it does not have itself.
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "fetch/transport.h"
#include "fetch/url.h"

namespace tern::fetch {
namespace {

Expected<std::vector<Address>> ask(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* first = nullptr;
  const int code = getaddrinfo(host.c_str(), nullptr, &hints, &first);
  if (code == EAI_AGAIN || code == EAI_SYSTEM || code == EAI_MEMORY) {
    return make_error(ErrorCode::kUnavailable, "The URL's host could not be looked up.", "url");
  }
  if (code != 0) return refused_host();
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(first, &freeaddrinfo);
  std::vector<Address> out;
  for (const addrinfo* a = first; a != nullptr; a = a->ai_next) {
    const auto address = address_of(*a->ai_addr);
    if (!address) return refused_host();  // a scope id: link-local
    if (std::find(out.begin(), out.end(), *address) == out.end()) out.push_back(*address);
  }
  if (out.empty()) return refused_host();
  return out;
}

struct Question {
  std::mutex mutex;
  std::condition_variable done;
  std::optional<Expected<std::vector<Address>>> answer;
};

// getaddrinfo cannot be cancelled: after the deadline its thread is left to itself and ends with the resolver's own
// timeouts. One fetch leaves at most one such thread per try.
Expected<std::vector<Address>> look_up(const std::string& host, Clock::time_point deadline) {
  const auto question = std::make_shared<Question>();
  try {
    std::thread([question, host] {
      auto answer = ask(host);
      const std::lock_guard lock(question->mutex);
      question->answer = std::move(answer);
      question->done.notify_one();
    }).detach();
  } catch (const std::system_error&) {
    return make_error(ErrorCode::kUnavailable, "The URL's host could not be looked up.", "url");
  }
  std::unique_lock lock(question->mutex);
  if (!question->done.wait_until(lock, deadline, [&] { return question->answer.has_value(); })) {
    return make_error(ErrorCode::kUnavailable, "The URL's host could not be looked up in time.", "url");
  }
  return std::move(*question->answer);
}

}  // namespace

Seams system_seams() {
  return {look_up, [](const Address& address) { return is_public(address); },
          [](std::chrono::duration<double> time) { std::this_thread::sleep_for(time); }};
}

}  // namespace tern::fetch
