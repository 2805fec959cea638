// `tern bench kernels`: ops by shape, each timed alone and compared with what the device can do.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app/config/device_settings.h"
#include "base/error.h"
#include "device/tensor.h"
#include "ops/linear.h"
#include "ops/rope.h"

namespace tern::bench {

// What this device can do at most, measured in the same run.
struct KernelCeilings {
  double read = 0;     // bytes per second
  double product = 0;  // FLOP per second of a large bfloat16 product
  double launch = 0;   // seconds per empty kernel of a graph; 0: unknown
  std::string read_variant, product_variant;
};
Expected<KernelCeilings> measure_ceilings(app::OpenedDevice& open, double gib, DType type = DType::kBF16);

// One op at one shape, ready to run. Memory belongs to the KernelBencher.
struct KernelCase {
  std::function<Status(int turn)> run;  // `turn` picks the inputs that a step would find outside every cache
  int turns = 1;
  double bytes = 0;  // that memory has to move at least
  double flops = 0;
  device::MeasureRequest peer;  // rows > 0: the vendor's product of this shape
};

struct KernelResult {
  std::string group, shape, kernel;
  double seconds = 0, bytes = 0, flops = 0;
  double ideal = 0;  // seconds by the ceilings: the longer one of moving the bytes and computing the FLOPs
  double peer = 0;   // seconds of the vendor's library; 0: has none
  double ratio() const { return seconds > 0 ? ideal / seconds : 0; }
};

// Device memory with random contents, and the clock.
class KernelBencher {
 public:
  // `cold_bytes`: inputs that take turns cover at least this much, beyond the last cache. `seconds`: of one timing.
  KernelBencher(app::OpenedDevice& open, size_t cold_bytes, double seconds);

  device::Device& device() { return *open_.device; }
  device::Stream stream() { return open_.device->stream(); }
  int turns(double bytes_of_one) const;
  // Zero, or normal values of deviation `sigma`.
  Expected<TensorView> zeros(DType type, int64_t rows, int64_t cols);
  Expected<TensorView> random(DType type, int64_t rows, int64_t cols, float sigma = 1.0f);
  template <class T>
  Expected<T*> values(const std::vector<T>& host) {
    TERN_ASSIGN_OR_RETURN(char* to, bytes(host.data(), host.size() * sizeof(T)));
    return reinterpret_cast<T*>(to);
  }
  Expected<TensorView> ints(const std::vector<int32_t>& host);
  Expected<char*> take(size_t bytes);
  // One with these values, row by row.
  Expected<const ops::PackedWeight*> weight_of(const std::vector<bf16>& rows, int64_t n, int64_t k, const char* format);
  Expected<size_t> weight_bytes(int64_t n, int64_t k, const char* format);
  // `count` weights of the same values in one place.
  Expected<std::span<const ops::PackedWeight>> weights(int64_t count, int64_t n, int64_t k,
                                                       const char* format = "bf16");
  // Lets go of everything that was taken.
  void clear();

  // Seconds per run: by replays of a graph where the device has graphs. The best of several.
  Expected<double> seconds_of(const KernelCase& c);
  std::string kernel() const;

 private:
  Expected<char*> bytes(const void* host, size_t size);
  Status run_turns(const KernelCase& c, int count);
  Status fill(char* to, size_t size, DType type, float sigma);
  Expected<ops::PackedWeight> empty_weight(int64_t n, int64_t k, const char* format);

  app::OpenedDevice& open_;
  size_t cold_bytes_;
  double seconds_;
  std::vector<float> normal_;  // of deviation 1
  std::vector<device::Buffer> memory_;
  std::vector<std::unique_ptr<std::vector<ops::PackedWeight>>> weights_;
};

struct KernelBench {
  std::string group, shape;
  std::function<Expected<KernelCase>(KernelBencher&)> make;
};

// What stands between the QKV product and attention, but for the cache and where q goes.
Expected<ops::QkvPrepareParams> qkv_prepare_params(KernelBencher& bencher, int64_t rows, int heads, int kv_heads,
                                                   int dim);

// The shapes by group. Add a line where a kernel's shape is missing.
std::vector<KernelBench> bench_products();
std::vector<KernelBench> bench_codes();
std::vector<KernelBench> bench_layers();
std::vector<KernelBench> bench_attention();
std::vector<KernelBench> bench_rows();
std::vector<KernelBench> bench_experts();
KernelBench bench_layer_of(const char* format, int tokens);  // of experts in this format, in group "codes"
std::vector<KernelBench> bench_sampling();

Expected<KernelResult> run_kernel_bench(KernelBencher& bencher, const KernelBench& item, const KernelCeilings& ceilings,
                                        const device::CudaLibrary* peers);

}  // namespace tern::bench
