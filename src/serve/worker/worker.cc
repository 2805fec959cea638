#include "serve/worker/worker.h"

#include <fcntl.h>

#include <algorithm>

#include "base/clock.h"

namespace tern::serve {
namespace {
constexpr size_t kMailbox = 1u << 16;
constexpr int64_t kSweepNs = 100'000'000;
constexpr int64_t kQuitNs = 1'000'000'000;
}  // namespace

Worker::Worker(Shared& shared, int number, std::vector<Listening> listeners)
    : shared_(shared),
      number_(number),
      listeners_(std::move(listeners)),
      reserve_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      mailbox_(kMailbox),
      metrics_(shared.metrics.shard(static_cast<size_t>(number))) {
  for (size_t i = 0; i < listeners_.size(); ++i) poller_.add(listeners_[i].listener.fd.get(), EPOLLIN, i + 1);
}

Worker::~Worker() { join(); }

void Worker::start() {
  thread_ = std::thread([this] {
    set_thread_name("tern-io-" + std::to_string(number_));
    run();
  });
}

void Worker::join() {
  if (thread_.joinable()) thread_.join();
}

void Worker::post(Message message) {
  if (mailbox_.push(std::move(message))) poller_.wake();
}

void Worker::post_control(Message message) {
  {
    std::lock_guard lock(control_mutex_);
    if (control_closed_) return;
    control_.push_back(std::move(message));
  }
  poller_.wake();
}

bool Worker::take(std::vector<engine::Delta>& news) {
  Message message = DeltaBatch{std::move(news)};
  if (mailbox_.try_push(message)) {
    poller_.wake();
    return true;
  }
  news = std::move(std::get<DeltaBatch>(message).items);
  return false;
}

void Worker::engine_gone() { post(EngineGone{}); }  // behind the deltas

void Worker::run() {
  while (!may_quit()) {
    const bool quiet = connections_.empty() && active_.empty();
    const int wait_ms = quit_by_ns_ != 0 ? 10 : quiet ? 1000 : 100;
    for (const epoll_event& event : poller_.wait(wait_ms)) handle(event);
    drain_mailbox();
    const int64_t now = monotonic_ns();
    if (now - last_sweep_ns_ >= kSweepNs) {
      last_sweep_ns_ = now;
      sweep(now);
      sweep_waiting(now);
    }
    flush_touched();
    for (const uint64_t id : gone_) connections_.erase(id);
    gone_.clear();
  }
  mailbox_.close();
  {
    std::lock_guard lock(control_mutex_);
    control_closed_ = true;
  }
  drain_mailbox();  // tickets and generations inside die here
  flush_touched();
  shared_.connections.fetch_sub(static_cast<int>(connections_.size()), std::memory_order_relaxed);
  connections_.clear();
  active_.clear();
}

void Worker::drain_mailbox() {
  messages_.clear();
  {
    std::lock_guard lock(control_mutex_);
    messages_.swap(control_);
  }
  mailbox_.drain(messages_);
  for (Message& message : messages_) {
    uint64_t connection = 0;
    if (const auto* answer = std::get_if<Reply>(&message)) connection = answer->to.connection;
    if (const auto* ready = std::get_if<Ready>(&message)) connection = ready->to.connection;
    try {
      std::visit([this](auto& m) { on(std::move(m)); }, message);
    } catch (const std::bad_alloc&) {
      lose(connection);
    }
  }
  messages_.clear();
}

void Worker::handle(const epoll_event& event) {
  const uint64_t key = event.data.u64;
  if (key <= listeners_.size()) return accept_from(listeners_[key - 1]);
  const auto it = connections_.find(key);
  if (it == connections_.end() || it->second->gone) return;
  Connection& c = *it->second;
  if ((event.events & (EPOLLERR | EPOLLHUP)) != 0) return drop(c);
  try {
    if ((event.events & EPOLLOUT) != 0) flush(c);
    if (!c.gone && (event.events & (EPOLLIN | EPOLLRDHUP)) != 0) read_from(c);
  } catch (const std::bad_alloc&) {
    run_out_of_memory(c);
  }
}

void Worker::on(NewConnection&& m) { add_connection(std::move(m)); }

void Worker::on(CloseListeners&&) {
  for (auto& listening : listeners_) {
    poller_.remove(listening.listener.fd.get());
    listening.listener.fd.reset();
  }
}

void Worker::on(Quit&&) { quit_by_ns_ = monotonic_ns() + kQuitNs; }

// Answers that are on their way may still leave, for a moment.
bool Worker::may_quit() const {
  if (quit_by_ns_ == 0) return false;
  const auto unsent = [](const auto& entry) { return entry.second->unsent() > 0; };
  return monotonic_ns() > quit_by_ns_ || std::none_of(connections_.begin(), connections_.end(), unsent);
}

}  // namespace tern::serve
