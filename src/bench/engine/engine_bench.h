// What `tern bench latency` and `tern bench throughput` share: the engine that flags of `tern serve` describe, in this
// process and without a server.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "app/config/settings.h"
#include "app/start/offline.h"
#include "app/start/service.h"
#include "app/start/trace_file.h"
#include "base/error.h"
#include "json/json.h"

namespace tern::bench {

// Lets spans of steps through once it is open.
class TraceGate final : public engine::StepTrace {
 public:
  TraceGate(engine::StepTrace& to, bool open) : to_(to), open_(open) {}
  void add(const engine::StepSpan& span) override {
    if (open_) to_.add(span);
  }
  void open() { open_ = true; }

 private:
  engine::StepTrace& to_;
  std::atomic<bool> open_;
};

struct EngineBench {
  app::Settings settings;
  std::unique_ptr<app::TraceFile> trace;  // --trace
  std::unique_ptr<TraceGate> gate;
  app::TextParts text;
  std::unique_ptr<app::Offline> offline;  // uses trace and gate; the engine runs
  int max_model_len() const { return settings.serve.max_model_len; }
};

// `flags`: of `tern serve`; those of its ports are refused, prefix caching is off unless it is asked for. `trace`:
// whether steps are traced from the start. Errors: as the start of a server.
Expected<std::unique_ptr<EngineBench>> load_engine_bench(const std::vector<std::string>& flags, bool trace);

// Makes text of a run's tokens, as a server would.
void detokenize(const EngineBench& bench, const app::OfflineRun& run);

// The published benchmarks' sampling: temperature and top_p of 1.
SamplingParams plain_sampling();

}  // namespace tern::bench
