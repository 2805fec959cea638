// Figures of the GPUs, read every two seconds on a thread of its own, so that nobody who asks for them waits.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/nvml.h"
#include "serve/paddlenlp_config.h"

namespace tern::app {

class GpuWatch {
 public:
  // Null where the driver says nothing.
  static std::unique_ptr<GpuWatch> open(const std::string& library = device::Nvml::kLibrary);
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  // The newest; energy counts from open().
  std::vector<serve::GpuFigures> figures() const;

 private:
  explicit GpuWatch(std::unique_ptr<device::Nvml> nvml);
  void run();

  const std::unique_ptr<device::Nvml> nvml_;
  const std::vector<device::GpuReading> first_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<device::GpuReading> newest_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tern::app
