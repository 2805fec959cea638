// Spans of requests to a collector (OTLP over HTTP, JSON), or to the console. A thread of its own sends them; whoever
// hands spans over never waits, and spans that nobody takes are dropped.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "app/config/settings.h"

namespace tern::app {

class SpanExporter {
 public:
  explicit SpanExporter(const SpanSettings& settings);
  ~SpanExporter();  // sends what waits, for two seconds at most
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Spans of one request: JSON objects with commas between.
  void add(std::string spans);
  // A call's body, or a line of the console.
  static std::string payload(const SpanSettings& settings, std::string_view spans);

 private:
  static constexpr size_t kMostWaiting = 4096;  // requests
  void run();
  std::string take();
  void send(const std::string& spans);

  const SpanSettings settings_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::string> waiting_;
  bool stopping_ = false, sending_ = false;
  bool complained_ = false;  // of the thread: the collector did not answer, and that was said
  std::atomic<int> socket_{-1};
  std::thread thread_;
};

}  // namespace tern::app
