// The client connections of a worker: reading, writing, deadlines. What is asked over them is their user's.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "serve/net/poller.h"
#include "serve/worker/connection.h"
#include "serve/worker/messages.h"
#include "serve/worker/shared.h"

namespace tern::serve {

class Connections {
 public:
  class User {
   public:
    virtual ~User() = default;
    // The head of a request is read. False: it has been answered without its body.
    virtual bool on_head(Connection& c) = 0;
    virtual void on_request(Connection& c) = 0;  // it is read whole
    // This answer is to be given.
    virtual void respond(Connection& c, http::Response response) = 0;
    virtual void begin_stream(Connection& c) = 0;   // the head of an answer of many chunks
    virtual void finish_stream(Connection& c) = 0;  // its last chunk is written
    virtual void on_room(Connection& c) = 0;        // the client has read: there is room for more of its stream
    virtual void on_drop(Connection& c) = 0;        // the client is gone or has lost its right to stay
    // It is about to be dropped: the handshake went wrong, for the reason that its stream gives.
    virtual void on_bad_handshake(Connection& c) = 0;
  };

  // `user` is told in the thread that calls.
  Connections(Shared& shared, net::Poller& poller, User& user) : shared_(shared), poller_(poller), user_(user) {}

  User& user() { return user_; }
  bool empty() const { return all_.empty(); }
  bool unsent() const;  // any has bytes to send
  Connection* find(uint64_t id);
  void add(NewConnection&& m);
  // Ends the connection that has waited longest for the head of a request. False when every one sends its body or is
  // being answered.
  bool evict_idle();
  // Answers 503 on a socket that does not become a connection; where TLS is spoken it just ends.
  static void turn_away(int fd, bool secure);

  void handle(uint64_t id, uint32_t events);  // of epoll
  // Takes requests out of the input until one has to wait for its answer or more bytes are needed.
  void process(Connection& c);
  void touch(Connection& c);  // has bytes to send: they go at the end of the turn
  void drop(Connection& c);
  bool congested(const Connection& c) const;  // the client reads too slowly
  // One that is idle gives way to newcomers.
  void set_idle(Connection& c, bool idle);
  void set_read_deadline(Connection& c);
  void sweep(int64_t now_ns);
  void end_turn();  // sends what there is, forgets who is gone
  void close();     // of all, for good

 private:
  // Steps of handshakes in a turn: each may take a millisecond for its signature, and streams wait meanwhile.
  static constexpr int kHandshakes = 4;
  void read_from(Connection& c);
  void end_input(Connection& c);
  void probe_reader(Connection& c);
  bool hold_body(Connection& c);  // false: answered, there is no memory for it
  void run_out_of_memory(Connection& c) noexcept;
  void flush(Connection& c);
  void flush_touched();
  void watch(Connection& c, bool writable);
  void begin_linger(Connection& c);
  bool paused(const Connection& c) const;
  void sweep_connection(Connection& c, int64_t now_ns);

  Shared& shared_;
  net::Poller& poller_;
  User& user_;
  uint64_t next_connection_ = 16;  // keys below are listeners
  int handshakes_ = kHandshakes;   // steps of them that this turn still may take
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> all_;
  std::list<uint64_t> idle_;  // oldest first
  std::vector<uint64_t> touched_;
  std::vector<uint64_t> gone_;
};

}  // namespace tern::serve
