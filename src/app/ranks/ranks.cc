#include "app/ranks/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>

#include "app/ranks/progress.h"
#include "base/log.h"
#include "device/topology.h"

namespace tern::app {
namespace {

// Who asked for how many, as the user wrote it.
std::string asked_by(const RankSettings& ranks) {
  return ranks.optional ? fmt::format("MP_NUM={}", ranks.count) : fmt::format("--tensor-parallel-size {}", ranks.count);
}

// How many ranks run on a CPU where so many are asked for: as many, or one where there are fewer cores.
int cpu_ranks(const RankSettings& ranks, int cores) { return ranks.count <= cores || ranks.forced ? ranks.count : 1; }

// Devices of engines and their ranks lie one behind the other.
DeviceSettings device_of(const DeviceSettings& all, const EngineNumber& engine, int ranks, int rank) {
  DeviceSettings one = all;
  one.cpu.parts = engine.of * ranks;
  one.cpu.part = engine.number * ranks + rank;
  one.cuda.ordinal += engine.number * ranks + rank;
  return one;
}

}  // namespace

Expected<std::unique_ptr<LoadedRanks>> LoadedRanks::open(const Settings& settings, const EngineNumber& engine) {
  auto ranks = std::make_unique<LoadedRanks>();
  const int asked = settings.ranks.count;
  TERN_ASSIGN_OR_RETURN(OpenedDevice first, open_device(device_of(settings.device, engine, asked, 0)));
  if (first.library != nullptr) {
    TERN_RETURN_IF_ERROR(ranks->open_gpus(settings, engine, std::move(first)));
    return ranks;
  }
  const int cores = std::max(1, device::read_cpu_topology().default_threads / engine.of);
  const int count = cpu_ranks(settings.ranks, cores);
  if (count < asked && engine.number == 0) {
    TERN_WARN("{} on {} core{}: one rank runs, with all of them", asked_by(settings.ranks), cores,
              cores == 1 ? "" : "s");
  }
  if (asked == 1) {
    ranks->devices_.push_back(std::move(first));
    return ranks;
  }
  first = {};
  for (int rank = 0; rank < count; ++rank) {
    DeviceSettings one = device_of(settings.device, engine, count, rank);
    one.choice = DeviceChoice::kCpu;
    TERN_ASSIGN_OR_RETURN(OpenedDevice device, open_device(one));
    ranks->devices_.push_back(std::move(device));
  }
  if (count == 1) return ranks;
  ranks->group_ = device::make_cpu_communicators(count, count <= cores);
  TERN_INFO("{} ranks share the model", count);
  return ranks;
}

// `first`: that of rank 0.
Status LoadedRanks::open_gpus(const Settings& settings, const EngineNumber& engine, OpenedDevice first) {
  const device::CudaLibrary& library = *first.library;
  const int asked = settings.ranks.count;
  TERN_ASSIGN_OR_RETURN(const int visible, library.device_count());
  devices_.push_back(std::move(first));
  if (asked == 1) return {};
  DeviceSettings one = device_of(settings.device, engine, asked, asked - 1);
  if (const int needed = one.cuda.ordinal + 1; visible < needed) {
    const std::string gpus = fmt::format("{}: {} GPU{} are needed, the driver shows {}", asked_by(settings.ranks),
                                         needed, needed == 1 ? "" : "s", visible);
    if (!settings.ranks.optional) return make_error(ErrorCode::kInvalidArgument, gpus, "tensor-parallel-size");
    TERN_WARN("{}; one of them does all work, and the answers are the same", gpus);
    return {};
  }
  std::vector<device::Device*> devices = {devices_[0].device.get()};
  for (int rank = 1; rank < asked; ++rank) {
    one = device_of(settings.device, engine, asked, rank);
    one.choice = DeviceChoice::kCuda;
    one.cuda.blas_cache_file.clear();  // the first rank's notes are kept
    TERN_ASSIGN_OR_RETURN(OpenedDevice device, open_device(one));
    devices.push_back(device.device.get());
    devices_.push_back(std::move(device));
  }
  TERN_ASSIGN_OR_RETURN(group_, library.make_communicators(devices));
  TERN_INFO("{} ranks share the model", asked);
  return devices_[0].device->bind_thread();
}

Status LoadedRanks::load(const Settings& settings) {
  SharedProgress progress(count());
  TERN_RETURN_IF_ERROR(read(settings, progress, 0));
  say_formats();
  return {};
}

Status LoadedRanks::read(const Settings& settings, SharedProgress& progress, int first) {
  const int ranks = count();
  std::vector<std::future<Expected<std::unique_ptr<model::Model>>>> loading;
  for (int rank = 0; rank < ranks; ++rank) {
    loading.push_back(std::async(std::launch::async, [&, rank]() -> Expected<std::unique_ptr<model::Model>> {
      device::Device& device = *devices_[static_cast<size_t>(rank)].device;
      model::LoadOptions options = settings.load;
      options.shard = shard(settings, rank);
      options.progress = [&progress, part = first + rank](size_t done, size_t all) {
        progress.update(part, done, all);
      };
      // The thread that loads is the one of the device's pool for as long: pages lie where they are read.
      if (ranks > 1 || engines_ > 1 || device.own_memory()) TERN_RETURN_IF_ERROR(device.bind_thread());
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
  return status;
}

void LoadedRanks::say_formats() const {
  for (const std::string& note : model().info().notes) TERN_WARN("{}", note);
  if (!model().info().formats.empty()) TERN_INFO("weights: {}", model().info().formats);
  TERN_INFO("cache: {}", model().info().cache_format);
  if (devices_[0].device->info().kind != device::DeviceKind::kCpu) return;
  const double huge = device::huge_page_share();
  if (huge >= 0) TERN_INFO("{:.0f} % of this process's memory lies in pages of 2 MiB", 100 * huge);
}

size_t LoadedRanks::weight_bytes() const {
  size_t bytes = 0;
  for (const auto& model : models_) bytes += model->info().weight_bytes;
  return bytes;
}

engine::EnginePart LoadedRanks::part(const vision::Tower* tower) const {
  engine::EnginePart part{{}, group_.get(), tower};
  for (size_t r = 0; r < devices_.size(); ++r) part.ranks.push_back({models_[r].get(), devices_[r].device.get()});
  return part;
}

Expected<std::unique_ptr<engine::Engine>> LoadedRanks::start(const engine::EngineConfig& config,
                                                             const vision::Tower* tower) const {
  return engine::Engine::start(config, part(tower).ranks, group_.get(), tower);
}

}  // namespace tern::app
