// What NVIDIA's driver says about the GPUs of this machine, through its library for figures (NVML), which is loaded for
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tern::device {

// What a GPU does not know is left out.
struct GpuReading {
  std::string uuid;
  std::optional<double> utilization;  // 0 to 1
  std::optional<uint64_t> memory_total, memory_used;
  std::optional<double> watts, most_watts, joules;  // the last: since the driver was loaded
};

class Nvml {
 public:
  static constexpr const char* kLibrary = "libnvidia-ml.so.1";
  // Null where there is no such library, or no driver answers it.
  static std::unique_ptr<Nvml> open(const std::string& library = kLibrary);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Takes milliseconds. One reading per GPU.
  std::vector<GpuReading> read() const;

 private:
  struct Calls;
  explicit Nvml(std::unique_ptr<Calls> calls);
  std::unique_ptr<Calls> calls_;
};

}  // namespace tern::device
