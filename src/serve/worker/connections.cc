#include "serve/worker/connections.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <new>

#include "base/clock.h"
#include "serve/net/tls_stream.h"
#include "serve/openai/json/error.h"

namespace tern::serve {
namespace {

constexpr size_t kReadBuffer = 64u << 10;
constexpr size_t kReadTurn = 1u << 20;    // bytes of one connection before others get their turn
constexpr size_t kEmptyRead = 4u << 10;   // that a read counts for, towards that, at least
constexpr size_t kPipelined = 64u << 10;  // unread requests after the one being answered
constexpr int64_t kLingerNs = 2'000'000'000;
constexpr int64_t kProbeNs = 2'000'000'000;  // between two looks whether a client that sends no more still reads

int64_t ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

constexpr char kBusy[] =
    "HTTP/1.1 503 Service Unavailable\r\nserver: tern\r\ncontent-type: application/json\r\ncontent-length: 33\r\n"
    "connection: close\r\n\r\n{\"detail\":\"Too many connections\"}";

}  // namespace

void Connections::turn_away(int fd, bool secure) {
  if (secure) return;
  char waste[4096];
  [[maybe_unused]] const auto n = ::recv(fd, waste, sizeof waste, MSG_DONTWAIT);  // unread bytes would reset
  [[maybe_unused]] const auto m = ::send(fd, kBusy, sizeof kBusy - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool Connections::unsent() const {
  return std::any_of(all_.begin(), all_.end(), [](const auto& entry) { return entry.second->unsent() > 0; });
}

Connection* Connections::find(uint64_t id) {
  const auto it = all_.find(id);
  return it == all_.end() ? nullptr : it->second.get();
}

void Connections::add(NewConnection&& m) {
  const auto open = static_cast<size_t>(shared_.connections.fetch_add(1, std::memory_order_relaxed)) + 1;
  if (open > shared_.max_connections && !evict_idle()) {
    shared_.connections.fetch_sub(1, std::memory_order_relaxed);
    return turn_away(m.fd.get(), m.secure);
  }
  const int on = 1;
  setsockopt(m.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (const int size = shared_.config.http.socket_send_buffer; size > 0) {
    setsockopt(m.fd.get(), SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  }
  const uint64_t id = next_connection_++;
  const http::ParserLimits limits{shared_.config.http.header_bytes, shared_.config.http.body_bytes};
  auto stream =
      m.secure ? net::tls_stream(std::move(m.fd), *shared_.certificates.get()) : net::plain_stream(std::move(m.fd));
  if (stream == nullptr) {
    shared_.connections.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  auto connection = std::make_unique<Connection>(id, this, std::move(stream), m.port, m.peer, limits);
  Connection& c = *connection;
  c.place = std::move(m.place);
  c.events = EPOLLIN | EPOLLRDHUP;
  if (!poller_.add(c.stream->fd(), c.events, id)) {
    shared_.connections.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  all_.emplace(id, std::move(connection));
  set_idle(c, true);
  set_read_deadline(c);
}

bool Connections::evict_idle() {
  for (const uint64_t id : idle_) {
    Connection& c = *all_.at(id);
    if (c.unsent() > 0) continue;  // its answer is still on the way
    char next = 0;
    if (::recv(c.stream->fd(), &next, 1, MSG_PEEK | MSG_DONTWAIT) > 0) continue;  // not silent: only not read yet
    drop(c);
    return true;
  }
  return false;
}

void Connections::handle(uint64_t id, uint32_t events) {
  const auto it = all_.find(id);
  if (it == all_.end() || it->second->gone) return;
  Connection& c = *it->second;
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) return drop(c);
  try {
    if (c.stream->opening() && handshakes_-- <= 0) return;  // the poller tells of it again
    const bool reads = (events & (EPOLLIN | EPOLLRDHUP)) != 0 || c.stream->read_needs_room();
    if ((events & EPOLLOUT) != 0) flush(c);
    if (!c.gone && reads) read_from(c);
  } catch (const std::bad_alloc&) {
    run_out_of_memory(c);
  }
}

void Connections::set_idle(Connection& c, bool idle) {
  if (c.idle_listed) idle_.erase(c.idle_place);
  c.idle_listed = idle;
  if (idle) c.idle_place = idle_.insert(idle_.end(), c.id);
}

void Connections::set_read_deadline(Connection& c) {
  const HttpLimits& limits = shared_.config.http;
  const int64_t now = monotonic_ns();
  const bool untouched = c.parser.fresh() && c.input().empty();
  if (c.parser.in_body())
    c.deadline_ns = now + ns(limits.body_timeout);
  else
    c.deadline_ns = now + ns(untouched && c.served_before ? limits.idle_timeout : limits.header_timeout);
}

void Connections::read_from(Connection& c) {
  thread_local char buffer[kReadBuffer];
  size_t turn = 0;
  bool ended = false;
  while (turn < kReadTurn) {
    if (paused(c)) break;
    const auto [outcome, n] = c.stream->read(buffer, sizeof buffer);
    if (outcome == net::Stream::Outcome::kFailed) {
      if (c.stream->opening()) user_.on_bad_handshake(c);
      return drop(c);
    }
    if (outcome == net::Stream::Outcome::kAgain) break;
    if (outcome == net::Stream::Outcome::kEnd) {
      ended = true;
      break;
    }
    turn += std::max(n, kEmptyRead);
    if (n == 0) continue;
    if (c.phase == Connection::Phase::kClosing || c.phase == Connection::Phase::kLinger) continue;
    const bool first_bytes = c.phase == Connection::Phase::kReading && c.parser.fresh() && c.input().empty();
    c.in.append(buffer, n);
    if (c.phase == Connection::Phase::kReading) {
      if (first_bytes) set_idle(c, true);                           // of those that wait the last to be pushed out
      if (first_bytes || c.parser.in_body()) set_read_deadline(c);  // the head's deadline does not move
      process(c);
    }
    if (c.gone) return;
  }
  if (ended) end_input(c);
  if (!c.gone) watch(c, (c.events & EPOLLOUT) != 0);
}

// The client sends no more: it has left, or it has only shut its sending half and still reads. What was asked whole is
// answered; half a request is not.
void Connections::end_input(Connection& c) {
  c.unread_input = false;
  c.input_ended = true;
  if (c.phase == Connection::Phase::kLinger) return drop(c);
  if (c.phase == Connection::Phase::kReading) {
    if (c.unsent() == 0) return drop(c);
    c.phase = Connection::Phase::kClosing;
  }
  if (c.phase == Connection::Phase::kWorking) {
    if (c.input().empty()) c.keep_alive = false;
    const int on = 1;
    setsockopt(c.stream->fd(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    probe_reader(c);
  }
  touch(c);
}

// Whether the client still reads shows only when bytes are sent: a closed socket answers with a reset. An interim
// response is what a client of HTTP/1.1 skips (RFC 9110, 15.2); 100 is the one that all of them know. A stream needs no
// probe.
void Connections::probe_reader(Connection& c) {
  c.probe_ns = monotonic_ns() + kProbeNs;
  if (c.minor_version == 0 || c.streaming || c.unsent() > 0) return;
  c.out += "HTTP/1.1 100 Continue\r\n\r\n";
  touch(c);
}

void Connections::process(Connection& c) {
  while (!c.gone && c.phase == Connection::Phase::kReading && !congested(c)) {
    size_t used = 0;
    const auto progress = c.parser.advance(c.input(), used);
    c.drop_input(used);
    if (progress != http::RequestParser::Progress::kError && !hold_body(c)) return;
    switch (progress) {
      case http::RequestParser::Progress::kMore:
        if (c.input_ended) {  // the rest of this request will not come
          c.phase = Connection::Phase::kClosing;
          touch(c);
        }
        return;
      case http::RequestParser::Progress::kError:
        c.keep_alive = false;
        c.unread_input = true;
        c.method = c.parser.head().method;
        c.minor_version = 1;
        c.route = nullptr;
        c.begin_ns = monotonic_ns();
        user_.respond(
            c, http::json_response(c.parser.error_status(),
                                   openai::error_json({ErrorCode::kInvalidArgument, c.parser.error_text(), {}})));
        return;
      case http::RequestParser::Progress::kHead:
        if (!user_.on_head(c)) return;
        set_read_deadline(c);
        break;
      case http::RequestParser::Progress::kDone:
        user_.on_request(c);
        break;
    }
  }
}

// Bytes of a body count as they arrive, so that announcing one takes nothing from others; small ones at once.
bool Connections::hold_body(Connection& c) {
  constexpr size_t kStep = MemoryBudget::kSmall;
  const size_t have = c.parser.body().size();
  if (have <= c.memory.bytes()) return true;
  const size_t most = c.parser.head().content_length.value_or(shared_.config.http.body_bytes);
  const size_t step = c.parser.head().chunked ? (have + kStep / 16 - 1) / (kStep / 16) * (kStep / 16)
                                              : (have + kStep - 1) / kStep * kStep;
  if (c.memory.resize(std::max(have, std::min(step, most)))) return true;
  c.parser.drop_body();
  c.memory.release();
  c.keep_alive = false;
  c.unread_input = true;
  user_.respond(c, openai::busy_response("the bodies of all requests in flight take the memory there is for them "
                                         "(--max-request-memory); send the request again"));
  return false;
}

// Memory for this connection cannot be had: what it holds is given back, and its client learns why.
void Connections::run_out_of_memory(Connection& c) noexcept {
  const bool reading = c.phase == Connection::Phase::kReading && c.unsent() == 0 && !c.parser.fresh();
  std::string().swap(c.in);
  c.in_begin = 0;
  c.parser.drop_body();
  c.memory.release();
  try {
    if (!reading || c.gone) return drop(c);
    c.keep_alive = false;
    c.unread_input = true;
    user_.respond(c, openai::busy_response("the server has no memory for this request now; send it again"));
  } catch (const std::bad_alloc&) {
    drop(c);
  }
}

bool Connections::congested(const Connection& c) const { return c.unsent() > shared_.config.http.write_buffer_bytes; }

// A client that does not read its answers, or sends requests ahead without end, is not read any further.
bool Connections::paused(const Connection& c) const {
  return (c.phase == Connection::Phase::kWorking || congested(c)) && c.input().size() >= kPipelined;
}

void Connections::watch(Connection& c, bool writable) {
  uint32_t events = 0;
  if (!c.input_ended && !paused(c))
    events |= EPOLLIN | EPOLLRDHUP;  // a paused one would report its end again and again
  if (writable || c.stream->read_needs_room()) events |= EPOLLOUT;
  if (events == c.events) return;
  c.events = events;
  poller_.change(c.stream->fd(), events, c.id);
}

void Connections::touch(Connection& c) {
  if (c.touched || c.gone) return;
  c.touched = true;
  touched_.push_back(c.id);
}

void Connections::flush_touched() {
  for (size_t i = 0; i < touched_.size(); ++i) {  // flushing may touch further connections
    const auto it = all_.find(touched_[i]);
    if (it == all_.end()) continue;
    it->second->touched = false;
    if (!it->second->gone) flush(*it->second);
  }
  touched_.clear();
}

void Connections::flush(Connection& c) {
  c.close_chunk();
  while (c.unsent() > 0) {
    const auto [outcome, n] = c.stream->write(std::string_view(c.out).substr(c.sent));
    if (outcome == net::Stream::Outcome::kAgain) break;
    if (outcome != net::Stream::Outcome::kMoved) return drop(c);
    c.sent += n;
    c.stalled_since_ns = 0;
  }
  if (c.unsent() == 0) {
    c.out.clear();
    c.sent = 0;
    if (c.phase == Connection::Phase::kClosing) return c.unread_input && !c.input_ended ? begin_linger(c) : drop(c);
  } else {
    if (c.stalled_since_ns == 0) c.stalled_since_ns = monotonic_ns();
    if (c.sent > (1u << 20) && c.sent > c.unsent()) {  // at most one copy per byte
      c.out.erase(0, c.sent);
      c.sent = 0;
    }
  }
  watch(c, c.unsent() > 0);
  if (c.unsent() >= shared_.config.http.write_buffer_bytes / 2) return;
  if (c.active != 0) user_.on_room(c);
  if (c.phase == Connection::Phase::kReading && !c.input().empty()) process(c);
}

// Shuts our side and drops what the client still sends, so that it can read the answer before the reset.
void Connections::begin_linger(Connection& c) {
  c.stream->end_writing();
  c.phase = Connection::Phase::kLinger;
  c.deadline_ns = monotonic_ns() + kLingerNs;
  watch(c, false);
}

void Connections::drop(Connection& c) {
  if (c.gone) return;
  c.gone = true;
  set_idle(c, false);
  c.place = {};
  if (c.cancelled) c.cancelled->store(true, std::memory_order_relaxed);
  user_.on_drop(c);
  poller_.remove(c.stream->fd());
  c.stream->close(c.unsent() == 0 && !c.streaming);
  shared_.connections.fetch_sub(1, std::memory_order_relaxed);
  gone_.push_back(c.id);
}

void Connections::sweep(int64_t now_ns) {
  const bool draining = shared_.draining.load(std::memory_order_relaxed);
  for (auto& [id, connection] : all_) {
    if (connection->gone) continue;
    const bool untouched = connection->phase == Connection::Phase::kReading && connection->parser.fresh() &&
                           connection->input().empty() && connection->unsent() == 0;
    if (untouched) connection->trim(0);
    if (draining && untouched)
      drop(*connection);
    else
      sweep_connection(*connection, now_ns);
  }
}

void Connections::sweep_connection(Connection& c, int64_t now_ns) {
  const int64_t stall = ns(shared_.config.http.write_stall_timeout);
  if (c.stalled_since_ns != 0 && now_ns - c.stalled_since_ns > stall) return drop(c);
  if (c.phase == Connection::Phase::kLinger && now_ns > c.deadline_ns) return drop(c);
  if (c.phase == Connection::Phase::kWorking && c.input_ended && now_ns > c.probe_ns) probe_reader(c);
  if (c.phase != Connection::Phase::kReading) return;
  const bool body_late = c.parser.in_body() && now_ns > c.body_deadline_ns;
  if (now_ns <= c.deadline_ns && !body_late) return;
  if (c.parser.fresh() && c.input().empty()) return drop(c);  // nothing was asked, nothing is answered
  c.keep_alive = false;
  c.unread_input = true;
  c.minor_version = 1;
  http::Response late = openai::error_response({ErrorCode::kCancelled, "the request did not arrive in time", {}});
  user_.respond(c, std::move(late));
}

void Connections::end_turn() {
  flush_touched();
  for (const uint64_t id : gone_) all_.erase(id);
  gone_.clear();
  handshakes_ = kHandshakes;
}

void Connections::close() {
  flush_touched();
  shared_.connections.fetch_sub(static_cast<int>(all_.size()), std::memory_order_relaxed);
  all_.clear();
}

}  // namespace tern::serve
