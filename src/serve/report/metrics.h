// Prometheus metrics (fastdeploy.md 10.1), written as the Python client writes them. Each I/O thread counts in a shard
// of its own; a scrape adds the shards up.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "content/media/media.h"
#include "engine/request.h"
#include "serve/paddlenlp_config.h"

namespace tern::serve {

class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size() + 1) {}
  void observe(double value, uint64_t times = 1);
  std::span<const double> bounds() const { return bounds_; }
  uint64_t count(size_t bucket) const { return counts_[bucket].load(std::memory_order_relaxed); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::span<const double> bounds_;
  std::vector<std::atomic<uint64_t>> counts_;
  std::atomic<double> sum_{0};
};

enum class Count : uint8_t {
  kRequests,
  kSuccess,
  kPromptTokens,
  kGenerationTokens,
  kPreempted,
  kPrefixTokens,
  kFailed,
  kBadHandshakes,
  kLast
};
enum class Hist : uint8_t {
  kPromptTokens,
  kGenerationTokens,
  kTokenRatio,
  kMaxTokens,
  kTimeToFirst,
  kTimePerToken,
  kEndToEnd,
  kInference,
  kQueue,
  kPrefill,
  kDecode,
  kLast
};

// Written by one thread, read by any.
class MetricsShard {
 public:
  MetricsShard();
  void add(Count count, uint64_t n = 1) { counts_[static_cast<size_t>(count)].fetch_add(n, std::memory_order_relaxed); }
  void observe(Hist hist, double value, uint64_t times = 1) {
    hists_[static_cast<size_t>(hist)]->observe(value, times);
  }
  void set_first_token(double seconds) { first_token_.set(seconds); }
  void set_infer(double seconds) { infer_.set(seconds); }
  // One answered HTTP request; `path` is a route of the table or "other", so the number of series is bounded.
  void http(std::string_view method, std::string_view path, int status, double seconds);

 private:
  friend class Metrics;
  std::atomic<uint64_t> counts_[static_cast<size_t>(Count::kLast)] = {};
  std::vector<std::unique_ptr<Histogram>> hists_;
  // A value, and when it was set: of all shards' the newest is shown.
  struct Latest {
    std::atomic<double> value{0};
    std::atomic<int64_t> set_ns{0};
    void set(double v);
  };
  Latest first_token_, infer_;
  mutable std::mutex http_mutex_;
  std::map<std::tuple<std::string, std::string, int>, uint64_t> http_counts_;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Histogram>> http_times_;
};

class Metrics {
 public:
  // `model_id`: a label of the model's figures; "": they have none.
  Metrics(size_t shards, std::vector<std::pair<std::string, std::string>> cache_config,
          const std::string& model_id = {});
  MetricsShard& shard(size_t i) { return *shards_[i]; }
  // The whole exposition text. `queued`: requests that wait in front of the engine. `media`: null for a model of text.
  // `engines`: of several engines, each one's figures, whose sum `stats` is.
  std::string text(const engine::EngineStats& stats, int queued, const content::MediaStats* media = nullptr,
                   std::span<const engine::EngineStats> engines = {}) const;
  // What the PaddleNLP front's port says. `host_blocks`: of all blocks, those that prompts may take; 0: all.
  std::string paddlenlp_text(const engine::EngineStats& stats, int queued, int host_blocks) const;

 private:
  uint64_t total(Count count) const;
  double latest(MetricsShard::Latest MetricsShard::*of) const;
  void append_histogram(std::string& out, Hist hist, std::string_view name, std::string_view help) const;
  void append_http(std::string& out) const;
  std::string labelled(std::string_view text) const;
  void append_gauges(std::string& out, const engine::EngineStats& stats, int queued) const;
  void append_counters(std::string& out, const engine::EngineStats& stats) const;
  void append_engines(std::string& out, std::span<const engine::EngineStats> engines) const;
  void append_media(std::string& out, const engine::EngineStats& stats, const content::MediaStats& media) const;

  std::vector<std::unique_ptr<MetricsShard>> shards_;
  std::vector<std::pair<std::string, std::string>> cache_config_;
  std::string label_;
  double created_;
};

// Figures of GPUs, as that front's port says them.
void append_gpus(std::string& out, const std::vector<GpuFigures>& gpus);

// A number as Python's client prints it: "1.0", "2.5", "1.7e+09", "+Inf".
void append_sample(std::string& out, double value);

}  // namespace tern::serve
