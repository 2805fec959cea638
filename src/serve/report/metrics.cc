#include "serve/report/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"

namespace tern::serve {
namespace {

// 1-2-5 steps below 33792, the longest prompt of the original: the limit itself is no bound.
constexpr double kTokenBounds[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000};
constexpr double kRatioBounds[] = {0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100};
constexpr double kFirstBounds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1};
constexpr double kPerTokenBounds[] = {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1};
constexpr double kRequestBounds[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                     30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
constexpr double kHttpBounds[] = {.01, .025, .05, .1, .25, .5, .75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60};

std::span<const double> bounds_of(Hist hist) {
  switch (hist) {
    case Hist::kPromptTokens:
    case Hist::kGenerationTokens:
    case Hist::kMaxTokens:
      return kTokenBounds;
    case Hist::kTokenRatio:
      return kRatioBounds;
    case Hist::kTimeToFirst:
      return kFirstBounds;
    case Hist::kTimePerToken:
      return kPerTokenBounds;
    default:
      return kRequestBounds;
  }
}

void append_head(std::string& out, std::string_view name, std::string_view help, std::string_view type) {
  for (const auto& [word, text] : {std::pair{"# HELP ", help}, std::pair{"# TYPE ", type}}) {
    out += word;
    out += name;
    out += ' ';
    out += text;
    out += '\n';
  }
}

void append_line(std::string& out, std::string_view name, std::string_view labels, double value) {
  out += name;
  out += labels;
  out += ' ';
  append_sample(out, value);
  out += '\n';
}

void append_gauge(std::string& out, std::string_view name, std::string_view help, double value) {
  append_head(out, name, help, "gauge");
  append_line(out, name, {}, value);
}

// `base` without "_total", as the client appends it.
void append_counter(std::string& out, std::string_view base, std::string_view help, double value, double created) {
  const std::string total = std::string(base) + "_total", made = std::string(base) + "_created";
  append_head(out, total, help, "counter");
  append_line(out, total, {}, value);
  append_head(out, made, help, "gauge");
  append_line(out, made, {}, created);
}

std::string escape_label(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

// Buckets, count and sum of one series; `labels` without braces ("" for none).
void append_series(std::string& out, std::string_view name, std::string_view labels, std::span<const double> bounds,
                   const std::vector<uint64_t>& counts, double sum) {
  uint64_t running = 0;
  const std::string_view comma = labels.empty() ? "" : ",";
  for (size_t i = 0; i < counts.size(); ++i) {
    running += counts[i];
    std::string bound;
    append_sample(bound, i < bounds.size() ? bounds[i] : HUGE_VAL);
    append_line(out, fmt::format("{}_bucket{{{}{}le=\"{}\"}}", name, labels, comma, bound), {},
                static_cast<double>(running));
  }
  const std::string braces = labels.empty() ? std::string() : fmt::format("{{{}}}", labels);
  append_line(out, fmt::format("{}_count", name), braces, static_cast<double>(running));
  append_line(out, fmt::format("{}_sum", name), braces, sum);
}

}  // namespace

void append_sample(std::string& out, double value) {
  if (std::isinf(value)) {
    out += value > 0 ? "+Inf" : "-Inf";
    return;
  }
  if (std::isnan(value)) {
    out += "NaN";
    return;
  }
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  const size_t dot = text.find('.');
  if (value <= 0 || dot == std::string::npos || dot <= 6 || text.find('e') != std::string::npos) {
    out += text;
    return;
  }
  // The Python client switches to an exponent from a million on, as Go does.
  std::string mantissa = text.substr(0, 1) + "." + text.substr(1, dot - 1) + text.substr(dot + 1);
  while (mantissa.back() == '0' || mantissa.back() == '.') mantissa.pop_back();
  out += mantissa + "e+0" + std::to_string(dot - 1);
}

void Histogram::observe(double value, uint64_t times) {
  const size_t bucket = static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
  counts_[bucket].fetch_add(times, std::memory_order_relaxed);
  sum_.store(sum_.load(std::memory_order_relaxed) + value * static_cast<double>(times), std::memory_order_relaxed);
}

MetricsShard::MetricsShard() {
  for (size_t i = 0; i < static_cast<size_t>(Hist::kLast); ++i) {
    hists_.push_back(std::make_unique<Histogram>(bounds_of(static_cast<Hist>(i))));
  }
}

void MetricsShard::Latest::set(double v) {
  value.store(v, std::memory_order_relaxed);
  set_ns.store(monotonic_ns(), std::memory_order_release);
}

void MetricsShard::http(std::string_view method, std::string_view path, int status, double seconds) {
  std::lock_guard lock(http_mutex_);
  ++http_counts_[{std::string(method), std::string(path), status}];
  auto& times = http_times_[{std::string(method), std::string(path)}];
  if (!times) times = std::make_unique<Histogram>(kHttpBounds);
  times->observe(seconds);
}

Metrics::Metrics(size_t shards, std::vector<std::pair<std::string, std::string>> cache_config,
                 const std::string& model_id)
    : cache_config_(std::move(cache_config)), created_(wall_seconds()) {
  if (!model_id.empty()) label_ = fmt::format("model_id=\"{}\"", escape_label(model_id));
  for (size_t i = 0; i < shards; ++i) shards_.push_back(std::make_unique<MetricsShard>());
}

uint64_t Metrics::total(Count count) const {
  uint64_t sum = 0;
  for (const auto& s : shards_) sum += s->counts_[static_cast<size_t>(count)].load(std::memory_order_relaxed);
  return sum;
}

double Metrics::latest(MetricsShard::Latest MetricsShard::*of) const {
  int64_t newest = -1;
  double value = 0;
  for (const auto& s : shards_) {
    const MetricsShard::Latest& last = (*s).*of;
    const int64_t at = last.set_ns.load(std::memory_order_acquire);
    if (at > newest) newest = at, value = last.value.load(std::memory_order_relaxed);
  }
  return value;
}

void Metrics::append_histogram(std::string& out, Hist hist, std::string_view name, std::string_view help) const {
  const auto bounds = bounds_of(hist);
  std::vector<uint64_t> counts(bounds.size() + 1);
  double sum = 0;
  for (const auto& s : shards_) {
    const Histogram& h = *s->hists_[static_cast<size_t>(hist)];
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += h.count(i);
    sum += h.sum();
  }
  append_head(out, name, help, "histogram");
  append_series(out, name, {}, bounds, counts, sum);
  const std::string made = std::string(name) + "_created";
  append_head(out, made, help, "gauge");
  append_line(out, made, {}, created_);
}

void Metrics::append_http(std::string& out) const {
  std::map<std::tuple<std::string, std::string, int>, uint64_t> counts;
  std::map<std::pair<std::string, std::string>, std::pair<std::vector<uint64_t>, double>> times;
  for (const auto& s : shards_) {
    std::lock_guard lock(s->http_mutex_);
    for (const auto& [key, n] : s->http_counts_) counts[key] += n;
    for (const auto& [key, h] : s->http_times_) {
      auto& [buckets, sum] = times[key];
      buckets.resize(std::size(kHttpBounds) + 1);
      for (size_t i = 0; i < buckets.size(); ++i) buckets[i] += h->count(i);
      sum += h->sum();
    }
  }
  const auto labels_of = [](const std::string& method, const std::string& path) {
    return fmt::format("method=\"{}\",path=\"{}\"", method, escape_label(path));
  };
  append_head(out, "http_requests_total", "Total number of HTTP requests", "counter");
  for (const auto& [key, n] : counts) {
    const auto& [method, path, status] = key;
    append_line(out, fmt::format("http_requests_total{{{},status_code=\"{}\"}}", labels_of(method, path), status), {},
                static_cast<double>(n));
  }
  append_head(out, "http_request_duration_seconds", "Duration of HTTP requests in seconds", "histogram");
  for (const auto& [key, value] : times) {
    append_series(out, "http_request_duration_seconds", labels_of(key.first, key.second), kHttpBounds, value.first,
                  value.second);
  }
}

void Metrics::append_gauges(std::string& out, const engine::EngineStats& s, int queued) const {
  const auto ratio = [](double a, double b) { return b > 0 ? a / b : 0.0; };
  // A block that only the prefix cache holds can be taken by the next request: it is available, not used.
  const double blocks = s.total_blocks, available = s.usable_blocks;
  append_gauge(out, "fastdeploy:num_requests_running", "Number of requests currently running", s.running);
  append_gauge(out, "fastdeploy:num_requests_waiting", "Number of requests currently waiting", s.waiting);
  append_gauge(out, "fastdeploy:num_requests_enqueued", "Number of requests waiting in front of the engine", queued);
  append_gauge(out, "fastdeploy:num_requests_preempted", "Number of requests preempted now", s.preempted_waiting);
  append_gauge(out, "fastdeploy:gpu_cache_usage_perc", "KV cache usage. 1 means 100 percent usage",
               ratio(blocks - available, blocks));
  append_gauge(out, "fastdeploy:available_gpu_block_num",
               "Number of cache blocks a request can take, with those that only the prefix cache holds", available);
  append_gauge(out, "fastdeploy:free_gpu_block_num", "Number of cache blocks that hold nothing", s.free_blocks);
  append_gauge(out, "fastdeploy:max_gpu_block_num", "Number of cache blocks", s.total_blocks);
  append_gauge(out, "fastdeploy:max_cpu_block_num", "Number of cache blocks in host memory", 0);
  append_gauge(out, "fastdeploy:available_gpu_resource", "Available cache blocks over all cache blocks",
               ratio(available, blocks));
  append_gauge(out, "fastdeploy:batch_size", "Number of sequences in the batch", s.running);
  append_gauge(out, "fastdeploy:max_batch_size", "Largest number of sequences in a batch", s.max_num_seqs);
  append_gauge(out, "fastdeploy:available_batch_size", "Free places in the batch",
               std::max(0, s.max_num_seqs - s.running));
  const double hit_tokens =
      ratio(static_cast<double>(s.prefix_hit_tokens), static_cast<double>(s.prefix_lookup_tokens));
  append_gauge(out, "fastdeploy:hit_req_rate", "Share of requests with a prefix cache hit",
               ratio(static_cast<double>(s.prefix_hits), static_cast<double>(s.prefix_lookups)));
  append_gauge(out, "fastdeploy:hit_token_rate", "Share of prompt tokens from the prefix cache", hit_tokens);
  append_gauge(out, "fastdeploy:gpu_hit_token_rate", "Share of prompt tokens from the device's prefix cache",
               hit_tokens);
  append_gauge(out, "fastdeploy:cpu_hit_token_rate", "Share of prompt tokens from the host's prefix cache", 0);
  append_gauge(out, "fastdeploy:first_token_latency", "Latest time to first token in seconds",
               latest(&MetricsShard::first_token_));
  append_gauge(out, "fastdeploy:infer_latency", "Latest time to generate one token in seconds",
               latest(&MetricsShard::infer_));
  if (cache_config_.empty()) return;
  append_head(out, "fastdeploy:cache_config_info", "Information of the engine's CacheConfig", "gauge");
  std::string labels;
  for (const auto& [key, value] : cache_config_) {
    labels += fmt::format("{}{}=\"{}\"", labels.empty() ? "{" : ",", key, escape_label(value));
  }
  labels += '}';
  append_line(out, "fastdeploy:cache_config_info", labels, 1);
}

void Metrics::append_counters(std::string& out, const engine::EngineStats& s) const {
  const auto counter = [&](std::string_view base, std::string_view help, uint64_t value) {
    append_counter(out, base, help, static_cast<double>(value), created_);
  };
  counter("fastdeploy:requests_number", "Total number of requests received", total(Count::kRequests));
  counter("fastdeploy:request_success", "Total number of successfully processed requests", total(Count::kSuccess));
  counter("fastdeploy:request_preempted", "Total number of preemptions", s.preemptions);
  counter("fastdeploy:prompt_tokens", "Total number of prompt tokens processed", total(Count::kPromptTokens));
  counter("fastdeploy:generation_tokens", "Total number of generation tokens", total(Count::kGenerationTokens));
  counter("fastdeploy:prefix_cache_token_num", "Total number of cached tokens", s.prefix_hit_tokens);
  counter("fastdeploy:prefix_gpu_cache_token_num", "Total number of tokens cached on the device", s.prefix_hit_tokens);
  counter("fastdeploy:prefix_cpu_cache_token_num", "Total number of tokens cached in host memory", 0);
  counter("fastdeploy:prefix_storage_cache_token_num", "Total number of tokens cached in storage", 0);
  // The original has no figures of steps: these names are ours.
  counter("tern:steps", "Total number of steps of the engine", s.steps);
  counter("tern:graph_steps", "Total number of steps whose forward pass was a replayed graph", s.graph_steps);
  counter("tern:tls_handshakes_failed", "Total number of TLS handshakes that failed", total(Count::kBadHandshakes));
  counter("tern:late_allocations", "Total number of device allocations after the start", s.late_allocations);
}

// The original has a server, and thus a page, for each engine: these names are ours.
void Metrics::append_engines(std::string& out, std::span<const engine::EngineStats> engines) const {
  const auto family = [&](const std::string& name, std::string_view help, std::string_view type, const auto& value) {
    append_head(out, name, help, type);
    for (size_t i = 0; i < engines.size(); ++i) {
      append_line(out, name, fmt::format("{{engine=\"{}\"}}", i), static_cast<double>(value(engines[i])));
    }
  };
  using engine::EngineStats;
  family("tern:engine_requests_running", "Number of requests currently running, by engine", "gauge",
         [](const EngineStats& s) { return s.running; });
  family("tern:engine_requests_waiting", "Number of requests currently waiting, by engine", "gauge",
         [](const EngineStats& s) { return s.waiting + s.preempted_waiting; });
  family("tern:engine_open_tokens", "Known tokens of all open requests, by engine", "gauge",
         [](const EngineStats& s) { return s.open_tokens; });
  family("tern:engine_available_block_num", "Number of cache blocks a request can take, by engine", "gauge",
         [](const EngineStats& s) { return s.usable_blocks; });
  family("tern:engine_steps_total", "Total number of steps, by engine", "counter",
         [](const EngineStats& s) { return s.steps; });
  family("tern:engine_generation_tokens_total", "Total number of generation tokens, by engine", "counter",
         [](const EngineStats& s) { return s.generated_tokens; });
  family("tern:engine_prefix_cache_token_num_total", "Total number of cached tokens, by engine", "counter",
         [](const EngineStats& s) { return s.prefix_hit_tokens; });
}

// The original has no figures of pictures: these names are ours.
void Metrics::append_media(std::string& out, const engine::EngineStats& s, const content::MediaStats& m) const {
  const auto counter = [&](std::string_view base, std::string_view help, double value) {
    append_counter(out, base, help, value, created_);
  };
  const auto count = [&](std::string_view base, std::string_view help, uint64_t value) {
    counter(base, help, static_cast<double>(value));
  };
  const auto milliseconds = [&](std::string_view base, std::string_view help, uint64_t ns) {
    counter(base, help, static_cast<double>(ns) * 1e-6);
  };
  count("tern:images", "Total number of pictures prepared", m.images);
  count("tern:videos", "Total number of videos prepared", m.videos);
  count("tern:media_failed", "Total number of pictures and videos that could not be prepared", m.failed);
  milliseconds("tern:media_fetch_milliseconds", "Time spent fetching media, all threads together", m.fetch_ns);
  milliseconds("tern:media_decode_milliseconds", "Time spent decoding media, all threads together", m.decode_ns);
  milliseconds("tern:media_preprocess_milliseconds", "Time spent resizing media and cutting patches", m.prepare_ns);
  count("tern:processor_cache_lookups", "Media looked for in the processor cache", m.cache_lookups);
  count("tern:processor_cache_hits", "Media found in the processor cache", m.cache_hits);
  milliseconds("tern:vision_tower_milliseconds", "Time spent in the vision tower", s.tower_ns);
  count("tern:vision_tower_calls", "Calls of the vision tower", s.tower_calls);
  count("tern:vision_tower_items", "Pictures and pairs of video frames encoded", s.tower_items);
  count("tern:vision_tower_patches", "Patches encoded", s.tower_patches);
  count("tern:encoder_cache_lookups", "Items looked for in the cache of encoder outputs", s.encoder_lookups);
  count("tern:encoder_cache_hits", "Items found in the cache of encoder outputs", s.encoder_hits);
  append_gauge(out, "tern:media_waiting", "Requests whose media wait for their turn", static_cast<double>(m.waiting));
  append_gauge(out, "tern:media_bytes", "Bytes of decoded media and patches held", static_cast<double>(m.bytes_in_use));
  append_gauge(out, "tern:processor_cache_bytes", "Bytes in the processor cache", static_cast<double>(m.cache_bytes));
  append_gauge(out, "tern:processor_cache_items", "Media in the processor cache", static_cast<double>(m.cache_items));
}

std::string Metrics::text(const engine::EngineStats& stats, int queued, const content::MediaStats* media,
                          std::span<const engine::EngineStats> engines) const {
  std::string out;
  out.reserve(32u << 10);
  append_gauges(out, stats, queued);
  append_counters(out, stats);
  if (engines.size() > 1) append_engines(out, engines);
  if (media != nullptr) append_media(out, stats, *media);
  append_histogram(out, Hist::kPromptTokens, "fastdeploy:request_prompt_tokens", "Number of prefill tokens processed");
  append_histogram(out, Hist::kGenerationTokens, "fastdeploy:request_generation_tokens",
                   "Number of generation tokens processed");
  append_histogram(out, Hist::kTokenRatio, "fastdeploy:request_token_ratio", "Ratio of prompt to generation tokens");
  append_histogram(out, Hist::kMaxTokens, "fastdeploy:request_params_max_tokens",
                   "Histogram of max_tokens of requests");
  append_histogram(out, Hist::kTimeToFirst, "fastdeploy:time_to_first_token_seconds", "Time to first token in seconds");
  append_histogram(out, Hist::kTimePerToken, "fastdeploy:time_per_output_token_seconds",
                   "Time per output token in seconds");
  append_histogram(out, Hist::kEndToEnd, "fastdeploy:e2e_request_latency_seconds",
                   "End to end request latency in seconds");
  append_histogram(out, Hist::kInference, "fastdeploy:request_inference_time_seconds", "Time spent in RUNNING phase");
  append_histogram(out, Hist::kQueue, "fastdeploy:request_queue_time_seconds", "Time spent in WAITING phase");
  append_histogram(out, Hist::kPrefill, "fastdeploy:request_prefill_time_seconds", "Time spent in PREFILL phase");
  append_histogram(out, Hist::kDecode, "fastdeploy:request_decode_time_seconds", "Time spent in DECODE phase");
  append_http(out);
  return label_.empty() ? out : labelled(out);
}

// Every figure of the model with its label.
std::string Metrics::labelled(std::string_view text) const {
  std::string out;
  out.reserve(text.size() * 2);
  while (!text.empty()) {
    const size_t end = text.find('\n') + 1;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    if (!line.starts_with("fastdeploy:") && !line.starts_with("tern:")) {
      out += line;
      continue;
    }
    const size_t name = line.find_first_of("{ ");
    const bool more = line[name] == '{';
    out.append(line.substr(0, name)).append("{").append(label_).append(more ? "," : "}");
    out += line.substr(more ? name + 1 : name);
  }
  return out;
}

}  // namespace tern::serve
