#include "app/ranks/engines.h"

#include <fmt/format.h>

#include <future>

#include "app/ranks/progress.h"
#include "base/log.h"
#include "device/topology.h"

namespace tern::app {
namespace {

Status enough_gpus(const OpenedDevice& open, const Settings& settings) {
  const auto visible = open.library->device_count();
  const DataParallelSettings& dp = settings.data_parallel;
  const int ranks = settings.ranks.optional ? 1 : settings.ranks.count;
  const int first = settings.device.cuda.ordinal, wanted = dp.size * ranks;
  if (!visible.ok() || first + wanted <= *visible) return {};
  const std::string behind = first > 0 ? fmt::format(" from cuda:{} on", first) : "";
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("--data-parallel-size {} times --tensor-parallel-size {} takes {} GPUs{}: the driver "
                                "shows {}",
                                dp.size, ranks, wanted, behind, *visible),
                    "data-parallel-size");
}

// The first error of work done side by side.
Status first_error(std::vector<std::future<Status>>& work) {
  Status first;
  for (auto& one : work) {
    Status status = one.get();
    if (first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace

Expected<std::unique_ptr<LoadedEngines>> LoadedEngines::open(const Settings& settings) {
  auto loaded = std::make_unique<LoadedEngines>();
  const DataParallelSettings& dp = settings.data_parallel;
  TERN_ASSIGN_OR_RETURN(auto first, LoadedRanks::open(settings, {dp.first, dp.size}));
  int count = dp.count, size = dp.size;
  if (first->device().library != nullptr) {
    TERN_RETURN_IF_ERROR(enough_gpus(first->device(), settings));
  } else if (const int cores = device::read_cpu_topology().default_threads; count > cores && !settings.ranks.forced) {
    TERN_WARN("--data-parallel-size {} on {} core{}: one engine runs, with all of them", dp.size, cores,
              cores == 1 ? "" : "s");
    count = size = 1;
    TERN_ASSIGN_OR_RETURN(first, LoadedRanks::open(settings));
  }
  loaded->size_ = size;
  loaded->first_ = dp.first;
  loaded->engines_.push_back(std::move(first));
  for (int number = dp.first + 1; number < dp.first + count; ++number) {
    TERN_ASSIGN_OR_RETURN(auto more, LoadedRanks::open(settings, {number, size}));
    loaded->engines_.push_back(std::move(more));
  }
  if (settings.ranks.expert_parallel && size > 1) TERN_RETURN_IF_ERROR(loaded->share_experts(settings));
  for (const auto& engine : loaded->engines_) {
    for (int rank = 0; rank < engine->count(); ++rank) loaded->shards_.push_back(engine->shard(settings, rank));
  }
  if (count > 1) TERN_INFO("{} engines serve the model", count);
  return loaded;
}

Status LoadedEngines::share_experts(const Settings& settings) {
  const int engines = count(), ranks = engines_[0]->count();
  const auto refuse = [](const char* why) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("--enable-expert-parallel with --data-parallel-size deals experts to the ranks of all "
                    "engines, {}; without it every engine has all experts",
                    why),
        "enable-expert-parallel");
  };
  if (engines < settings.data_parallel.size) return refuse("which must be in one process");
  if (engines_[0]->device().library != nullptr) return refuse("which this build does on CPUs alone");
  const bool spin = engines * ranks <= device::read_cpu_topology().default_threads;
  lockstep_ = std::make_unique<engine::Lockstep>(engines, ranks, device::make_cpu_communicators(engines * ranks, spin));
  for (int i = 0; i < engines; ++i) engines_[static_cast<size_t>(i)]->share_experts(i, engines);
  TERN_INFO("{} engines of {} rank{} share the experts", engines, ranks, ranks == 1 ? "" : "s");
  return {};
}

Status LoadedEngines::load(const Settings& settings) {
  if (shares_weights() || count() == 1) {
    TERN_RETURN_IF_ERROR(engines_[0]->load(settings));
    for (size_t i = 1; i < engines_.size(); ++i) engines_[i]->share(*engines_[0]);
    return {};
  }
  const int ranks = engines_[0]->count();
  SharedProgress progress(count() * ranks);
  std::vector<std::future<Status>> loading;
  for (int i = 0; i < count(); ++i) {
    loading.push_back(std::async(
        std::launch::async, [&, i] { return engines_[static_cast<size_t>(i)]->read(settings, progress, i * ranks); }));
  }
  TERN_RETURN_IF_ERROR(first_error(loading));
  engines_[0]->say_formats();
  return {};
}

Status LoadedEngines::load_towers(const Settings& settings, const vision::Tower& first) {
  towers_.assign(engines_.size(), &first);
  if (shares_memory()) return {};
  own_towers_.resize(engines_.size());
  std::vector<std::future<Status>> loading;
  for (size_t i = 1; i < engines_.size(); ++i) {
    loading.push_back(std::async(std::launch::async, [&, i]() -> Status {
      device::Device& device = *engines_[i]->device().device;
      TERN_RETURN_IF_ERROR(device.bind_thread());
      TERN_ASSIGN_OR_RETURN(own_towers_[i], vision::load_tower(settings.load, device));
      towers_[i] = own_towers_[i].get();
      return {};
    }));
  }
  return first_error(loading);
}

std::vector<LoadedEngines::Copy> LoadedEngines::copies() const {
  std::vector<Copy> copies;
  auto shard = shards_.begin();
  for (size_t i = 0; i < engines_.size() && (i == 0 || !shares_weights()); ++i) {
    const engine::EnginePart part = engines_[i]->part(towers_.empty() ? nullptr : towers_[i]);
    for (size_t r = 0; r < part.ranks.size(); ++r) {
      const bool towers = r == 0 && (i == 0 || !shares_memory());
      copies.push_back({part.ranks[r].model, towers ? part.tower : nullptr, part.ranks[r].device, *shard++});
    }
  }
  return copies;
}

size_t LoadedEngines::weight_bytes() const {
  size_t bytes = 0;
  for (const auto& engine : engines_) bytes += engine->weight_bytes();
  return shares_weights() ? bytes / engines_.size() : bytes;
}

Expected<std::unique_ptr<engine::EngineClient>> LoadedEngines::start(const engine::EngineConfig& config) const {
  engine::EngineConfig c = config;
  c.data_parallel.size = size_, c.data_parallel.rank = first_;
  c.data_parallel.lockstep = lockstep_.get();
  std::vector<engine::EnginePart> parts;
  for (size_t i = 0; i < engines_.size(); ++i) {
    parts.push_back(engines_[i]->part(towers_.empty() ? nullptr : towers_[i]));
  }
  return engine::start_engines(c, parts);
}

}  // namespace tern::app
