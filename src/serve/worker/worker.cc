#include "serve/worker/worker.h"

#include <new>
#include <utility>

#include "base/clock.h"
#include "serve/worker/handlers.h"
#include "serve/worker/preparations.h"

namespace tern::serve {
namespace {
constexpr size_t kMailbox = 1u << 16;
constexpr int64_t kSweepNs = 100'000'000;
constexpr int64_t kQuitNs = 1'000'000'000;
}  // namespace

Worker::Worker(Shared& shared, int number, std::vector<Listening> listeners)
    : shared_(shared),
      number_(number),
      mailbox_(kMailbox),
      connections_(shared, poller_, *this),
      acceptor_(shared, number, std::move(listeners), poller_, connections_),
      exchanges_(shared, number, shared.metrics.shard(static_cast<size_t>(number)), connections_),
      calls_(shared.config.http, *this),
      active_(shared, number, shared.metrics.shard(static_cast<size_t>(number)), *this) {}

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
    const bool quiet = connections_.empty() && calls_.empty() && active_.empty();
    const int wait_ms = quit_by_ns_ != 0 ? 10 : quiet ? 1000 : 100;
    for (const epoll_event& event : poller_.wait(wait_ms)) handle(event);
    drain_mailbox();
    const int64_t now = monotonic_ns();
    if (now - last_sweep_ns_ >= kSweepNs) {
      last_sweep_ns_ = now;
      connections_.sweep(now);
      if (number_ == 0 && shared_.preparations) shared_.preparations->sweep(now);
      active_.sweep(now);
      calls_.sweep(now);
    }
    connections_.end_turn();
    calls_.end_turn();
  }
  mailbox_.close();
  {
    std::lock_guard lock(control_mutex_);
    control_closed_ = true;
  }
  drain_mailbox();  // tickets and generations inside die here
  connections_.close();
  calls_.close();
  active_.clear();
}

Reader* Worker::find(uint64_t id) {
  if ((id & kserve::kCallBit) != 0) return calls_.find(id);
  return connections_.find(id);
}

Reader* Worker::find_waiting(const ReplyTo& to) {
  if ((to.connection & kserve::kCallBit) != 0) return calls_.find(to.connection);
  return exchanges_.find(to);
}

void Worker::drain_mailbox() {
  messages_.clear();
  urgent_.clear();
  mailbox_.drain(messages_);
  {
    std::lock_guard lock(control_mutex_);  // after the mailbox: what is sent first of all is also read first
    urgent_.swap(control_);
  }
  for (Message& message : urgent_) deliver(message);
  for (Message& message : messages_) deliver(message);
  urgent_.clear();
  messages_.clear();
}

void Worker::deliver(Message& message) {
  uint64_t reader = 0;
  if (const auto* answer = std::get_if<Reply>(&message)) reader = answer->to.connection;
  if (const auto* ready = std::get_if<Ready>(&message)) reader = ready->to.connection;
  try {
    std::visit([this](auto& m) { on(std::move(m)); }, message);
  } catch (const std::bad_alloc&) {
    active_.lose(reader);
  }
}

void Worker::handle(const epoll_event& event) {
  const uint64_t key = event.data.u64;
  if (acceptor_.listens(key)) return acceptor_.accept(key);
  connections_.handle(key, event.events);
}

void Worker::on(NewConnection&& m) { connections_.add(std::move(m)); }
void Worker::on(DeltaBatch&& m) { active_.take(std::move(m)); }

void Worker::on(Reply&& m) {
  if ((m.to.connection & kserve::kCallBit) == 0) return exchanges_.take(std::move(m));
  kserve::Call* const call = calls_.find(m.to.connection);
  if (call == nullptr) return;
  if (!m.served) shared_.metrics.shard(static_cast<size_t>(number_)).add(Count::kFailed);
  call->respond(std::move(m.response));
}

void Worker::on(Ready&& m) { active_.start(std::move(m)); }
void Worker::on(SlotGranted&& m) { active_.grant(std::move(m)); }

void Worker::on(std::unique_ptr<AbortSweep>&& m) {
  if (m->hops == 0 && shared_.preparations) shared_.preparations->abort_matching(*m);
  active_.abort_matching(*m);
  const int next = (number_ + 1) % static_cast<int>(shared_.workers.size());
  if (++m->hops < static_cast<int>(shared_.workers.size())) return shared_.post_control(next, std::move(m));
  shared_.post_control(m->reply.worker, Reply{m->reply, sweep_answer(shared_, *m), {}});
}

void Worker::on(AbortAll&&) {
  AbortSweep sweep;
  sweep.all = true;
  if (number_ == 0 && shared_.preparations) shared_.preparations->abort_matching(sweep);
  active_.abort_matching(sweep);
}

void Worker::on(kserve::NewCall&& m) {
  shared_.metrics.shard(static_cast<size_t>(number_)).add(Count::kRequests);
  calls_.add(std::move(m));
}

void Worker::on(StreamClosed&& m) { calls_.close_stream(m.stream); }
void Worker::on(CallRoom&& m) { calls_.room(m.call); }
void Worker::on(CloseListeners&&) { acceptor_.close(); }

void Worker::on(EngineGone&&) {
  calls_.end_all({kserve::Code::kUnavailable, "Engine is not healthy"});
  active_.engine_gone();
}

void Worker::on(Quit&&) { quit_by_ns_ = monotonic_ns() + kQuitNs; }

// Answers that are on their way may still leave, for a moment.
bool Worker::may_quit() const {
  if (quit_by_ns_ == 0) return false;
  return monotonic_ns() > quit_by_ns_ || !(connections_.unsent() || calls_.unsent());
}

}  // namespace tern::serve
