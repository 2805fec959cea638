// One I/O thread: its connections, the requests they wait for, and the deltas that answer them. Nothing here blocks and
// nothing is shared; other threads send messages.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/bounded_queue.h"
#include "serve/core/sink.h"
#include "serve/net/poller.h"
#include "serve/worker/active_request.h"
#include "serve/worker/connection.h"
#include "serve/worker/shared.h"

namespace tern::serve {

struct Listening {
  net::Listener listener;
  PortKind port = PortKind::kMain;
};

class Worker final : public Sink {
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
  using Active = ActiveRequest;
  struct Row {
    Active* active = nullptr;
    size_t choice = 0;
  };

  void run();
  void handle(const epoll_event& event);
  void drain_mailbox();
  bool may_quit() const;
  void on(NewConnection&& m);
  void on(DeltaBatch&& m);
  void on(Reply&& m);
  void on(Ready&& m);
  void on(SlotGranted&& m);
  void on(std::unique_ptr<AbortSweep>&& m);
  void on(CloseListeners&& m);
  void on(AbortAll&& m);
  void on(EngineGone&& m);
  void on(Quit&& m);

  // Connections (worker_io.cc).
  void accept_from(Listening& listening);
  void add_connection(NewConnection&& m);
  bool evict_idle();
  void read_from(Connection& c);
  void end_input(Connection& c);
  void probe_reader(Connection& c);
  void process(Connection& c);
  bool hold_body(Connection& c);  // false: answered, there is no memory for it
  void run_out_of_memory(Connection& c) noexcept;
  void lose(uint64_t connection) noexcept;  // there is no memory to go on with it
  void flush(Connection& c);
  void flush_touched();
  void touch(Connection& c);
  void watch(Connection& c, bool writable);
  void drop(Connection& c);  // the client is gone or lost its right to stay
  void begin_linger(Connection& c);
  bool congested(const Connection& c) const;
  bool paused(const Connection& c) const;
  void set_idle(Connection& c, bool idle);
  void set_read_deadline(Connection& c);
  void sweep(int64_t now_ns);
  void sweep_connection(Connection& c, int64_t now_ns);

  // Requests (worker_http.cc).
  bool on_head(Connection& c);  // false: answered without its body
  void on_request(Connection& c);
  void submit_job(Connection& c);
  std::string request_id_line(std::string_view given);  // "" given: one is made
  void respond(Connection& c, http::Response response);
  void finish_exchange(Connection& c, int status);
  Connection* find(const ReplyTo& to);

  // Generations (worker_generate.cc).
  void start_generation(Active& a);
  bool submit_rows(Active& a, Error& error);
  void take_or_hold(Active& a, size_t choice, engine::Delta&& delta, int64_t now);
  void take_delta(Active& a, size_t choice, engine::Delta&& delta, int64_t now_ns);
  void settle(Active& a, const Generation::Outcome& outcome, size_t choice);
  void complete(Active& a);
  void fail(Active& a, const Error& error);
  void abandon(Active& a);  // aborts its rows and forgets it
  void release(Active& a);  // forgets a request whose rows have ended
  void resume_held(Connection& c);
  void measure(const Choice& choice, int32_t tokens, int64_t now_ns, bool first);
  void measure_finished(const Generation& g, const Choice& choice);
  void sweep_waiting(int64_t now_ns);
  void abort_matching(AbortSweep& sweep);
  void finish_sweep(AbortSweep& sweep);

  Shared& shared_;
  const int number_;
  std::vector<Listening> listeners_;
  net::Fd reserve_;  // closed to accept and turn away when no descriptor is left
  net::Poller poller_;
  BoundedQueue<Message> mailbox_;
  std::mutex control_mutex_;
  std::vector<Message> control_;
  bool control_closed_ = false;
  std::vector<Message> messages_;
  std::thread thread_;
  int64_t quit_by_ns_ = 0;  // 0: not asked to end
  MetricsShard& metrics_;

  uint64_t next_connection_ = 16;  // keys below are listeners
  uint64_t next_key_ = 1;
  int next_worker_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::unordered_map<uint64_t, std::unique_ptr<Active>> active_;
  std::unordered_map<engine::RequestId, Row> rows_;
  std::list<uint64_t> idle_;  // oldest first
  std::vector<uint64_t> touched_;
  std::vector<uint64_t> gone_;
  int64_t last_sweep_ns_ = 0;
  std::string discard_;  // text of requests whose client left but that run on
};

}  // namespace tern::serve
