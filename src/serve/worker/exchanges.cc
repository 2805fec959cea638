#include "serve/worker/exchanges.h"

#include <fmt/format.h>

#include <new>

#include "base/clock.h"
#include "base/log.h"
#include "json/json.h"
#include "serve/http/target.h"
#include "serve/openai/json/error.h"
#include "serve/worker/job_steps.h"

namespace tern::serve {
namespace {

constexpr size_t kKeptBuffer = 64u << 10;  // that a connection keeps while its request is answered; idle ones keep none

bool asks_no_key(const Route& route, const ServeConfig& config) {
  return route.key == KeyRule::kPublic || (route.key == KeyRule::kMetrics && config.metrics_open);
}

// Clients of Messages send their key in a header of its own.
std::optional<int> key_of(const Auth& auth, const http::Head& head) {
  const auto key = auth.check(head.authorization);
  return key || head.api_key.empty() ? key : auth.check_key(head.api_key);
}

http::Response detail(int status, std::string_view text) {
  std::string body = "{\"detail\":";
  json::append_quoted(body, text);
  http::Response response = http::json_response(status, body + "}");
  response.problem = text;
  return response;
}

// As Starlette does for a path that lacks or has one slash too many at its end: 307 keeps the method and the body.
http::Response redirect(const http::Head& head, bool secure, std::string_view path) {
  std::string location = "location: ";
  if (http::is_authority(head.host)) location += (secure || head.forwarded_https ? "https://" : "http://") + head.host;
  location += path;
  if (!head.query.empty()) location += '?' + head.query;
  return {307, "", "", location + "\r\n", false};
}

http::Response not_allowed(const Route& route) {
  http::Response response = detail(405, "Method Not Allowed");
  response.extra_headers = allow_header(route);
  return response;
}

// What the page adds to the protocol is there for those who read it, and for nobody with --no-page.
const Route* without_page(const Route* route, http::Method method, bool page) {
  if (route == nullptr || !route->page) return route;
  return page && (method == http::Method::kGet || method == http::Method::kHead) ? route : nullptr;
}

// False: there is no memory for a body of that length now.
bool cover_body(Connection& c, uint64_t length) {
  try {
    c.parser.reserve_body();
    return length > MemoryBudget::kSmall || c.memory.cover(static_cast<size_t>(length));
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

Connection* Exchanges::find(const ReplyTo& to) {
  Connection* c = connections_.find(to.connection);
  if (c == nullptr || c->gone || c->exchange != to.exchange) return nullptr;
  return c->phase == Connection::Phase::kWorking ? c : nullptr;
}

bool Exchanges::check_key(Connection& c, bool open) {
  const bool control = c.route != nullptr && c.route->key == KeyRule::kAdmin && shared_.admin.required();
  const Auth& auth = control ? shared_.admin : shared_.auth;
  if (auth.required() && !open) {
    const auto key = key_of(auth, c.parser.head());
    if (!key) return false;
    c.key_index = *key;
  }
  c.owner = auth.several() && !open ? static_cast<uint64_t>(c.key_index) + 1 : c.peer.owner;
  c.parser.head().authorization.clear();
  c.parser.head().api_key.clear();
  return true;
}

// Decides from the head alone whether this client may ask this, so that no body is read in vain.
bool Exchanges::on_head(Connection& c) {
  const http::Head& head = c.parser.head();
  c.method = head.method;
  c.minor_version = head.minor_version;
  c.keep_alive = head.keep_alive;
  c.begin_ns = monotonic_ns();
  c.body_deadline_ns = c.begin_ns + static_cast<int64_t>(shared_.config.http.body_total_timeout * 1e9);
  c.key_index = 0;
  c.route = without_page(match_route(head, c.port, shared_.metrics_on_main, c.rest), c.method, shared_.config.page);
  c.answer_headers = request_id_line(head.request_id);
  const auto refuse_now = [&](http::Response response) {
    if (head.has_body()) {  // its body will not be read
      c.keep_alive = false;
      c.unread_input = true;
    }
    respond(c, std::move(response));
    return false;
  };
  if (c.port == PortKind::kMain) {
    if (shared_.cors.is_preflight(head)) return refuse_now(shared_.cors.preflight(head));  // it carries no key
    c.answer_headers += shared_.cors.answer_headers(head);
  }
  const bool known = c.route != nullptr;
  const bool open = known && (asks_no_key(*c.route, shared_.config) || head.method == http::Method::kOptions);
  if (!check_key(c, open)) {
    http::Response response = http::json_response(401, "{\"error\":\"Unauthorized\"}");
    response.problem = "Unauthorized";
    response.extra_headers = "www-authenticate: Bearer\r\n";
    return refuse_now(std::move(response));
  }
  if (!known) {
    const Route* to = find_redirect(head.path, c.port, shared_.metrics_on_main);
    const Route* other = without_page(to, c.method, shared_.config.page);
    return refuse_now(other != nullptr ? redirect(head, c.stream->secure(), other->path) : detail(404, "Not Found"));
  }
  if (head.method == http::Method::kOptions) return refuse_now({204, "", "", allow_header(*c.route), false});
  if (!method_allowed(*c.route, head.method)) return refuse_now(not_allowed(*c.route));
  // A key has a share of the memory; an address where there are no keys, unless many clients may stand behind it.
  const bool shares = (shared_.auth.several() && !open) || c.peer.limited;
  c.memory = MemoryBudget::Lease(shared_.memory, shares ? c.owner : 0);
  if (!cover_body(c, head.content_length.value_or(0))) {
    return refuse_now(openai::busy_response("there is no memory for the body of the request now; send it again"));
  }
  connections_.set_idle(c, false);  // a client that sends its body is not pushed out by newcomers
  if (head.expect_continue && head.has_body() && c.minor_version == 1 && c.input().empty()) {
    c.out += "HTTP/1.1 100 Continue\r\n\r\n";
    connections_.touch(c);
  }
  return true;
}

void Exchanges::on_request(Connection& c) {
  c.phase = Connection::Phase::kWorking;
  c.deadline_ns = 0;
  c.trim(kKeptBuffer);  // the answer may take long
  ++c.exchange;
  if (const auto at_once = c.route->handler.at_once)
    respond(c, at_once(shared_, c.rest));
  else if (const auto file = c.route->handler.file)
    respond(c, file(c.parser.head()));
  else
    submit_job(c);
}

void Exchanges::submit_job(Connection& c) {
  Job job;
  if (c.route->handler.generates()) {
    metrics_.add(Count::kRequests);
    job.ticket = Ticket::take(shared_.open_requests, shared_.config.max_concurrency);
    if (c.port == PortKind::kPaddleNlp && (!job.ticket || shared_.draining.load(std::memory_order_relaxed))) {
      return respond(c, paddlenlp_refusal(job.ticket ? "The server is stopping" : "too many requests are open"));
    }
    if (!job.ticket) {
      return respond(c, detail(429, fmt::format("Too many requests,current max concurrency is {}",
                                                shared_.config.max_concurrency)));
    }
    if (shared_.draining.load(std::memory_order_relaxed)) {
      return respond(c, openai::error_response({ErrorCode::kUnavailable, "the server is shutting down", {}}));
    }
    if (!shared_.ready()) {
      const char* why = shared_.healthy() ? "the server is asleep" : "the engine has failed";
      return respond(
          c, c.port == PortKind::kPaddleNlp ? paddlenlp_refusal(why, true) : http::Response{304, "", "", "", false});
    }
  }
  job.to = {worker_, c.id, c.exchange};
  job.route = c.route;
  job.body = std::move(c.parser.body());
  job.query = std::move(c.parser.head().query);
  job.content_type = std::move(c.parser.head().content_type);
  job.traceparent = std::move(c.parser.head().traceparent);
  job.key_index = c.key_index;
  job.owner = c.owner;
  job.memory = std::move(c.memory);
  job.arrival_ns = c.begin_ns;
  job.cancelled = c.cancelled = std::make_shared<std::atomic<bool>>(false);
  const bool taken = shared_.pool->try_submit([&shared = shared_, job = std::move(job)]() mutable {
    run_guarded(shared, job.to, [&] { run_job(shared, std::move(job)); });
  });
  if (taken) return;
  respond(c, openai::error_response({ErrorCode::kResourceExhausted, "the server is overloaded", {}}));
}

std::string Exchanges::request_id_line(std::string_view given) {
  return fmt::format("x-request-id: {}\r\n", given.empty() ? shared_.random_hex() : given);
}

void Exchanges::respond(Connection& c, http::Response response) {
  if (c.answer_headers.empty()) c.answer_headers = request_id_line({});  // a head that could not be read
  if (response.status >= 400 && c.route != nullptr && c.route->handler.error_body != nullptr) {
    response.body = c.route->handler.error_body(response.status, response.problem);
    response.content_type = "application/json";
  }
  response.extra_headers += c.answer_headers;
  if (shared_.draining.load(std::memory_order_relaxed) || response.close) c.keep_alive = false;
  http::append_response(c.out, response, c.method == http::Method::kHead, c.keep_alive, c.minor_version);
  finish(c, response.status);
}

void Exchanges::begin_stream(Connection& c) {
  if (shared_.draining.load(std::memory_order_relaxed)) c.keep_alive = false;
  if (c.minor_version == 0) c.keep_alive = false;  // without chunks only the end of the connection ends the body
  http::Response head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.extra_headers = "cache-control: no-cache\r\n" + c.answer_headers;
  http::append_head(c.out, head, std::nullopt, c.minor_version == 1, c.keep_alive, c.minor_version);
  c.streaming = true;
  connections_.touch(c);
}

void Exchanges::finish(Connection& c, int status) {
  const std::string_view path = c.route != nullptr ? c.route->path : "other";
  const double seconds = static_cast<double>(monotonic_ns() - c.begin_ns) * 1e-9;
  metrics_.http(http::method_name(c.method), path, status, seconds);
  TERN_LOG(LogChannel::kApiServer, LogLevel::kDebug, "{} {} -> {} {}", http::method_name(c.method), path, status,
           std::string_view(c.answer_headers).substr(0, c.answer_headers.find('\r')));
  c.answer_headers.clear();
  connections_.touch(c);
  c.active = 0;
  c.cancelled.reset();
  c.memory.release();
  c.served_before = true;
  c.route = nullptr;
  connections_.set_idle(c, false);
  if (!c.keep_alive || (c.input_ended && c.input().empty())) {
    c.phase = Connection::Phase::kClosing;
    return;
  }
  c.phase = Connection::Phase::kReading;
  c.parser.reset();
  connections_.set_idle(c, true);
  connections_.set_read_deadline(c);
}

void Exchanges::bad_handshake(const Connection& c) {
  metrics_.add(Count::kBadHandshakes);
  TERN_LOG(LogChannel::kApiServer, LogLevel::kDebug, "TLS handshake failed: {}", c.stream->why());
}

void Exchanges::take(Reply&& m) {
  Connection* c = find(m.to);
  if (c == nullptr) return;
  if (!m.served && c->route->handler.generates()) metrics_.add(Count::kFailed);
  respond(*c, std::move(m.response));
  m.ticket.release();
  connections_.process(*c);  // the next request may already be here
}

}  // namespace tern::serve
