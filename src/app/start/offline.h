// The engine without a server, for benchmarks: requests in, tokens with their times out.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/config/settings.h"
#include "app/ranks/ranks.h"
#include "engine/engine.h"
#include "model/model.h"

namespace tern::app {

struct OfflinePrompt {
  std::vector<int32_t> ids;
  int new_tokens = 1;  // at most
  bool ignore_eos = true;
};

struct OfflineRun {
  int64_t submitted_ns = 0;       // monotonic
  std::vector<int64_t> token_ns;  // when each token came back
  std::vector<int32_t> tokens;
  int cached_tokens = 0;
};

class Offline {
 public:
  // Opens the device and loads the model; the engine is not started yet, so that ceilings can be measured with nothing
  // else running.
  static Expected<std::unique_ptr<Offline>> load(const Settings& settings);
  device::Device& device() { return *open().device; }
  OpenedDevice& open() { return ranks_->device(); }
  // What a GPU came from; null for a CPU.
  const device::CudaLibrary* cuda() const { return ranks_->device().library; }
  const model::Model& model() const { return ranks_->model(); }

  Status start_engine();
  void stop_engine() { engine_.reset(); }
  // Runs all prompts at once, each for `new_tokens` tokens whatever they are, and waits for them.
  Expected<std::vector<OfflineRun>> run(const std::vector<std::vector<int32_t>>& prompts, int new_tokens,
                                        const SamplingParams& sampling);
  // The same with a number of tokens for each; every run is told when it has ended.
  Expected<std::vector<OfflineRun>> run(const std::vector<OfflinePrompt>& prompts, const SamplingParams& sampling,
                                        const std::function<void(const OfflineRun&)>& ended);

 private:
  Status submit(const OfflinePrompt& prompt, engine::RequestId id, const SamplingParams& sampling, OfflineRun& run);
  explicit Offline(const Settings& settings) : config_(settings.engine) {}
  engine::EngineConfig config_;
  std::unique_ptr<LoadedRanks> ranks_;
  std::unique_ptr<engine::Engine> engine_;
  engine::RequestId next_id_ = 1;
};

}  // namespace tern::app
