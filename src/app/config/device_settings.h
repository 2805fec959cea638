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
  std::string cpu_isa;                    // TERN_CPU_ISA
  device::CudaOptions cuda;               // ordinal: of cuda:N
  std::vector<std::string> cuda_folders;  // searched first for libtern_cuda.so (TERN_CUDA_LIBRARY)
};

// `device` is auto, cpu, cuda or cuda:N; anything else is kInvalidArgument.
Expected<DeviceSettings> device_settings(std::string_view device, const device::CpuOptions& cpu,
                                         const Environment& environment);

struct OpenedDevice {
  std::unique_ptr<device::Device> device;
  const device::CudaLibrary* library = nullptr;  // the one that made the device; null for a CPU
  bool deterministic = true;  // results do not depend on the batch, bit for bit: a CPU, or FD_DETERMINISTIC_MODE
};

// How a GPU is looked for; tests replace these.
struct CudaMachine {
  std::function<Expected<const device::CudaLibrary*>(const std::vector<std::string>&)> load = device::load_cuda_library;
  std::function<bool()> shows_gpu;  // whether an NVIDIA driver seems installed; empty: look in /proc and /dev
};

// cuda: a GPU, or an error of one line. auto: the first GPU when library, driver and GPU are there, else the CPU, with
// one line in the log that says why when any of the three seems to be there.
Expected<OpenedDevice> open_device(const DeviceSettings& settings, const CudaMachine& machine = {});

// Saves the cuBLASLt algorithms found in this run (CudaOptions::blas_cache_file); a failure is only logged.
void keep_learned(const OpenedDevice& open);

}  // namespace tern::app
