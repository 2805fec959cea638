// One I/O thread: its connections, the requests they wait for, and the deltas that answer them. Nothing here blocks and
// nothing is shared; other threads send messages.
#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "serve/core/sink.h"
#include "serve/kserve/calls.h"
#include "serve/net/poller.h"
#include "serve/worker/acceptor.h"
#include "serve/worker/active_requests.h"
#include "serve/worker/connections.h"
#include "serve/worker/exchanges.h"
#include "serve/worker/shared.h"

namespace tern::serve {

class Worker final : public Sink, private Readers, private Connections::User, private kserve::Calls::User {
 public:
  // The first worker accepts for all; the others get no listeners. `number` is also that of its sink.
  Worker(Shared& shared, int number, std::vector<Listening> listeners);
  ~Worker() override;
  void start();
  void join();
  // Waits while the mailbox is full; not for I/O threads.
  void post(Message message);
  // From I/O threads: never waits. Bounded by open requests and connections.
  void post_control(Message message);
  bool take(std::vector<engine::Delta>& news) override;
  void engine_gone() override;

 private:
  void run();
  void handle(const epoll_event& event);
  void drain_mailbox();
  void deliver(Message& message);
  bool may_quit() const;
  void on(NewConnection&& m);
  void on(DeltaBatch&& m);
  void on(Reply&& m);
  void on(Ready&& m);
  void on(SlotGranted&& m);
  void on(std::unique_ptr<AbortSweep>&& m);
  void on(kserve::NewCall&& m);
  void on(StreamClosed&& m);
  void on(CallRoom&& m);
  void on(CloseListeners&& m);
  void on(AbortAll&& m);
  void on(EngineGone&& m);
  void on(Quit&& m);

  bool on_head(Connection& c) override { return exchanges_.on_head(c); }
  void on_request(Connection& c) override { exchanges_.on_request(c); }
  void respond(Connection& c, http::Response response) override { exchanges_.respond(c, std::move(response)); }
  void begin_stream(Connection& c) override { exchanges_.begin_stream(c); }
  void finish_stream(Connection& c) override { exchanges_.finish(c, 200); }
  void on_room(Connection& c) override { active_.resume_held(c); }
  void on_drop(Connection& c) override { active_.client_left(c); }
  void on_bad_handshake(Connection& c) override { exchanges_.bad_handshake(c); }
  void on_room(Reader& call) override { active_.resume_held(call); }
  void on_drop(Reader& call) override { active_.client_left(call); }
  Reader* find(uint64_t id) override;
  Reader* find_waiting(const ReplyTo& to) override;

  Shared& shared_;
  const int number_;
  net::Poller poller_;
  BoundedQueue<Message> mailbox_;
  std::mutex control_mutex_;
  std::vector<Message> control_;
  bool control_closed_ = false;
  std::vector<Message> messages_, urgent_;
  int64_t quit_by_ns_ = 0;  // 0: not asked to end
  int64_t last_sweep_ns_ = 0;
  Connections connections_;
  Acceptor acceptor_;
  Exchanges exchanges_;
  kserve::Calls calls_;
  ActiveRequests active_;
  std::thread thread_;
};

}  // namespace tern::serve
