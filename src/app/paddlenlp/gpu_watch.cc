#include "app/paddlenlp/gpu_watch.h"

#include <chrono>

#include "base/thread_pool.h"

namespace tern::app {

constexpr std::chrono::seconds kInterval{2};  // the original's

std::unique_ptr<GpuWatch> GpuWatch::open(const std::string& library) {
  auto nvml = device::Nvml::open(library);
  return nvml == nullptr ? nullptr : std::unique_ptr<GpuWatch>(new GpuWatch(std::move(nvml)));
}

GpuWatch::GpuWatch(std::unique_ptr<device::Nvml> nvml)
    : nvml_(std::move(nvml)), first_(nvml_->read()), newest_(first_), thread_([this] { run(); }) {}

GpuWatch::~GpuWatch() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void GpuWatch::run() {
  set_thread_name("gpu-figures");
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kInterval, [this] { return stopping_; })) {
    lock.unlock();
    auto read = nvml_->read();
    lock.lock();
    newest_ = std::move(read);
  }
}

std::vector<serve::GpuFigures> GpuWatch::figures() const {
  std::lock_guard lock(mutex_);
  std::vector<serve::GpuFigures> out;
  for (const device::GpuReading& now : newest_) {
    serve::GpuFigures& f = out.emplace_back();
    f.uuid = now.uuid;
    f.utilization = now.utilization;
    if (now.memory_total) f.memory_total = static_cast<double>(*now.memory_total);
    if (now.memory_used) f.memory_used = static_cast<double>(*now.memory_used);
    f.power_usage = now.watts;
    f.power_limit = now.most_watts;
    for (const device::GpuReading& then : first_) {
      if (then.uuid == now.uuid && then.joules && now.joules) f.energy = *now.joules - *then.joules;
    }
  }
  return out;
}

}  // namespace tern::app
