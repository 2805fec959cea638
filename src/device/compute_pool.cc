#include "device/compute_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "device/topology.h"
#include "device/waiting.h"

namespace tern::device {
namespace {

constexpr int64_t kSpinNs = 50'000;
// A loop's claim word is epoch << 32 | parts << 16 | next part. A thread takes a part by advancing the word it has
// read: that fails when the loop is over or another has begun, so that no loop has to wait for threads that come late.
constexpr int kMaxParts = 0xffff;

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  (void)sched_setaffinity(0, sizeof set, &set);  // best effort: a container may forbid it
}

}  // namespace

struct ComputePool::Impl {
  int threads = 1;
  std::vector<int> cpus;  // one per thread when pinned, else empty
  bool spin = true;       // not when there are more threads than cores: a spinning thread would hold up a working one

  alignas(64) std::atomic<uint32_t> epoch{0};  // sleepers wait for it to change
  alignas(64) std::atomic<uint32_t> sleepers{0};
  alignas(64) std::atomic<uint64_t> claim{0};
  alignas(64) std::atomic<uint32_t> done{0};  // parts finished; the top bit says that the caller sleeps
  std::atomic<bool> stop{false};
  // The running loop; written before `claim` while no part of an earlier loop is left.
  std::atomic<Body> body{nullptr};
  std::atomic<void*> context{nullptr};
  std::atomic<int> first{0};
  std::vector<std::thread> workers;

  static constexpr uint32_t kCallerSleeps = 1u << 31;

  // Takes parts of the current loop until none is left.
  void work() {
    uint64_t word = claim.load(std::memory_order_acquire);
    for (;;) {
      const auto parts = static_cast<uint32_t>(word >> 16 & 0xffff), next = static_cast<uint32_t>(word & 0xffff);
      if (next >= parts) return;
      const Body f = body.load(std::memory_order_relaxed);
      void* const c = context.load(std::memory_order_relaxed);
      const int part = first.load(std::memory_order_relaxed) + static_cast<int>(next);
      // Success says that the loop read from `word` still has parts left, hence that f and c belong to it.
      if (!claim.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      f(c, part);
      if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == (kCallerSleeps | parts)) futex_wake(done, 1);
      word = claim.load(std::memory_order_acquire);
    }
  }

  uint32_t wait_for_loop(uint32_t seen) {
    auto changed = [&] { return epoch.load(std::memory_order_acquire) != seen; };
    if (spin && spin_until(kSpinNs, changed)) return epoch.load(std::memory_order_acquire);
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    while (epoch.load(std::memory_order_seq_cst) == seen) futex_wait(epoch, seen);
    sleepers.fetch_sub(1, std::memory_order_seq_cst);
    return epoch.load(std::memory_order_acquire);
  }

  void worker(int thread) {
    set_thread_name("compute-" + std::to_string(thread));
    if (!cpus.empty()) pin_to(cpus[static_cast<size_t>(thread)]);
    uint32_t seen = 0;
    for (;;) {
      seen = wait_for_loop(seen);
      if (stop.load(std::memory_order_acquire)) return;
      work();
    }
  }

  void announce(uint32_t next_epoch, int most) {
    epoch.store(next_epoch, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) futex_wake(epoch, most);
  }

  void wait_done(uint32_t parts) {
    auto finished = [&] { return done.load(std::memory_order_acquire) == parts; };
    if (spin ? spin_until(kSpinNs, finished) : finished()) return;
    uint32_t now = done.fetch_or(kCallerSleeps, std::memory_order_acq_rel) | kCallerSleeps;
    while (now != (kCallerSleeps | parts)) {
      futex_wait(done, now);
      now = done.load(std::memory_order_acquire);
    }
  }

  void launch(int n, Body f, void* c) {
    if (n <= 0) return;
    if (n == 1 || threads == 1) {
      for (int p = 0; p < n; ++p) f(c, p);
      return;
    }
    for (int begin = 0; begin < n; begin += kMaxParts) {
      const int parts = std::min(kMaxParts, n - begin);
      body.store(f, std::memory_order_relaxed);
      context.store(c, std::memory_order_relaxed);
      first.store(begin, std::memory_order_relaxed);
      done.store(0, std::memory_order_relaxed);
      const uint32_t next = epoch.load(std::memory_order_relaxed) + 1;
      claim.store(static_cast<uint64_t>(next) << 32 | static_cast<uint64_t>(parts) << 16, std::memory_order_release);
      announce(next, parts - 1);
      work();
      wait_done(static_cast<uint32_t>(parts));
    }
  }
};

ComputePool::ComputePool(int threads, bool pin, int part, int parts) : impl_(std::make_unique<Impl>()) {
  const CpuTopology topology = read_cpu_topology();
  TERN_CHECK(threads >= 0 && threads <= 1024 && parts >= 1 && part >= 0 && part < parts);
  const auto share = [&](int of) { return of * (part + 1) / parts - of * part / parts; };
  const int all = threads > 0 ? threads : topology.default_threads;
  impl_->threads = std::max(1, share(all));
  const auto wanted = static_cast<size_t>(std::max(all, parts));
  impl_->spin = wanted <= topology.cpus.size();
  if (pin && impl_->spin) {
    // Neighbours in the list lie beside each other: a part is on as few memory nodes as can be.
    const auto first = topology.cpus.begin() + (all >= parts ? all * part / parts : part);
    impl_->cpus.assign(first, first + impl_->threads);
  }
  for (int t = 1; t < impl_->threads; ++t) impl_->workers.emplace_back([this, t] { impl_->worker(t); });
}

ComputePool::~ComputePool() {
  impl_->stop.store(true, std::memory_order_release);
  impl_->announce(impl_->epoch.load(std::memory_order_relaxed) + 1, INT32_MAX);
  for (std::thread& t : impl_->workers) t.join();
}

int ComputePool::threads() const { return impl_->threads; }

const std::vector<int>& ComputePool::cpus() const { return impl_->cpus; }

void ComputePool::pin_caller() {
  if (!impl_->cpus.empty()) pin_to(impl_->cpus[0]);
}

void ComputePool::run(int parts, Body body, void* context) { impl_->launch(parts, body, context); }

}  // namespace tern::device
