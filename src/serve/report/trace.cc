#include "serve/report/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "json/json.h"
#include "serve/core/trace_context.h"

namespace tern::serve {
namespace {

// Stages of a request, nanoseconds since 1970; 0: not reached. Of several samples the first that came there, and the
// last that ended.
struct RequestTrace {
  std::string id;
  std::string traceparent;  // of the caller; "": none
  int64_t arrival = 0, prepared = 0, submitted = 0, planned = 0, scheduled = 0, first_token = 0, finished = 0,
          ended = 0;
  std::vector<engine::Preemption> interruptions;  // of all samples; end 0: none of them
  int64_t prompt_tokens = 0, completion_tokens = 0;
  bool prefix_cache = false;
  bool failed = false;
};

int64_t earlier(int64_t a, int64_t b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

struct Span {
  std::string_view trace, id, parent, name;
  int kind = 1;  // internal; 2: server
  int64_t begin = 0, end = 0;
};

void append_span(std::string& out, const Span& span, std::string_view attributes, bool failed) {
  if (!out.empty()) out += ',';
  fmt::format_to(
      std::back_inserter(out),
      "{{\"traceId\":\"{}\",\"spanId\":\"{}\",\"parentSpanId\":\"{}\",\"name\":\"{}\",\"kind\":{},"
      "\"startTimeUnixNano\":\"{}\",\"endTimeUnixNano\":\"{}\",\"attributes\":[{}],\"status\":{{\"code\":{}}}}}",
      span.trace, span.id, span.parent, span.name, span.kind, span.begin, std::max(span.begin, span.end), attributes,
      failed ? 2 : 1);
}

std::string attributes_of(const RequestTrace& t) {
  std::string out = "{\"key\":\"request_id\",\"value\":{\"stringValue\":";
  json::append_quoted(out, t.id);
  fmt::format_to(std::back_inserter(out),
                 "}}}},{{\"key\":\"prompt_tokens\",\"value\":{{\"intValue\":\"{}\"}}}},"
                 "{{\"key\":\"completion_tokens\",\"value\":{{\"intValue\":\"{}\"}}}}",
                 t.prompt_tokens, t.completion_tokens);
  return out;
}

RequestTrace trace_of(const Generation& g, int64_t now_ns, bool failed) {
  RequestTrace t;
  t.id = g.id();
  t.traceparent = g.ask().traceparent;
  t.failed = failed;
  t.prepared = g.prepared_ns();
  for (const Choice& choice : g.choices()) {
    t.arrival = earlier(t.arrival, choice.times.arrival);
    t.submitted = earlier(t.submitted, choice.submitted_ns);
    t.planned = earlier(t.planned, choice.times.planned);
    t.scheduled = earlier(t.scheduled, choice.times.scheduled);
    t.first_token = earlier(t.first_token, choice.times.first_token);
    t.finished = std::max(t.finished, choice.times.finished);
    t.completion_tokens += choice.completion_tokens;
    t.interruptions.insert(t.interruptions.end(), choice.interruptions.begin(), choice.interruptions.end());
  }
  if (t.arrival == 0) t.arrival = g.arrival_ns();
  for (const PromptFacts& facts : g.prompts()) t.prompt_tokens += static_cast<int64_t>(facts.ids.size());
  t.ended = now_ns;
  for (int64_t RequestTrace::*stage :
       {&RequestTrace::arrival, &RequestTrace::prepared, &RequestTrace::submitted, &RequestTrace::planned,
        &RequestTrace::scheduled, &RequestTrace::first_token, &RequestTrace::finished, &RequestTrace::ended}) {
    if (t.*stage > 0) t.*stage += g.wall_offset_ns();
  }
  for (engine::Preemption& p : t.interruptions) {
    p.begin += g.wall_offset_ns();
    if (p.end > 0) p.end += g.wall_offset_ns();
  }
  return t;
}

// One line an event, in the order of time: milliseconds since 1970, id, event, stage. What FastDeploy does in a storage
// of blocks, or between servers for prefill and decode, has no place here.
void log_trace(const RequestTrace& t) {
  struct Line {
    int64_t at = 0;
    std::string_view event, stage;
  };
  std::vector<Line> lines = {
      {t.arrival, "PREPROCESSING_START", "PREPROCESSING"},
      {t.prepared, "PREPROCESSING_END", "PREPROCESSING"},
      {t.prepared, "REQUEST_SCHEDULE_START", "SCHEDULE"},
      {t.submitted, "REQUEST_QUEUE_START", "SCHEDULE"},
      {t.planned, "REQUEST_QUEUE_END", "SCHEDULE"},
      {t.planned, "RESOURCE_ALLOCATE_START", "SCHEDULE"},
      {t.prefix_cache ? t.planned : 0, "PREPARE_PREFIX_CACHE_START", "SCHEDULE"},
      {t.prefix_cache ? t.scheduled : 0, "PREPARE_PREFIX_CACHE_END", "SCHEDULE"},
      {t.scheduled, "RESOURCE_ALLOCATE_END", "SCHEDULE"},
      {t.scheduled, "REQUEST_SCHEDULE_END", "SCHEDULE"},
      {t.scheduled, "INFERENCE_START", "PREFILL"},
      {t.first_token, "FIRST_TOKEN_GENERATED", "PREFILL"},
      {t.first_token, "DECODE_START", "DECODE"},
  };
  for (const engine::Preemption& p : t.interruptions) {
    lines.push_back({p.begin, "PREEMPTED", "DECODE"});
    lines.push_back({p.end, "RESCHEDULED_INFERENCE_START", "DECODE"});
  }
  lines.push_back({t.finished, "INFERENCE_END", "DECODE"});
  lines.push_back({t.finished, "POSTPROCESSING_START", "POSTPROCESSING"});
  lines.push_back({t.ended, "POSTPROCESSING_END", "POSTPROCESSING"});
  std::erase_if(lines, [](const Line& line) { return line.at == 0; });
  std::ranges::stable_sort(lines, {}, &Line::at);
  for (const Line& line : lines) {
    TERN_LOG(LogChannel::kTrace, LogLevel::kInfo, "{} {} {} {}", line.at / 1'000'000, t.id, line.event, line.stage);
  }
}

// The request, and its stages below it; "" where the caller records nothing.
std::string spans_json(const RequestTrace& t, const std::function<std::string()>& random_hex) {
  const bool own = t.traceparent.empty();
  if (!own && !is_sampled(t.traceparent)) return {};
  const std::string made = random_hex(), root = random_hex().substr(0, 16);
  const std::string_view trace = own ? std::string_view(made) : trace_id_of(t.traceparent);
  std::string out;
  append_span(out,
              {.trace = trace,
               .id = root,
               .parent = own ? std::string_view() : parent_id_of(t.traceparent),
               .name = "request",
               .kind = 2,
               .begin = t.arrival,
               .end = t.ended},
              attributes_of(t), t.failed);
  const auto stage = [&](std::string_view name, int64_t begin, int64_t end) {
    if (begin == 0) return;
    const std::string id = random_hex().substr(0, 16);
    append_span(
        out, {.trace = trace, .id = id, .parent = root, .name = name, .begin = begin, .end = end > 0 ? end : t.ended},
        {}, t.failed && end == 0);
  };
  stage("receive", t.arrival, t.prepared);
  stage("queue", t.prepared, t.scheduled);
  stage("prefill", t.scheduled, t.first_token);
  stage("decode", t.first_token, t.finished);
  for (const engine::Preemption& p : t.interruptions) stage("preempted", p.begin, p.end > 0 ? p.end : t.finished);
  stage("finish", t.finished, t.ended);
  return out;
}

}  // namespace

void record_trace(const ServeConfig& config, const Generation& generation, bool failed,
                  const std::function<std::string()>& random_hex) {
  if (!config.trace_log && !config.export_spans) return;
  RequestTrace trace = trace_of(generation, monotonic_ns(), failed);
  trace.prefix_cache = config.prefix_cache;
  if (config.trace_log) log_trace(trace);
  if (!config.export_spans) return;
  std::string spans = spans_json(trace, random_hex);
  if (!spans.empty()) config.export_spans(std::move(spans));
}

}  // namespace tern::serve
