// Every op on both sides: the CPU back-end is the oracle, the GPU the candidate. A tensor lives on both.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "device/compute_pool.h"
#include "device/device_cuda.h"
#include "device/tensor.h"
#include "ops/backend.h"

namespace tern::cuda_test {

struct Context {
  const device::CudaLibrary* cuda = nullptr;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::ComputePool> pool;
  device::Stream gpu, cpu;
  std::string label;  // which options the device has
  int passed = 0, failed = 0;
  bool verbose = false;
  bool smallest = false;          // under compute-sanitizer: every kernel, no more rows than it takes
  int rounds = 1;                 // of tests that draw their cases
  int part = 0, parts = 1;        // which of the products, draws and widths this process has
  int turns = 0;                  // those met so far
  std::set<std::string> kernels;  // all that ops said they launched

  // The first `few` of `all` in smallest mode, else all.
  template <class T>
  std::vector<T> pick(std::vector<T> all, size_t few) const {
    if (smallest && all.size() > few) all.erase(all.begin() + static_cast<std::ptrdiff_t>(few), all.end());
    return all;
  }
  // Whether the next product, draw or width is this process's.
  bool own_turn() { return turns++ % parts == part; }
  // Whether the options ask for bits that do not depend on the company, and whether Hopper's own kernels are chosen.
  bool deterministic() const { return label.ends_with("deterministic"); }
  bool hopper() const {
    return device->info().name.find("compute capability 9.0") != std::string::npos && label != "smem-99" &&
           !label.starts_with("portable");
  }
  void report(bool ok, const std::string& name, const std::string& detail);
  // Fails unless the last op chose this kernel.
  void expect_kernel(const std::string& name, const std::string& wanted);
  // Both must succeed; then the GPU is waited for.
  bool both(const std::string& name, const Status& cpu_status, const Status& gpu_status);
};

// Host and device memory of one tensor, rows optionally longer than shown. The host side belongs to the CPU op.
class Mirror {
 public:
  Mirror(Context& c, DType type, std::vector<int64_t> dims, int64_t pad = 0);
  Mirror& random(uint32_t seed, float scale = 1.0f);
  template <class T>
  Mirror& fill(const std::vector<T>& values) {
    T* to = reinterpret_cast<T*>(host_.data());
    for (size_t i = 0; i < values.size(); ++i) to[i] = values[i];
    return copy_to_device();
  }
  Mirror& copy_to_device();                // host to device
  std::vector<char> copy_to_host() const;  // what the device has
  const TensorView& cpu() const { return cpu_; }
  const TensorView& gpu() const { return gpu_; }
  char* host() { return host_.data(); }
  char* device_data() const { return device_.data(); }
  size_t bytes() const { return host_.size(); }
  DType type() const { return cpu_.dtype; }

 private:
  Context& c_;
  std::vector<char> host_;
  device::Buffer device_;
  TensorView cpu_, gpu_;
};

double element(const std::vector<char>& data, DType type, size_t i);
// All elements, padding included: |gpu - cpu| <= tolerance * the largest |cpu|. 0 asks for the same bits.
void compare(Context& c, const std::string& name, const Mirror& m, const char* cpu_data, double tolerance);
inline double tolerance_of(DType t) { return t == DType::kBF16 ? 1.0 / 100 : 2e-5; }

// "name bfloat16 [3, 4096]"
std::string title(const std::string& op, DType t, std::vector<int64_t> dims);

void test_rows(Context&);
void test_norms(Context&);
void test_rope(Context&);
void test_linear(Context&);
void test_large(Context&);
void test_grouped(Context&);
void test_attention(Context&);
void test_attention_bits(Context&);
void test_attention_ranges(Context&);
void test_segments(Context&);
void test_latent(Context&);
void test_moe(Context&);
void test_logits(Context&);
void test_sample(Context&);
void test_thinking(Context&);
void test_logprobs(Context&);
void test_draw_facts(Context&);
void test_device(Context&);
void test_graph(Context&);
void test_chain(Context&);
void test_layer_chain(Context&);
void test_norm_fusion(Context&);
void test_experts(Context&);
void test_codes(Context&);
void test_widened(Context&);
void test_ranks(Context&);

}  // namespace tern::cuda_test
