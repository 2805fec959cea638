#include "serve/worker/active_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "base/clock.h"
#include "base/log.h"
#include "serve/openai/json/error.h"
#include "serve/report/request_log.h"
#include "serve/report/trace.h"

namespace tern::serve {
namespace {

constexpr size_t kInlineBody = 256u << 10;  // text bytes above which a whole answer is written on the CPU pool

double seconds(int64_t from_ns, int64_t to_ns) {
  return from_ns > 0 && to_ns > from_ns ? static_cast<double>(to_ns - from_ns) * 1e-9 : 0.0;
}

void measure(MetricsShard& metrics, const Choice& choice, int32_t tokens, int64_t now_ns, bool first) {
  metrics.add(Count::kGenerationTokens, static_cast<uint64_t>(tokens));
  if (first) {
    const double ttft = seconds(choice.times.arrival, choice.times.first_token > 0 ? choice.times.first_token : now_ns);
    metrics.observe(Hist::kTimeToFirst, ttft);
    metrics.set_first_token(ttft);
  } else if (choice.last_token_ns > 0) {
    metrics.observe(Hist::kTimePerToken, seconds(choice.last_token_ns, now_ns) / tokens, static_cast<uint64_t>(tokens));
  }
}

void measure_finished(MetricsShard& metrics, const Generation& g, const Choice& choice) {
  if (choice.reason != engine::FinishReason::kAbort) metrics.add(Count::kSuccess);
  const auto& t = choice.times;
  const int64_t end = t.finished > 0 ? t.finished : monotonic_ns();
  metrics.observe(Hist::kGenerationTokens, static_cast<double>(choice.completion_tokens));
  if (choice.completion_tokens > 0) {
    metrics.observe(Hist::kTokenRatio,
                    static_cast<double>(g.prompt_tokens(choice)) / static_cast<double>(choice.completion_tokens));
  }
  metrics.observe(Hist::kEndToEnd, seconds(t.arrival, end));
  metrics.observe(Hist::kInference, seconds(t.scheduled, end));
  metrics.observe(Hist::kQueue, seconds(t.arrival, t.scheduled));
  metrics.observe(Hist::kPrefill, seconds(t.scheduled, t.first_token));
  metrics.observe(Hist::kDecode, seconds(t.first_token, end));
  metrics.set_infer(
      choice.completion_tokens > 0 ? seconds(t.first_token, end) / static_cast<double>(choice.completion_tokens) : 0.0);
}

}  // namespace

void ActiveRequests::start(Ready&& m) {
  Reader* const reader = readers_.find_waiting(m.to);
  if (reader == nullptr) {  // the client left while its prompt was prepared
    shared_.ids.erase(m.generation->id());
    return;
  }
  auto active = std::make_unique<ActiveRequest>();
  ActiveRequest& a = *active;
  a.key = next_key_++;
  a.reader = reader->id;
  a.key_index = reader->key_index;
  a.generation = std::move(m.generation);
  a.requests = std::move(m.requests);
  a.ticket = std::move(m.ticket);
  a.memory = std::move(m.memory);
  a.heard_ns = monotonic_ns();
  reader->active = a.key;
  all_.emplace(a.key, std::move(active));
  a.place = {worker_, a.key, reader->owner, static_cast<int64_t>(a.generation->choices().size())};
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

void ActiveRequests::grant(SlotGranted&& m) {
  const auto it = all_.find(m.place.key);
  if (it != all_.end() && !it->second->has_slot) {
    it->second->has_slot = true;
    log_stage(shared_.config, it->second->generation->id(), "has a place in the engine");
    start_generation(*it->second);
  } else if (const auto next = shared_.slots.release(m.place)) {
    shared_.post_control(next->worker, SlotGranted{*next});
  }
}

void ActiveRequests::start_generation(ActiveRequest& a) {
  Error error;
  if (!submit_rows(a, error)) return fail(a, error);
  if (!a.generation->ask().stream) return;
  if (Reader* const reader = readers_.find(a.reader)) reader->begin_stream();
}

bool ActiveRequests::submit_rows(ActiveRequest& a, Error& error) {
  auto& choices = a.generation->choices();
  const auto door = shared_.control.submitting();
  for (size_t i = 0; i < a.requests.size(); ++i) {
    const engine::RequestId id = shared_.dispatcher.next_id(worker_);
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

void ActiveRequests::take(DeltaBatch&& m) {
  const int64_t now = monotonic_ns();
  for (engine::Delta& delta : m.items) {
    const auto row = rows_.find(delta.id);
    if (row == rows_.end()) continue;  // aborted here already
    const uint64_t key = row->second.active->key, reader = row->second.active->reader;
    try {
      take_or_hold(*row->second.active, row->second.choice, std::move(delta), now);
    } catch (const std::bad_alloc&) {
      lose(reader);
      if (const auto left = all_.find(key); left != all_.end()) abandon(*left->second);
    }
  }
}

void ActiveRequests::take_or_hold(ActiveRequest& a, size_t choice, engine::Delta&& delta, int64_t now) {
  Reader* const reader = readers_.find(a.reader);
  const bool slow = reader != nullptr && reader->streaming && reader->congested();
  if (!slow && a.held.empty()) {
    return take_delta(a, choice, std::move(delta), now);
  }
  a.held_tokens += delta.tokens.size();
  a.held.emplace_back(choice, std::move(delta));
  if (a.held_tokens > shared_.config.http.held_tokens && reader != nullptr) {
    TERN_LOG(LogChannel::kRequest, LogLevel::kWarning, "request {} ended: its client does not read",
             a.generation->id());
    reader->drop();
  }
}

// The client has read enough: deltas that waited become text.
void ActiveRequests::resume_held(Reader& reader) {
  const uint64_t key = reader.active;
  const int64_t now = monotonic_ns();
  auto it = all_.find(key);
  if (it == all_.end() || it->second->held.empty()) return;
  auto held = std::move(it->second->held);
  it->second->held.clear();
  it->second->held_tokens = 0;
  size_t i = 0;
  for (; i < held.size() && !reader.congested(); ++i) {
    take_delta(*it->second, held[i].first, std::move(held[i].second), now);
    it = all_.find(key);
    if (it == all_.end()) return;
  }
  for (; i < held.size(); ++i) {
    it->second->held_tokens += held[i].second.tokens.size();
    it->second->held.push_back(std::move(held[i]));
  }
}

void ActiveRequests::take_delta(ActiveRequest& a, size_t choice, engine::Delta&& delta, int64_t now_ns) {
  Reader* const reader = readers_.find(a.reader);
  const bool streams = reader != nullptr && reader->streaming;
  std::string& out = streams ? reader->stream_out() : discard_;
  Choice& row = a.generation->choices()[choice];
  const bool first = row.completion_tokens == 0;
  const size_t before = out.size();
  const auto outcome = a.generation->consume(row, std::move(delta), now_ns, out);
  if (first && outcome.tokens > 0 && logs(shared_.config, RequestLogLevel::kStages))
    log_stage(shared_.config, a.generation->choice_id(row), "has its first token");
  const bool sent = out.size() > before;
  if (streams && sent) {
    log_chunk(shared_.config, a.generation->id(), std::string_view(out).substr(before), !a.told, false);
    a.told = true;
  }
  discard_.clear();
  if (streams) reader->touch();
  if (outcome.tokens > 0) measure(metrics_, row, outcome.tokens, now_ns, first);
  // Without a stream every token is a message within the server.
  const Ask& ask = a.generation->ask();
  if (ask.message_timeout > 0 && (ask.stream ? sent : !ask.last_message_only)) a.heard_ns = now_ns;
  row.last_token_ns = now_ns;
  settle(a, outcome, choice);
}

void ActiveRequests::settle(ActiveRequest& a, const Generation::Outcome& outcome, size_t choice) {
  if (outcome.failed) {
    rows_.erase(a.generation->choices()[choice].request_id);
    return fail(a, a.generation->error());
  }
  if (!outcome.choice_finished) return;
  const Choice& row = a.generation->choices()[choice];
  if (outcome.abort) shared_.engine.abort(row.request_id);
  rows_.erase(row.request_id);
  log_finished(shared_.config, *a.generation, row);
  if (shared_.config.entropy) log_entropy(*a.generation, row);
  measure_finished(metrics_, *a.generation, row);
  if (a.generation->finished()) complete(a);
}

// All samples have ended: the end of the stream, or the whole answer.
void ActiveRequests::complete(ActiveRequest& a) {
  record_trace(shared_.config, *a.generation, false, [this] { return shared_.random_hex(); });
  Reader* const reader = readers_.find(a.reader);
  if (reader == nullptr) return release(a);
  const ReplyTo to{worker_, reader->id, reader->exchange};
  const Ask& ask = a.generation->ask();
  if (reader->streaming) {
    std::string& out = reader->stream_out();
    const size_t before = out.size();
    a.generation->writer().end(out);
    log_chunk(shared_.config, a.generation->id(), std::string_view(out).substr(before), false, true);
    release(a);
    return reader->end_stream();
  }
  const bool heavy =
      ask.logprobs || ask.prompt_logprobs || ask.return_token_ids || a.generation->writer().weight() > kInlineBody;
  if (heavy) {
    auto generation = std::move(a.generation);
    Ticket ticket = std::move(a.ticket);
    shared_.ids.erase(generation->id());
    release(a);
    reader->active = 0;
    return write_body(shared_, to, std::move(generation), std::move(ticket));
  }
  http::Response response = http::json_response(200, a.generation->writer().body());
  log_answer(shared_.config, a.generation->id(), response.body);
  release(a);
  reader->respond(std::move(response));
}

void ActiveRequests::fail(ActiveRequest& a, const Error& error) {
  const Error shown = error;  // `error` may lie inside the generation
  log_failed(shared_.config, a.generation->id(), shown);
  metrics_.add(Count::kFailed);
  Reader* const reader = readers_.find(a.reader);
  if (reader != nullptr && reader->tell(shown)) return abandon(a);
  const bool in_stream = reader != nullptr && reader->streaming;
  if (in_stream) a.generation->writer().fail(shown, reader->stream_out());
  std::string own = in_stream ? "" : a.generation->writer().failure_body(shown);
  abandon(a);
  if (reader == nullptr) return;
  if (in_stream)
    reader->end_stream();
  else if (!own.empty())
    reader->respond(http::json_response(200, std::move(own)));
  else
    reader->respond(openai::error_response(shown, shared_.config.original_error_status));
}

void ActiveRequests::abandon(ActiveRequest& a) {
  if (a.generation) {
    record_trace(shared_.config, *a.generation, true, [this] { return shared_.random_hex(); });
    for (const auto& choice : a.generation->choices()) {
      if (choice.request_id != 0 && rows_.erase(choice.request_id) > 0) shared_.engine.abort(choice.request_id);
    }
  }
  release(a);
}

void ActiveRequests::release(ActiveRequest& a) {
  if (a.generation) shared_.ids.erase(a.generation->id());
  if (a.has_slot) {
    if (const auto next = shared_.slots.release(a.place)) shared_.post_control(next->worker, SlotGranted{*next});
  } else {
    // False when the place is on its way here: on(SlotGranted) will find no request and pass it on.
    [[maybe_unused]] const bool left_queue = shared_.slots.cancel(a.place);
  }
  all_.erase(a.key);
}

void ActiveRequests::sweep(int64_t now_ns) {
  std::vector<uint64_t> late;
  for (const auto& [key, a] : all_) {
    if (!a->has_slot && a->wait_deadline_ns > 0 && now_ns > a->wait_deadline_ns) late.push_back(key);
  }
  for (const uint64_t key : late) {
    fail(*all_.at(key),
         {ErrorCode::kCancelled, "Timed out waiting for a place in the engine (--max-waiting-time)", {}});
  }
  sweep_silent(now_ns);
}

// Requests whose client has waited too long for its next message.
void ActiveRequests::sweep_silent(int64_t now_ns) {
  std::vector<uint64_t> silent;
  for (const auto& [key, a] : all_) {
    const double limit = a->generation->ask().message_timeout;
    if (limit > 0 && static_cast<double>(now_ns - a->heard_ns) > limit * 1e9) silent.push_back(key);
  }
  for (const uint64_t key : silent) {
    ActiveRequest& a = *all_.at(key);
    fail(a,
         {ErrorCode::kCancelled,
          fmt::format("Fetch response from server timeout ({:.0f}s)", a.generation->ask().message_timeout), "timeout"});
  }
}

void ActiveRequests::client_left(Reader& reader) {
  const auto it = all_.find(reader.active);
  if (it == all_.end()) return;
  it->second->reader = 0;
  if (!shared_.config.abort_on_disconnect && it->second->held.empty()) return;
  log_left(shared_.config, it->second->generation->id());
  abandon(*it->second);
}

void ActiveRequests::lose(uint64_t id) noexcept {
  Reader* const reader = readers_.find(id);
  if (reader == nullptr) return;
  const uint64_t key = reader->active;
  reader->drop();
  if (const auto left = all_.find(key); left != all_.end()) abandon(*left->second);
}

bool AbortSweep::names(const std::string& id) {
  const auto it = wanted.find(id);
  if (it == wanted.end()) return false;
  it->second = true;
  return true;
}

// Linear in the open samples of this worker, whatever the number of ids.
void ActiveRequests::abort_matching(AbortSweep& sweep) {
  std::vector<uint64_t> unsent;
  for (auto& [key, a] : all_) {
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
  for (const uint64_t key : unsent) fail(*all_.at(key), {ErrorCode::kUnavailable, "the request was aborted", {}});
}

void ActiveRequests::engine_gone() {
  std::vector<uint64_t> keys;
  for (const auto& [key, a] : all_) keys.push_back(key);
  for (const uint64_t key : keys) {
    const auto it = all_.find(key);
    if (it != all_.end()) fail(*it->second, {ErrorCode::kInternal, "Engine is not healthy", {}});
  }
}

}  // namespace tern::serve
