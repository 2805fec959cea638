#include "kernels/cpu/ceilings/ceilings.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "device/compute_pool.h"
#include "kernels/cpu/ceilings/ceiling_kernels.h"
#include "kernels/cpu/isa.h"

namespace tern::kernels {
namespace {

std::atomic<uint64_t> g_sink{0};  // results go here, so that no loop is dropped

uint64_t read_words(const void* data, int64_t bytes) {
  const auto* p = static_cast<const char*>(data);
  uint64_t sum = 0;
  for (int64_t i = 0; i < bytes; i += 8) {
    uint64_t v;
    std::memcpy(&v, p + i, sizeof v);
    sum += v;
  }
  return sum;
}

float multiply_add(int64_t iterations) {
  float acc[8] = {};
  volatile float seed = 0.5f;
  const float x = seed;
  for (int64_t n = 0; n < iterations; ++n) {
    for (float& a : acc) a += x * a;
  }
  float sum = 0.0f;
  for (const float a : acc) sum += a;
  return sum;
}

const ReadVariant kScalarReads[] = {{"64-bit words, one stream", read_words}};
const DotVariant kScalarF32[] = {{"8 sums", multiply_add, 16}};
CeilingSet ceilings_scalar() { return {kScalarReads, 1, nullptr, 0, kScalarF32, 1}; }

std::vector<CeilingSet> sets() {
  std::vector<CeilingSet> all{ceilings_scalar()};
  const Isa isa = active_isa();
  if (isa >= Isa::kAvx2) all.push_back(ceilings_avx2());
  if (isa >= Isa::kAvx512) all.push_back(ceilings_avx512());
  if (isa >= Isa::kAvx512Bf16) all.push_back(ceilings_avx512bf16());
  return all;
}

class Pages {
 public:
  Pages(size_t bytes, bool huge) : bytes_(bytes) {
    void* p = mmap(nullptr, bytes + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return;
    map_ = p;
    const auto at = (reinterpret_cast<uintptr_t>(p) + kHuge - 1) / kHuge * kHuge;
    data_ = reinterpret_cast<char*>(at);
    (void)madvise(data_, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
  ~Pages() {
    if (map_ != nullptr) munmap(map_, bytes_ + kHuge);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  char* data() const { return data_; }

 private:
  static constexpr size_t kHuge = size_t{2} << 20;
  size_t bytes_;
  void* map_ = nullptr;
  char* data_ = nullptr;
};

double dot_gflops(device::ComputePool& pool, const DotVariant& v, const CeilingOptions& options) {
  const int threads = pool.threads();
  int64_t iterations = 1000;
  double best = 0;
  // The first runs only find how many iterations fill the time.
  for (int r = 0; r < options.repeats + 3; ++r) {
    const int64_t start = monotonic_ns();
    pool.parallel(threads, [&](int) {
      g_sink.fetch_add(static_cast<uint64_t>(v.run(iterations) > 0), std::memory_order_relaxed);
    });
    const double seconds = static_cast<double>(std::max<int64_t>(monotonic_ns() - start, 1)) * 1e-9;
    if (seconds < options.seconds_per_variant / 2) {
      iterations = static_cast<int64_t>(static_cast<double>(iterations) *
                                        std::clamp(options.seconds_per_variant / seconds, 1.5, 100.0));
    } else {
      best = std::max(best, v.flops * static_cast<double>(iterations) * threads / seconds * 1e-9);
    }
  }
  return best;
}

// Only the reads, for a second look right after a benchmark.
double measure_read_gbs(device::ComputePool& pool, const CeilingOptions& options, std::string* variant) {
  const int threads = pool.threads();
  const size_t part = options.read_bytes / static_cast<size_t>(threads) / 4096 * 4096;
  double best = 0;
  for (const bool huge : {false, true}) {
    const Pages pages(options.read_bytes, huge);
    if (pages.data() == nullptr || part == 0) continue;
    pool.parallel(threads, [&](int t) { std::memset(pages.data() + static_cast<size_t>(t) * part, 1, part); });
    for (const CeilingSet& set : sets()) {
      for (int v = 0; v < set.reads; ++v) {
        for (int r = 0; r < options.repeats; ++r) {
          const int64_t start = monotonic_ns();
          pool.parallel(threads, [&](int t) {
            g_sink.fetch_add(set.read[v].run(pages.data() + static_cast<size_t>(t) * part, static_cast<int64_t>(part)),
                             std::memory_order_relaxed);
          });
          const double gbs = static_cast<double>(part) * threads / static_cast<double>(monotonic_ns() - start);
          if (gbs <= best) continue;
          best = gbs;
          if (variant != nullptr) *variant = std::string(set.read[v].name) + (huge ? ", 2 MiB pages" : ", 4 KiB pages");
        }
      }
    }
  }
  return best;
}

}  // namespace

Ceilings measure_ceilings(device::ComputePool& pool, const CeilingOptions& options) {
  Ceilings c;
  c.threads = pool.threads();
  c.read_gbs = measure_read_gbs(pool, options, &c.read_variant);
  auto best_of = [&](const DotVariant* variants, int count, double* best, std::string* name) {
    for (int v = 0; v < count; ++v) {
      const double g = dot_gflops(pool, variants[v], options);
      if (g > *best) *best = g, *name = variants[v].name;
    }
  };
  for (const CeilingSet& set : sets()) {
    best_of(set.bf16, set.bf16s, &c.bf16_gflops, &c.bf16_variant);
    best_of(set.f32, set.f32s, &c.f32_gflops, &c.f32_variant);
  }
  return c;
}

}  // namespace tern::kernels
