#include "app/ranks/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <future>
#include <mutex>
#include <numeric>

#include "app/ranks/progress.h"
#include "base/log.h"
#include "device/topology.h"

namespace tern::app {
namespace {

Error gpu_error(const OpenedDevice& open, int count) {
  const auto visible = open.library->device_count();
  if (visible.ok() && *visible < count) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("--tensor-parallel-size {}: the driver shows {} GPU{}", count, *visible, *visible == 1 ? "" : "s"),
        "tensor-parallel-size");
  }
  return make_error(
      ErrorCode::kUnsupported,
      fmt::format("--tensor-parallel-size {}: this build runs one rank on GPUs, several on --device cpu", count),
      "tensor-parallel-size");
}

// What all ranks have read together, for one bar.
class SharedProgress {
 public:
  explicit SharedProgress(int ranks)
      : bar_(::isatty(STDERR_FILENO) == 1), done_(static_cast<size_t>(ranks)), all_(static_cast<size_t>(ranks)) {}
  void update(int rank, size_t done, size_t all) {
    const std::lock_guard lock(mutex_);
    done_[static_cast<size_t>(rank)] = done, all_[static_cast<size_t>(rank)] = all;
    bar_.update(std::accumulate(done_.begin(), done_.end(), size_t{0}),
                std::accumulate(all_.begin(), all_.end(), size_t{0}));
  }

 private:
  std::mutex mutex_;
  Progress bar_;
  std::vector<size_t> done_, all_;
};

// Who asked for how many, as the user wrote it.
std::string asked_by(const RankSettings& ranks) {
  return ranks.optional ? fmt::format("MP_NUM={}", ranks.count) : fmt::format("--tensor-parallel-size {}", ranks.count);
}

// How many ranks run on a CPU where so many are asked for: as many, or one where there are fewer cores.
int cpu_ranks(const RankSettings& ranks, int cores) { return ranks.count <= cores || ranks.forced ? ranks.count : 1; }

}  // namespace

Expected<std::unique_ptr<LoadedRanks>> LoadedRanks::open(const Settings& settings) {
  auto ranks = std::make_unique<LoadedRanks>();
  TERN_ASSIGN_OR_RETURN(OpenedDevice first, open_device(settings.device));
  const int asked = settings.ranks.count;
  const bool gpu = first.library != nullptr;
  if (asked > 1 && gpu && !settings.ranks.optional) return gpu_error(first, asked);
  const int cores = device::read_cpu_topology().default_threads;
  const int count = gpu ? 1 : cpu_ranks(settings.ranks, cores);
  if (count < asked && gpu) {
    TERN_WARN("{}: this build runs one rank on GPUs; one of them does all work, and the answers are the same",
              asked_by(settings.ranks));
  } else if (count < asked) {
    TERN_WARN("{} on {} core{}: one rank runs, with all of them", asked_by(settings.ranks), cores,
              cores == 1 ? "" : "s");
  }
  if (count == 1) {
    ranks->devices_.push_back(std::move(first));
    return ranks;
  }
  first = {};
  DeviceSettings one = settings.device;
  one.choice = DeviceChoice::kCpu;
  one.cpu.parts = count;
  for (one.cpu.part = 0; one.cpu.part < count; ++one.cpu.part) {
    TERN_ASSIGN_OR_RETURN(OpenedDevice device, open_device(one));
    ranks->devices_.push_back(std::move(device));
  }
  ranks->group_ = device::make_cpu_communicators(count, count <= cores);
  TERN_INFO("{} ranks share the model", count);
  return ranks;
}

Status LoadedRanks::load(const Settings& settings) {
  const int ranks = count();
  SharedProgress progress(ranks);
  std::vector<std::future<Expected<std::unique_ptr<model::Model>>>> loading;
  for (int rank = 0; rank < ranks; ++rank) {
    loading.push_back(std::async(std::launch::async, [&, rank]() -> Expected<std::unique_ptr<model::Model>> {
      device::Device& device = *devices_[static_cast<size_t>(rank)].device;
      model::LoadOptions options = settings.load;
      options.shard = {rank, ranks, settings.ranks.expert_parallel};
      options.progress = [&progress, rank](size_t done, size_t all) { progress.update(rank, done, all); };
      // The thread that loads is the one of the device's pool for as long: pages lie where they are read.
      if (ranks > 1) TERN_RETURN_IF_ERROR(device.bind_thread());
      return model::load_model(options, device);
    }));
  }
  Status status;
  for (auto& future : loading) {
    auto loaded = future.get();
    if (!loaded.ok()) {
      if (status.ok()) status = loaded.error();
    } else {
      models_.push_back(std::move(loaded).value());
    }
  }
  TERN_RETURN_IF_ERROR(std::move(status));
  for (const std::string& note : model().info().notes) TERN_WARN("{}", note);
  if (!model().info().formats.empty()) TERN_INFO("weights: {}", model().info().formats);
  TERN_INFO("cache: {}", model().info().cache_format);
  return {};
}

size_t LoadedRanks::weight_bytes() const {
  size_t bytes = 0;
  for (const auto& model : models_) bytes += model->info().weight_bytes;
  return bytes;
}

Expected<std::unique_ptr<engine::Engine>> LoadedRanks::start(const engine::EngineConfig& config,
                                                             const vision::Tower* tower) const {
  std::vector<engine::RankModel> parts;
  for (size_t r = 0; r < devices_.size(); ++r) parts.push_back({models_[r].get(), devices_[r].device.get()});
  return engine::Engine::start(config, parts, group_.get(), tower);
}

}  // namespace tern::app
