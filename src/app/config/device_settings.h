// Which device computes: --device, and what the environment says about GPUs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app/flags/environment.h"
#include "base/error.h"
#include "device/device.h"
#include "device/device_cuda.h"

namespace tern::app {

enum class DeviceChoice : uint8_t { kAuto, kCpu, kCuda };

struct DeviceSettings {
  DeviceChoice choice = DeviceChoice::kAuto;
  device::CpuOptions cpu;
  std::string cpu_isa;               // TERN_CPU_ISA
  device::CudaOptions cuda;          // ordinal: of cuda:N
  std::vector<std::string> folders;  // TERN_CUDA_LIBRARY
};

// `device` is auto, cpu, cuda or cuda:N; anything else is kInvalidArgument.
Expected<DeviceSettings> device_settings(std::string_view device, const device::CpuOptions& cpu,
                                         const Environment& environment);

struct OpenDevice {
  std::unique_ptr<device::Device> device;
  const device::CudaLibrary* cuda = nullptr;  // what a GPU came from; null for a CPU
  bool deterministic = true;                  // bits do not depend on the batch: a CPU, or FD_DETERMINISTIC_MODE
};

// What the machine shows; tests put their own in its place.
struct CudaMachine {
  std::function<Expected<const device::CudaLibrary*>(const std::vector<std::string>&)> load = device::load_cuda_library;
  std::function<bool()> shows_gpu;  // a driver has left its mark; empty: looks for it
};

// cuda: a GPU, or an error of one line. auto: the first GPU when library, driver and GPU are there, else the CPU, with
// one line in the log that says why when any of the three seems to be there.
Expected<OpenDevice> open_device(const DeviceSettings& settings, const CudaMachine& machine = {});

// Keeps what a GPU's library has learned about products (CudaOptions::blas_cache_file); never an error.
void keep_learned(const OpenDevice& open);

}  // namespace tern::app
