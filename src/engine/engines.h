// Several engines, each with a copy of the model, as one (--data-parallel-size): a request goes to the engine that has
// most of its prompt cached, then to the one with the least to do (placement.h).
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/error.h"
#include "engine/client.h"
#include "engine/engine.h"
#include "engine/news_signal.h"

namespace tern::engine {

class Engines final : public EngineClient {
 public:
  // `engines`, at least one, give `news` (DataParallel::news, EchoConfig::news).
  // `traces`: theirs, if any.
  Engines(std::vector<std::unique_ptr<EngineClient>> engines, std::shared_ptr<NewsSignal> news,
          std::vector<std::unique_ptr<StepTrace>> traces = {})
      : news_(std::move(news)), traces_(std::move(traces)), engines_(std::move(engines)) {}

  ~Engines() override { shutdown(true); }  // all at once: those that share experts end together

  Status submit(Request request) override;
  void abort(RequestId id) override;
  bool poll(std::vector<Delta>& out, std::chrono::milliseconds timeout) override;
  EngineStats stats() const override;
  std::vector<EngineStats> parts() const override;
  bool healthy() const override;                             // all of them: one that fails ends the process
  std::future<Status> control(ControlOrder order) override;  // by all of them
  void shutdown(bool now) final;

 private:
  const std::shared_ptr<NewsSignal> news_;
  const std::vector<std::unique_ptr<StepTrace>> traces_;
  const std::vector<std::unique_ptr<EngineClient>> engines_;
  std::mutex placing_;  // from a look at the loads to the submission that changes them
};

// One engine's part of start_engines().
struct EnginePart {
  std::vector<RankModel> ranks;
  device::CommunicatorGroup* group = nullptr;  // null: one rank
  const vision::Tower* tower = nullptr;        // likewise none; on the first rank's device
};

// Engine::start() for each part, with an engine in common in front; one part: that engine itself. Engines on devices
// with memory of their own start side by side; others share what the host has. `config.data_parallel` says how many
// engines there are in all and the number of the first part; the rest of it is filled in here.
Expected<std::unique_ptr<EngineClient>> start_engines(const EngineConfig& config, std::span<const EnginePart> parts);

}  // namespace tern::engine
