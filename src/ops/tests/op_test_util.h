// Helpers of the op tests: tensors of seeded random values, and the instruction sets and thread counts to run over.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "device/compute_pool.h"
#include "device/device.h"
#include "kernels/cpu/isa.h"

namespace tern::ops {

inline std::vector<Isa> available_isas() {
  std::vector<Isa> all;
  for (int i = 0; i <= static_cast<int>(detect_isa()); ++i) all.push_back(static_cast<Isa>(i));
  return all;
}

// For tests of many runs: under a sanitizer only the best set, which is what its build is for.
inline std::vector<Isa> isas_for_long_tests() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return {detect_isa()};
#else
  return available_isas();
#endif
}

// Runs the rest of the test with one instruction set and gives the choice back at the end.
class UseIsa {
 public:
  explicit UseIsa(Isa isa) : trace_(__FILE__, __LINE__, isa_name(isa)) { EXPECT_TRUE(set_isa(isa).ok()); }
  ~UseIsa() { (void)set_isa(detect_isa()); }

 private:
  testing::ScopedTrace trace_;
};

// Owns the memory of one tensor; may have longer rows than it shows.
class Values {
 public:
  Values() = default;
  Values(DType type, std::vector<int64_t> dims, int64_t pad = 0) : bytes_(dtype_bytes(type)) {
    view_.dtype = type;
    view_.rank = static_cast<int>(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) view_.dim[i] = dims[i];
    int64_t stride = 1;
    for (int i = view_.rank - 1; i >= 0; --i) {
      view_.stride[i] = stride;
      stride = stride * dims[static_cast<size_t>(i)] + (i == 1 ? pad : 0);
    }
    data_.resize(static_cast<size_t>(stride > 0 ? stride : 1) * bytes_ + 64);
    view_.data = data_.data();
  }
  const TensorView& view() const { return view_; }
  float get(int64_t i, int64_t j = 0, int64_t k = 0) const {
    const size_t at = index(i, j, k);
    if (view_.dtype == DType::kBF16) return to_float(reinterpret_cast<const bf16*>(data_.data())[at]);
    return reinterpret_cast<const float*>(data_.data())[at];
  }
  void set(float v, int64_t i, int64_t j = 0, int64_t k = 0) {
    const size_t at = index(i, j, k);
    if (view_.dtype == DType::kBF16) {
      reinterpret_cast<bf16*>(data_.data())[at] = to_bf16(v);
    } else {
      reinterpret_cast<float*>(data_.data())[at] = v;
    }
  }
  template <class T>
  T& at(int64_t i, int64_t j = 0, int64_t k = 0) {
    return reinterpret_cast<T*>(data_.data())[index(i, j, k)];
  }
  void randomize(uint32_t seed, float scale = 1.0f) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, scale);
    const size_t n = data_.size() / bytes_;
    for (size_t i = 0; i < n; ++i) {
      if (view_.dtype == DType::kBF16) {
        reinterpret_cast<bf16*>(data_.data())[i] = to_bf16(normal(random));
      } else {
        reinterpret_cast<float*>(data_.data())[i] = normal(random);
      }
    }
  }
  std::string row(int64_t i) const {
    int64_t n = 1;
    for (int d = 1; d < view_.rank; ++d) n *= view_.dim[d];
    return std::string(view_.row_bytes(i), static_cast<size_t>(n) * bytes_);
  }

 private:
  size_t index(int64_t i, int64_t j, int64_t k) const {
    return static_cast<size_t>(i * view_.stride[0] + (view_.rank > 1 ? j * view_.stride[1] : 0) +
                               (view_.rank > 2 ? k * view_.stride[2] : 0));
  }
  size_t bytes_ = 4;
  TensorView view_;
  std::vector<char> data_;
};

inline Values random_values(DType type, std::vector<int64_t> dims, uint32_t seed, float scale = 1.0f, int64_t pad = 0) {
  Values v(type, std::move(dims), pad);
  v.randomize(seed, scale);
  return v;
}

template <class T>
Values values_of(DType type, const std::vector<T>& data) {
  Values v(type, {static_cast<int64_t>(data.size())});
  if (!data.empty()) std::memcpy(v.view().data, data.data(), data.size() * sizeof(T));
  return v;
}
inline Values int_values(const std::vector<int32_t>& data) { return values_of(DType::kI32, data); }
inline Values slot_values(const std::vector<int64_t>& data) { return values_of(DType::kI64, data); }

// A pool and the stream over it.
struct Threads {
  explicit Threads(int n) : pool(n, false) {}
  device::Stream stream() { return {device::DeviceKind::kCpu, &pool, nullptr}; }
  device::ComputePool pool;
};

// The largest difference over the largest expected magnitude.
class Worst {
 public:
  void add(double got, double want) {
    EXPECT_FALSE(std::isnan(got));
    top_ = std::max(top_, std::abs(want));
    difference_ = std::max(difference_, std::abs(got - want));
  }
  double relative() const { return top_ > 0 ? difference_ / top_ : difference_; }

 private:
  double top_ = 0, difference_ = 0;
};

// Against a double-precision oracle: float32 results, and results rounded once to bf16.
inline double tolerance(DType type) { return type == DType::kF32 ? 3e-6 : 4.5e-3; }

inline const char* type_name(DType t) { return t == DType::kBF16 ? "bf16" : "f32"; }

}  // namespace tern::ops
