// --trace FILE: the steps of the engine as Chrome trace events (a JSON array; Perfetto and chrome://tracing read it).
#pragma once

#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "engine/step_trace.h"

namespace tern::app {

class TraceFile final : public engine::StepTrace {
 public:
  // Spans that may wait for the thread that writes; further ones are dropped and counted.
  static constexpr size_t kWaiting = 16384;
  static constexpr size_t kMostBytes = size_t{1} << 30;  // of the file; it ends there

  // Every one of `engines` is a process of the trace.
  static Expected<std::unique_ptr<TraceFile>> open(const std::string& path, int engines = 1,
                                                   size_t most_bytes = kMostBytes);
  ~TraceFile() override;  // writes what waits and closes the array

  void add(const engine::StepSpan& span) override;
  uint64_t dropped() const;

 private:
  TraceFile(std::FILE* file, int engines, size_t most_bytes);
  void run();
  void write(const std::vector<engine::StepSpan>& spans);
  void put(const std::string& text);

  std::FILE* file_;
  const size_t most_bytes_;
  size_t bytes_ = 0;  // of the writing thread
  int64_t origin_ns_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<engine::StepSpan> waiting_;
  uint64_t dropped_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace tern::app
