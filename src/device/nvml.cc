#include "device/nvml.h"

#include <dlfcn.h>

namespace tern::device {
namespace {

// The part of NVML's interface that is used, whose layout NVIDIA keeps (nvml.h).
using Gpu = struct GpuHandle*;
struct Utilization {
  unsigned gpu, memory;  // percent
};
struct Memory {
  unsigned long long total, free, used;
};
constexpr unsigned kUuidBytes = 96;

template <class F>
bool find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

struct Nvml::Calls {
  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, Gpu*) = nullptr;
  int (*uuid)(Gpu, char*, unsigned) = nullptr;
  int (*utilization)(Gpu, Utilization*) = nullptr;
  int (*memory)(Gpu, Memory*) = nullptr;
  int (*milliwatts)(Gpu, unsigned*) = nullptr;
  int (*most_milliwatts)(Gpu, unsigned*) = nullptr;
  int (*millijoules)(Gpu, unsigned long long*) = nullptr;

  bool load(const std::string& path) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    return library != nullptr && find(library, "nvmlInit_v2", init) && find(library, "nvmlShutdown", shutdown) &&
           find(library, "nvmlDeviceGetCount_v2", count) && find(library, "nvmlDeviceGetHandleByIndex_v2", handle) &&
           find(library, "nvmlDeviceGetUUID", uuid) && find(library, "nvmlDeviceGetUtilizationRates", utilization) &&
           find(library, "nvmlDeviceGetMemoryInfo", memory) && find(library, "nvmlDeviceGetPowerUsage", milliwatts) &&
           find(library, "nvmlDeviceGetEnforcedPowerLimit", most_milliwatts) &&
           find(library, "nvmlDeviceGetTotalEnergyConsumption", millijoules);
  }
  ~Calls() {
    if (library != nullptr) dlclose(library);
  }
};

std::unique_ptr<Nvml> Nvml::open(const std::string& library) {
  auto calls = std::make_unique<Calls>();
  if (!calls->load(library) || calls->init() != 0) return nullptr;
  return std::unique_ptr<Nvml>(new Nvml(std::move(calls)));
}

Nvml::Nvml(std::unique_ptr<Calls> calls) : calls_(std::move(calls)) {}
Nvml::~Nvml() { calls_->shutdown(); }

std::vector<GpuReading> Nvml::read() const {
  std::vector<GpuReading> out;
  unsigned count = 0;
  if (calls_->count(&count) != 0) return out;
  for (unsigned i = 0; i < count; ++i) {
    Gpu gpu = nullptr;
    char uuid[kUuidBytes] = {};
    if (calls_->handle(i, &gpu) != 0 || calls_->uuid(gpu, uuid, kUuidBytes) != 0) continue;
    GpuReading& r = out.emplace_back();
    r.uuid = uuid;
    Utilization utilization{};
    Memory memory{};
    unsigned milliwatts = 0;
    unsigned long long millijoules = 0;
    if (calls_->utilization(gpu, &utilization) == 0) r.utilization = utilization.gpu / 100.0;
    if (calls_->memory(gpu, &memory) == 0) r.memory_total = memory.total, r.memory_used = memory.used;
    if (calls_->milliwatts(gpu, &milliwatts) == 0) r.watts = milliwatts / 1e3;
    if (calls_->most_milliwatts(gpu, &milliwatts) == 0) r.most_watts = milliwatts / 1e3;
    if (calls_->millijoules(gpu, &millijoules) == 0) r.joules = static_cast<double>(millijoules) / 1e3;
  }
  return out;
}

}  // namespace tern::device
