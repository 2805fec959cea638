#include "cuda/tests/harness.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

#include "base/bf16.h"

namespace tern::cuda_test {

void Context::report(bool ok, const std::string& name, const std::string& detail) {
  (ok ? passed : failed) += 1;
  if (!ok || verbose) {
    std::printf("%s %s: %s | %s | %s\n", ok ? "pass" : "FAIL", label.c_str(), name.c_str(), cuda->last_kernel(gpu),
                detail.c_str());
    std::fflush(stdout);
  }
}

void Context::expect_kernel(const std::string& name, const std::string& wanted) {
  const std::string got = cuda->last_kernel(gpu);
  if (got != wanted) return report(false, name, "expected the kernel " + wanted);
  kernels.insert(got);
}

bool Context::both(const std::string& name, const Status& cpu_status, const Status& gpu_status) {
  if (!cpu_status.ok()) report(false, name, "CPU: " + cpu_status.error().message);
  if (!gpu_status.ok()) report(false, name, "GPU: " + gpu_status.error().message);
  const Status done = device->synchronize(gpu);
  if (const std::string kernel = cuda->last_kernel(gpu); gpu_status.ok() && kernel != "none") kernels.insert(kernel);
  if (!done.ok()) report(false, name, "GPU: " + done.error().message);
  return cpu_status.ok() && gpu_status.ok() && done.ok();
}

Mirror::Mirror(Context& c, DType type, std::vector<int64_t> dims, int64_t pad) : c_(c) {
  cpu_.dtype = type;
  cpu_.rank = static_cast<int>(dims.size());
  int64_t stride = 1;
  for (int i = cpu_.rank - 1; i >= 0; --i) {
    cpu_.dim[i] = dims[static_cast<size_t>(i)];
    cpu_.stride[i] = stride;
    stride = stride * cpu_.dim[i] + (i == 1 ? pad : 0);
  }
  host_.assign(static_cast<size_t>(stride > 0 ? stride : 1) * dtype_bytes(type), 0);
  auto memory = c.device->allocate(host_.size());
  if (!memory.ok()) {
    std::fprintf(stderr, "%s\n", memory.error().message.c_str());
    std::exit(2);
  }
  device_ = std::move(memory).value();
  gpu_ = cpu_;
  cpu_.data = host_.data(), gpu_.data = device_.data();
}

Mirror& Mirror::random(uint32_t seed, float scale) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  for (size_t i = 0; i < host_.size() / dtype_bytes(cpu_.dtype); ++i) {
    if (cpu_.dtype == DType::kBF16) {
      reinterpret_cast<bf16*>(host_.data())[i] = to_bf16(normal(engine));
    } else {
      reinterpret_cast<float*>(host_.data())[i] = normal(engine);
    }
  }
  return copy_to_device();
}

Mirror& Mirror::copy_to_device() {
  c_.device->copy_to_device(device_.data(), host_.data(), host_.size(), c_.gpu);
  (void)c_.device->synchronize(c_.gpu);
  return *this;
}

std::vector<char> Mirror::copy_to_host() const {
  std::vector<char> data(host_.size());
  c_.device->copy_to_host(data.data(), device_.data(), data.size(), c_.gpu);
  (void)c_.device->synchronize(c_.gpu);
  return data;
}

double element(const std::vector<char>& data, DType type, size_t i) {
  switch (type) {
    case DType::kBF16:
      return static_cast<double>(to_float(reinterpret_cast<const bf16*>(data.data())[i]));
    case DType::kF32:
      return static_cast<double>(reinterpret_cast<const float*>(data.data())[i]);
    case DType::kI32:
      return reinterpret_cast<const int32_t*>(data.data())[i];
    default:
      return data[i];
  }
}

void compare(Context& c, const std::string& name, const Mirror& m, const char* cpu_data, double tolerance) {
  const std::vector<char> want(cpu_data, cpu_data + m.bytes()), got = m.copy_to_host();
  const size_t n = want.size() / dtype_bytes(m.type());
  double top = 0, worst = 0;
  size_t where = 0;
  bool finite = true;
  for (size_t i = 0; i < n; ++i) {
    const double w = element(want, m.type(), i), g = element(got, m.type(), i);
    if (w == g || (std::isnan(w) && std::isnan(g))) continue;
    if (!std::isfinite(w) || !std::isfinite(g)) finite = false, where = i;
    top = std::max(top, std::abs(w));
    if (std::abs(w - g) > worst) worst = std::abs(w - g), where = i;
  }
  for (size_t i = 0; i < n; ++i) {
    if (std::isfinite(element(want, m.type(), i))) top = std::max(top, std::abs(element(want, m.type(), i)));
  }
  const bool ok = finite && (tolerance > 0 ? worst <= tolerance * std::max(top, 1e-30)
                                           : std::memcmp(want.data(), got.data(), want.size()) == 0);
  char text[160];
  std::snprintf(text, sizeof text, "worst %.3g of %.3g at %zu (tolerance %.2g)", worst, top, where, tolerance);
  c.report(ok, name, text);
}

std::string title(const std::string& op, DType t, std::vector<int64_t> dims) {
  std::string text = op + " " + dtype_name(t) + " [";
  for (size_t i = 0; i < dims.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

}  // namespace tern::cuda_test
