#include "device/compute_pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/thread_pool.h"
#include "device/topology.h"

namespace tern::device {
namespace {

constexpr int64_t kSpinNs = 50'000;
// The job word is epoch << kCountBits | participants: one load tells a worker both that there is a new loop and whether
// it takes part, so that a worker outside the loop never reads the loop's fields (they may already be the next one's).
constexpr uint32_t kCountBits = 10;
constexpr uint32_t kCountMask = (1u << kCountBits) - 1;

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  (void)sched_setaffinity(0, sizeof set, &set);  // best effort: a container may forbid it
}

// Spins while `done()` is false, at most kSpinNs. True when it became true.
template <class F>
bool spin_until(F&& done) {
  const int64_t end = monotonic_ns() + kSpinNs;
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      cpu_relax();
    }
  } while (monotonic_ns() < end);
  return false;
}

}  // namespace

struct ComputePool::Impl {
  int threads = 1;
  std::vector<int> cpus;  // one per thread when pinned, else empty
  bool spin = true;       // not when there are more threads than cores: a spinning thread would hold up a working one

  alignas(64) std::atomic<uint32_t> job{0};
  alignas(64) std::atomic<uint32_t> sleepers{0};
  alignas(64) std::atomic<uint32_t> pending{0};  // workers that still work; the top bit says that the caller sleeps
  alignas(64) std::atomic<int> next{0};
  std::atomic<bool> stop{false};
  // The running loop; written before `job`, read by participants only.
  Body body = nullptr;
  void* context = nullptr;
  int parts = 0;
  bool dynamic = false;
  std::vector<std::thread> workers;

  static constexpr uint32_t kCallerSleeps = 1u << 31;

  void work(int thread) {
    if (dynamic) {
      for (int p = next.fetch_add(1, std::memory_order_relaxed); p < parts;
           p = next.fetch_add(1, std::memory_order_relaxed)) {
        body(context, p);
      }
    } else {
      for (int p = thread; p < parts; p += threads) body(context, p);
    }
  }

  uint32_t wait_for_job(uint32_t seen) {
    auto changed = [&] { return job.load(std::memory_order_acquire) != seen; };
    if (spin && spin_until(changed)) return job.load(std::memory_order_acquire);
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    while (job.load(std::memory_order_seq_cst) == seen) futex_wait(job, seen);
    sleepers.fetch_sub(1, std::memory_order_seq_cst);
    return job.load(std::memory_order_acquire);
  }

  void worker(int thread) {
    set_thread_name("compute-" + std::to_string(thread));
    if (!cpus.empty()) pin_to(cpus[static_cast<size_t>(thread)]);
    uint32_t seen = 0;
    for (;;) {
      seen = wait_for_job(seen);
      if (stop.load(std::memory_order_acquire)) return;
      if (static_cast<uint32_t>(thread) >= (seen & kCountMask)) continue;
      work(thread);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == (kCallerSleeps | 1u)) futex_wake(pending, 1);
    }
  }

  void publish(uint32_t participants) {
    const uint32_t epoch = (job.load(std::memory_order_relaxed) >> kCountBits) + 1;
    job.store(epoch << kCountBits | participants, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) futex_wake(job, INT32_MAX);
  }

  void wait_done() {
    auto done = [&] { return pending.load(std::memory_order_acquire) == 0; };
    if (spin ? spin_until(done) : done()) return;
    uint32_t left = pending.fetch_or(kCallerSleeps, std::memory_order_acq_rel) | kCallerSleeps;
    while ((left & ~kCallerSleeps) != 0) {
      futex_wait(pending, left);
      left = pending.load(std::memory_order_acquire);
    }
  }

  void launch(int n, Body f, void* c, bool is_dynamic) {
    if (n <= 0) return;
    if (n == 1 || threads == 1) {
      for (int p = 0; p < n; ++p) f(c, p);
      return;
    }
    body = f, context = c, parts = n, dynamic = is_dynamic;
    next.store(0, std::memory_order_relaxed);
    const int participants = std::min(n, threads);
    pending.store(static_cast<uint32_t>(participants - 1), std::memory_order_relaxed);
    publish(static_cast<uint32_t>(participants));
    work(0);
    wait_done();
  }
};

ComputePool::ComputePool(int threads, bool pin) : impl_(std::make_unique<Impl>()) {
  const CpuTopology topology = read_cpu_topology();
  TERN_CHECK(threads >= 0 && threads < static_cast<int>(kCountMask));
  impl_->threads = threads > 0 ? threads : topology.default_threads;
  const auto wanted = static_cast<size_t>(impl_->threads);
  impl_->spin = wanted <= topology.cpus.size();
  if (pin && wanted <= topology.cpus.size()) {
    impl_->cpus.assign(topology.cpus.begin(), topology.cpus.begin() + impl_->threads);
  }
  for (int t = 1; t < impl_->threads; ++t) impl_->workers.emplace_back([this, t] { impl_->worker(t); });
}

ComputePool::~ComputePool() {
  impl_->stop.store(true, std::memory_order_release);
  impl_->publish(0);
  for (std::thread& t : impl_->workers) t.join();
}

int ComputePool::threads() const { return impl_->threads; }

void ComputePool::pin_caller() {
  if (!impl_->cpus.empty()) pin_to(impl_->cpus[0]);
}

void ComputePool::run(int parts, Body body, void* context) { impl_->launch(parts, body, context, false); }

void ComputePool::run_dynamic(int parts, Body body, void* context) { impl_->launch(parts, body, context, true); }

}  // namespace tern::device
