#include "device/compute_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "device/topology.h"
#include "device/waiting.h"

namespace tern::device {
namespace {

constexpr int64_t kSpinNs = 50'000;
// While others want the cores, a spinning thread holds up what it waits for.
constexpr int64_t kShortSpinNs = 5'000;
constexpr int64_t kBusyNs = 200'000'000;  // how long a lost core is remembered
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
  std::vector<int> nodes;
  bool spin = true;    // not when there are more threads than cores: a spinning thread would hold up a working one
  bool quota = false;  // control groups allow less time than the cores have

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
  std::atomic<int64_t> busy_until{0};  // other processes want the cores until then

  static thread_local const Impl* worker_of;
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

  // True when `done()` became true while this thread spun.
  template <class F>
  bool spun(F&& finished) {
    if (!spin) return finished();
    const int64_t now = monotonic_ns();
    const bool short_spin = quota || busy_until.load(std::memory_order_relaxed) > now;
    int64_t held_up = 0;
    const bool good = spin_until(short_spin ? kShortSpinNs : kSpinNs, finished, &held_up);
    if (held_up > kSpinNs) busy_until.store(now + held_up + kBusyNs, std::memory_order_relaxed);
    return good;
  }

  uint32_t wait_for_loop(uint32_t seen) {
    auto changed = [&] { return epoch.load(std::memory_order_acquire) != seen; };
    if (spun(changed)) return epoch.load(std::memory_order_acquire);
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    while (epoch.load(std::memory_order_seq_cst) == seen) futex_wait(epoch, seen);
    sleepers.fetch_sub(1, std::memory_order_seq_cst);
    return epoch.load(std::memory_order_acquire);
  }

  void worker(int thread) {
    set_thread_name("compute-" + std::to_string(thread));
    worker_of = this;
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
    if (spun(finished)) return;
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

thread_local const ComputePool::Impl* ComputePool::Impl::worker_of = nullptr;

ComputePool::ComputePool(int threads, bool pin, int part, int parts) : impl_(std::make_unique<Impl>()) {
  const CpuTopology topology = read_cpu_topology();
  TERN_CHECK(threads >= 0 && threads <= 1024 && parts >= 1 && part >= 0 && part < parts);
  const auto share = [&](int of) { return of * (part + 1) / parts - of * part / parts; };
  const int all = threads > 0 ? threads : topology.default_threads;
  impl_->threads = std::max(1, share(all));
  const auto wanted = static_cast<size_t>(std::max(all, parts));
  impl_->spin = wanted <= topology.cpus.size();
  impl_->quota = topology.quota;
  const int first = all >= parts ? all * part / parts : part;
  const bool fills = wanted >= static_cast<size_t>(topology.physical_cores);
  if (pin && impl_->spin && fills && !topology.quota) {
    // Neighbours in the list lie beside each other: a part is on as few memory nodes as can be.
    impl_->cpus.assign(topology.cpus.begin() + first, topology.cpus.begin() + first + impl_->threads);
  }
  if (std::ranges::adjacent_find(topology.nodes, std::ranges::not_equal_to{}) != topology.nodes.end())
    impl_->nodes = topology.nodes_of(first, impl_->threads);
  for (int t = 1; t < impl_->threads; ++t) impl_->workers.emplace_back([this, t] { impl_->worker(t); });
}

ComputePool::~ComputePool() {
  impl_->stop.store(true, std::memory_order_release);
  impl_->announce(impl_->epoch.load(std::memory_order_relaxed) + 1, INT32_MAX);
  for (std::thread& t : impl_->workers) t.join();
}

int ComputePool::threads() const { return impl_->threads; }

const std::vector<int>& ComputePool::cpus() const { return impl_->cpus; }

const std::vector<int>& ComputePool::nodes() const { return impl_->nodes; }

void ComputePool::pin_caller() {
  if (!impl_->cpus.empty() && Impl::worker_of != impl_.get()) pin_to(impl_->cpus[0]);
}

void ComputePool::run(int parts, Body body, void* context) { impl_->launch(parts, body, context); }

}  // namespace tern::device
