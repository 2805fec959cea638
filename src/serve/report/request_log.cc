#include "serve/report/request_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/clock.h"
#include "base/log.h"
#include "json/json.h"
#include "serve/openai/writers/make_writer.h"

namespace tern::serve {
namespace {

// Quoted: what a client sends cannot look like another line.
std::string quoted(std::string_view text) {
  std::string out;
  json::append_quoted(out, text);
  return out;
}

double seconds(int64_t from_ns, int64_t to_ns) {
  return from_ns > 0 && to_ns > from_ns ? static_cast<double>(to_ns - from_ns) * 1e-9 : 0.0;
}

}  // namespace

std::string_view shown_part(const ServeConfig& config, std::string_view text) {
  if (!logs(config, RequestLogLevel::kContent)) return {};
  return text.substr(0, logs(config, RequestLogLevel::kFull) ? kMostLogged : config.log_max_len);
}

void log_received(const ServeConfig& config, const Generation& generation, std::string_view shown_body) {
  if (!logs(config, RequestLogLevel::kLifecycle)) return;
  const auto& ask = generation.ask();
  int64_t prompt = 0, items = 0;
  for (const auto& p : generation.prompts()) {
    prompt += static_cast<int64_t>(p.ids.size());
    items += static_cast<int64_t>(p.media.size());
  }
  const std::string media = items > 0 ? fmt::format(", media {}", items) : std::string();
  TERN_LOG(LogChannel::kRequest, LogLevel::kInfo,
           "Receive request {}: prompt tokens {}{}, n {}, stream {}, max_tokens {}", generation.id(), prompt, media,
           ask.n, ask.stream, ask.max_tokens.value_or(-1));
  if (logs(config, RequestLogLevel::kContent))
    TERN_LOG(LogChannel::kRequest, LogLevel::kInfo, "Request {}: body {}", generation.id(), quoted(shown_body));
}

void log_refused(const ServeConfig& config, const Error& error) {
  if (!logs(config, RequestLogLevel::kLifecycle)) return;
  const std::string where = error.param.empty() ? "" : fmt::format(" ({})", error.param);
  TERN_LOG(LogChannel::kRequest, LogLevel::kInfo, "Refuse request: {}{}", quoted(error.message), where);
}

void log_failed(const ServeConfig& config, const std::string& id, const Error& error) {
  if (logs(config, RequestLogLevel::kLifecycle))
    TERN_LOG(LogChannel::kRequest, LogLevel::kInfo, "Request {} failed: {}", id, quoted(error.message));
}

void log_left(const ServeConfig& config, const std::string& id) {
  if (logs(config, RequestLogLevel::kLifecycle))
    TERN_LOG(LogChannel::kRequest, LogLevel::kInfo, "Request {} aborted: its client has gone", id);
}

void log_stage(const ServeConfig& config, const std::string& id, std::string_view what) {
  if (logs(config, RequestLogLevel::kStages))
    TERN_LOG(LogChannel::kRequest, LogLevel::kInfo, "Request {} {}", id, what);
}

void log_submitted(const ServeConfig& config, const std::string& id, const engine::Request& request) {
  if (!logs(config, RequestLogLevel::kContent)) return;
  const SamplingParams& s = request.sampling;
  TERN_LOG(LogChannel::kRequest, LogLevel::kInfo,
           "Request {} goes to the engine: prompt tokens {}, max_tokens {}, min_tokens {}, temperature {}, top_p {}, "
           "top_k {}, "
           "min_p {}, repetition_penalty {}, frequency_penalty {}, presence_penalty {}, seed {}",
           id, request.prompt.size(), request.max_tokens, s.min_tokens, s.temperature, s.top_p, s.top_k, s.min_p,
           s.repetition_penalty, s.frequency_penalty, s.presence_penalty, s.seed);
}

void log_chunk(const ServeConfig& config, const std::string& id, std::string_view events, bool first, bool last) {
  if (first && logs(config, RequestLogLevel::kLifecycle))
    TERN_LOG(LogChannel::kRequest, LogLevel::kInfo, "Request {}: first chunk", id);
  if (!events.empty() && logs(config, RequestLogLevel::kContent))
    TERN_LOG(LogChannel::kRequest, LogLevel::kInfo, "Request {}: chunk {}", id, quoted(shown_part(config, events)));
  if (last && logs(config, RequestLogLevel::kLifecycle))
    TERN_LOG(LogChannel::kRequest, LogLevel::kInfo, "Request {}: last chunk", id);
}

void log_answer(const ServeConfig& config, const std::string& id, std::string_view body) {
  if (logs(config, RequestLogLevel::kContent))
    TERN_LOG(LogChannel::kRequest, LogLevel::kInfo, "Request {}: answer {}", id, quoted(shown_part(config, body)));
}

void log_finished(const ServeConfig& config, const Generation& generation, const Choice& choice) {
  if (!logs(config, RequestLogLevel::kLifecycle)) return;
  const auto& t = choice.times;
  const int64_t end = t.finished > 0 ? t.finished : monotonic_ns();
  TERN_LOG(LogChannel::kRequest, LogLevel::kInfo,
           "Request {}_{} finished: InputToken {}, OutputToken {}, cached tokens {}, reason {}, latency {:.3f} s",
           generation.id(), choice.index, generation.prompt_tokens(choice), choice.completion_tokens,
           choice.cached_tokens, openai::finish_name(choice), seconds(t.arrival, end));
  if (!logs(config, RequestLogLevel::kStages)) return;
  TERN_LOG(LogChannel::kRequest, LogLevel::kInfo, "Request {}_{}: queue {:.3f} s, prefill {:.3f} s, decode {:.3f} s",
           generation.id(), choice.index, seconds(t.arrival, t.scheduled), seconds(t.scheduled, t.first_token),
           seconds(t.first_token, end));
}

void log_entropy(const Generation& generation, const Choice& choice) {
  const std::vector<float>& all = choice.entropies;
  if (all.empty()) return;
  constexpr size_t kOfLine = 128;  // values: long answers have several lines
  for (size_t begin = 0; begin < all.size(); begin += kOfLine) {
    const size_t end = std::min(all.size(), begin + kOfLine);
    std::string values;
    for (size_t i = begin; i < end; ++i) fmt::format_to(std::back_inserter(values), " {:.5f}", all[i]);
    TERN_LOG(LogChannel::kRequest, LogLevel::kInfo, "Request {}_{}: entropy of tokens {} to {}:{}", generation.id(),
             choice.index, begin, end - 1, values);
  }
  TERN_LOG(LogChannel::kRequest, LogLevel::kInfo, "Request {}_{}: entropy {:.5f} on average of {} tokens",
           generation.id(), choice.index,
           std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size()), all.size());
}

}  // namespace tern::serve
