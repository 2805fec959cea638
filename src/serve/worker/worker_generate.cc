// Generations of a worker: into the engine, and deltas back to the client.
#include <algorithm>
#include <new>

#include "base/clock.h"
#include "base/log.h"
#include "serve/openai/json/error.h"
#include "serve/report/request_log.h"
#include "serve/worker/preparations.h"
#include "serve/worker/worker.h"

namespace tern::serve {
namespace {

constexpr size_t kInlineBody = 256u << 10;  // text bytes above which a whole answer is written on the CPU pool

double seconds(int64_t from_ns, int64_t to_ns) {
  return from_ns > 0 && to_ns > from_ns ? static_cast<double>(to_ns - from_ns) * 1e-9 : 0.0;
}

}  // namespace

void Worker::on(Ready&& m) {
  Connection* c = find(m.to);
  if (c == nullptr) {  // the client left while its prompt was prepared
    shared_.ids.erase(m.generation->id());
    return;
  }
  auto active = std::make_unique<Active>();
  Active& a = *active;
  a.key = next_key_++;
  a.connection = c->id;
  a.key_index = c->key_index;
  a.generation = std::move(m.generation);
  a.requests = std::move(m.requests);
  a.ticket = std::move(m.ticket);
  a.memory = std::move(m.memory);
  c->active = a.key;
  active_.emplace(a.key, std::move(active));
  a.place = {number_, a.key, c->owner, static_cast<int64_t>(a.generation->choices().size())};
  if (shared_.slots.acquire(a.place)) {
    a.has_slot = true;
    log_stage(shared_.config, a.generation->id(), "has a place in the engine");
    return start_generation(a);
  }
  log_stage(shared_.config, a.generation->id(), "waits for a place in the engine");
  if (shared_.config.max_waiting_time >= 0) {
    a.wait_deadline_ns = monotonic_ns() + static_cast<int64_t>(shared_.config.max_waiting_time * 1e9);
  }
}

void Worker::on(SlotGranted&& m) {
  const auto it = active_.find(m.place.key);
  if (it != active_.end() && !it->second->has_slot) {
    it->second->has_slot = true;
    log_stage(shared_.config, it->second->generation->id(), "has a place in the engine");
    start_generation(*it->second);
  } else if (const auto next = shared_.slots.release(m.place)) {
    shared_.post_control(next->worker, SlotGranted{*next});
  }
}

void Worker::start_generation(Active& a) {
  Error error;
  if (!submit_rows(a, error)) return fail(a, error);
  const auto it = connections_.find(a.connection);
  if (it == connections_.end() || !a.generation->ask().stream) return;
  Connection& c = *it->second;
  if (shared_.draining.load(std::memory_order_relaxed)) c.keep_alive = false;
  if (c.minor_version == 0) c.keep_alive = false;  // without chunks only the end of the connection ends the body
  http::Response head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.extra_headers = "cache-control: no-cache\r\n" + c.answer_headers;
  http::append_head(c.out, head, std::nullopt, c.minor_version == 1, c.keep_alive, c.minor_version);
  c.streaming = true;
  touch(c);
}

bool Worker::submit_rows(Active& a, Error& error) {
  auto& choices = a.generation->choices();
  for (size_t i = 0; i < a.requests.size(); ++i) {
    const engine::RequestId id = shared_.dispatcher.next_id(number_);
    choices[i].request_id = id;
    choices[i].submitted_ns = monotonic_ns();
    a.requests[i].id = id;
    rows_[id] = Row{&a, i};
    const auto prompt_tokens = a.requests[i].prompt.size();
    const auto max_tokens = a.requests[i].max_tokens;
    if (logs(shared_.config, RequestLogLevel::kContent))
      log_submitted(shared_.config, a.generation->choice_id(choices[i]), a.requests[i]);
    Status status = shared_.engine.submit(std::move(a.requests[i]));
    if (!status.ok()) {
      rows_.erase(id);
      choices[i].request_id = 0;
      error = std::move(status).error();
      return false;
    }
    metrics_.add(Count::kPromptTokens, prompt_tokens);
    metrics_.observe(Hist::kPromptTokens, static_cast<double>(prompt_tokens));
    metrics_.observe(Hist::kMaxTokens, static_cast<double>(max_tokens));
  }
  a.requests.clear();
  return true;
}

void Worker::on(DeltaBatch&& m) {
  const int64_t now = monotonic_ns();
  for (engine::Delta& delta : m.items) {
    const auto row = rows_.find(delta.id);
    if (row == rows_.end()) continue;  // aborted here already
    const uint64_t key = row->second.active->key, connection = row->second.active->connection;
    try {
      take_or_hold(*row->second.active, row->second.choice, std::move(delta), now);
    } catch (const std::bad_alloc&) {
      lose(connection);
      if (const auto left = active_.find(key); left != active_.end()) abandon(*left->second);
    }
  }
}

void Worker::take_or_hold(Active& a, size_t choice, engine::Delta&& delta, int64_t now) {
  const auto it = connections_.find(a.connection);
  const bool slow = it != connections_.end() && it->second->streaming && congested(*it->second);
  if (!slow && a.held.empty()) {
    return take_delta(a, choice, std::move(delta), now);
  }
  a.held_tokens += delta.tokens.size();
  a.held.emplace_back(choice, std::move(delta));
  if (a.held_tokens > shared_.config.http.held_tokens && it != connections_.end()) {
    TERN_LOG(LogChannel::kRequest, LogLevel::kWarning, "request {} ended: its client does not read",
             a.generation->id());
    drop(*it->second);
  }
}

// The client has read enough: deltas that waited become text.
void Worker::resume_held(Connection& c) {
  const uint64_t key = c.active;
  const int64_t now = monotonic_ns();
  auto it = active_.find(key);
  if (it == active_.end() || it->second->held.empty()) return;
  auto held = std::move(it->second->held);
  it->second->held.clear();
  it->second->held_tokens = 0;
  size_t i = 0;
  for (; i < held.size() && !congested(c); ++i) {
    take_delta(*it->second, held[i].first, std::move(held[i].second), now);
    it = active_.find(key);
    if (it == active_.end()) return;
  }
  for (; i < held.size(); ++i) {
    it->second->held_tokens += held[i].second.tokens.size();
    it->second->held.push_back(std::move(held[i]));
  }
}

void Worker::take_delta(Active& a, size_t choice, engine::Delta&& delta, int64_t now_ns) {
  const auto it = connections_.find(a.connection);
  Connection* c = it != connections_.end() ? it->second.get() : nullptr;
  std::string& out = c != nullptr && c->streaming ? c->stream_out() : discard_;
  Choice& row = a.generation->choices()[choice];
  const bool first = row.completion_tokens == 0;
  const size_t before = out.size();
  const auto outcome = a.generation->consume(row, std::move(delta), now_ns, out);
  if (first && outcome.tokens > 0 && logs(shared_.config, RequestLogLevel::kStages))
    log_stage(shared_.config, a.generation->choice_id(row), "has its first token");
  if (c != nullptr && c->streaming && out.size() > before) {
    log_chunk(shared_.config, a.generation->id(), std::string_view(out).substr(before), !a.told, false);
    a.told = true;
  }
  discard_.clear();
  if (c != nullptr && c->streaming) touch(*c);
  if (outcome.tokens > 0) measure(row, outcome.tokens, now_ns, first);
  row.last_token_ns = now_ns;
  settle(a, outcome, choice);
}

void Worker::settle(Active& a, const Generation::Outcome& outcome, size_t choice) {
  if (outcome.failed) {
    rows_.erase(a.generation->choices()[choice].request_id);
    return fail(a, a.generation->error());
  }
  if (!outcome.choice_finished) return;
  const Choice& row = a.generation->choices()[choice];
  if (outcome.abort) shared_.engine.abort(row.request_id);
  rows_.erase(row.request_id);
  measure_finished(*a.generation, row);
  if (a.generation->finished()) complete(a);
}

// All samples have ended: the end of the stream, or the whole answer.
void Worker::complete(Active& a) {
  const auto it = connections_.find(a.connection);
  if (it == connections_.end()) return release(a);
  Connection& c = *it->second;
  const ReplyTo to{number_, c.id, c.exchange};
  const Ask& ask = a.generation->ask();
  if (c.streaming) {
    std::string& out = c.stream_out();
    const size_t before = out.size();
    a.generation->writer().end(out);
    log_chunk(shared_.config, a.generation->id(), std::string_view(out).substr(before), false, true);
    c.end_stream();
    release(a);
    finish_exchange(c, 200);
    return process(c);
  }
  const bool heavy =
      ask.logprobs || ask.prompt_logprobs || ask.return_token_ids || a.generation->writer().weight() > kInlineBody;
  if (heavy) {
    auto generation = std::move(a.generation);
    Ticket ticket = std::move(a.ticket);
    shared_.ids.erase(generation->id());
    release(a);
    c.active = 0;
    return write_body(shared_, to, std::move(generation), std::move(ticket));
  }
  http::Response response = http::json_response(200, a.generation->writer().body());
  log_answer(shared_.config, a.generation->id(), response.body);
  release(a);
  respond(c, std::move(response));
  process(c);
}

void Worker::fail(Active& a, const Error& error) {
  const Error shown = error;  // `error` may lie inside the generation
  log_failed(shared_.config, a.generation->id(), shown);
  const auto it = connections_.find(a.connection);
  Connection* c = it != connections_.end() ? it->second.get() : nullptr;
  const bool in_stream = c != nullptr && c->streaming;
  if (in_stream) {
    a.generation->writer().fail(shown, c->stream_out());
    c->end_stream();
  }
  abandon(a);
  if (c == nullptr) return;
  if (in_stream)
    finish_exchange(*c, 200);
  else
    respond(*c, openai::error_response(shown, shared_.config.original_error_status));
  process(*c);
}

void Worker::abandon(Active& a) {
  if (a.generation) {
    for (const auto& choice : a.generation->choices()) {
      if (choice.request_id != 0 && rows_.erase(choice.request_id) > 0) shared_.engine.abort(choice.request_id);
    }
  }
  release(a);
}

void Worker::release(Active& a) {
  if (a.generation) shared_.ids.erase(a.generation->id());
  if (a.has_slot) {
    if (const auto next = shared_.slots.release(a.place)) shared_.post_control(next->worker, SlotGranted{*next});
  } else {
    // False when the place is on its way here: on(SlotGranted) will find no request and pass it on.
    [[maybe_unused]] const bool left_queue = shared_.slots.cancel(a.place);
  }
  active_.erase(a.key);
}

void Worker::measure(const Choice& choice, int32_t tokens, int64_t now_ns, bool first) {
  metrics_.add(Count::kGenerationTokens, static_cast<uint64_t>(tokens));
  if (first) {
    const double ttft = seconds(choice.times.arrival, choice.times.first_token > 0 ? choice.times.first_token : now_ns);
    metrics_.observe(Hist::kTimeToFirst, ttft);
    metrics_.set_first_token(ttft);
  } else if (choice.last_token_ns > 0) {
    metrics_.observe(Hist::kTimePerToken, seconds(choice.last_token_ns, now_ns) / tokens,
                     static_cast<uint64_t>(tokens));
  }
}

void Worker::measure_finished(const Generation& g, const Choice& choice) {
  log_finished(shared_.config, g, choice);
  if (choice.reason != engine::FinishReason::kAbort) metrics_.add(Count::kSuccess);
  const auto& t = choice.times;
  const int64_t end = t.finished > 0 ? t.finished : monotonic_ns();
  metrics_.observe(Hist::kGenerationTokens, static_cast<double>(choice.completion_tokens));
  if (choice.completion_tokens > 0) {
    metrics_.observe(Hist::kTokenRatio,
                     static_cast<double>(g.prompt_tokens(choice)) / static_cast<double>(choice.completion_tokens));
  }
  metrics_.observe(Hist::kEndToEnd, seconds(t.arrival, end));
  metrics_.observe(Hist::kInference, seconds(t.scheduled, end));
  metrics_.observe(Hist::kQueue, seconds(t.arrival, t.scheduled));
  metrics_.observe(Hist::kPrefill, seconds(t.scheduled, t.first_token));
  metrics_.observe(Hist::kDecode, seconds(t.first_token, end));
  metrics_.set_infer(
      choice.completion_tokens > 0 ? seconds(t.first_token, end) / static_cast<double>(choice.completion_tokens) : 0.0);
}

void Worker::sweep_waiting(int64_t now_ns) {
  if (number_ == 0 && shared_.preparations) shared_.preparations->sweep(now_ns);
  std::vector<uint64_t> late;
  for (const auto& [key, a] : active_) {
    if (!a->has_slot && a->wait_deadline_ns > 0 && now_ns > a->wait_deadline_ns) late.push_back(key);
  }
  for (const uint64_t key : late) {
    fail(*active_.at(key),
         {ErrorCode::kCancelled, "Timed out waiting for a place in the engine (--max-waiting-time)", {}});
  }
}

bool AbortSweep::names(const std::string& id) {
  const auto it = wanted.find(id);
  if (it == wanted.end()) return false;
  it->second = true;
  return true;
}

// Linear in the open samples of this worker, whatever the number of ids.
void Worker::abort_matching(AbortSweep& sweep) {
  std::vector<uint64_t> unsent;
  for (auto& [key, a] : active_) {
    if (!sweep.takes_key(a->key_index)) continue;
    const bool whole = sweep.names(a->generation->id()) || sweep.all;
    for (auto& choice : a->generation->choices()) {
      std::string name = a->generation->choice_id(choice);
      if (!(sweep.names(name) || whole) || choice.finished) continue;
      sweep.aborted.emplace_back(std::move(name), choice.completion_tokens);
      if (a->has_slot)
        shared_.engine.abort(choice.request_id);
      else if (unsent.empty() || unsent.back() != key)
        unsent.push_back(key);
    }
  }
  for (const uint64_t key : unsent) fail(*active_.at(key), {ErrorCode::kUnavailable, "the request was aborted", {}});
}

void Worker::on(std::unique_ptr<AbortSweep>&& m) {
  if (m->hops == 0 && shared_.preparations) shared_.preparations->abort_matching(*m);
  abort_matching(*m);
  const int next = (number_ + 1) % static_cast<int>(shared_.workers.size());
  if (++m->hops < static_cast<int>(shared_.workers.size())) return shared_.post_control(next, std::move(m));
  finish_sweep(*m);
}

void Worker::on(AbortAll&&) {
  AbortSweep sweep;
  sweep.all = true;
  if (number_ == 0 && shared_.preparations) shared_.preparations->abort_matching(sweep);
  abort_matching(sweep);
}

void Worker::on(EngineGone&&) {
  std::vector<uint64_t> keys;
  for (const auto& [key, a] : active_) keys.push_back(key);
  for (const uint64_t key : keys) {
    const auto it = active_.find(key);
    if (it != active_.end()) fail(*it->second, {ErrorCode::kInternal, "Engine is not healthy", {}});
  }
}

}  // namespace tern::serve
