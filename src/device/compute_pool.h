// Threads of the CPU back-end, one parallel loop at a time. They spin before they sleep: 50 microseconds, or 5 where
// control groups bound this process's time and for a while after a spinning thread has lost its core to another
// process. They are pinned where they fill the affinity mask and no quota holds: else two processes that both leave
// cores free would be pinned to the same ones.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace tern::device {

class ComputePool {
 public:
  // `threads` includes the caller. 0: one per physical core this process may use. With several parts, `threads` and the
  // cores are those of all of them, and this pool has its share of both, one thread at least.
  explicit ComputePool(int threads, bool pin = true, int part = 0, int parts = 1);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int threads() const;
  // The logical CPUs of its threads, the caller's first; empty: they are not pinned.
  const std::vector<int>& cpus() const;
  // The memory nodes that its threads run on, ascending; empty where all CPUs are of one node.
  const std::vector<int>& nodes() const;
  // Pins the calling thread to the core kept for the caller. For the one thread that owns the stream, at its start;
  // threads that it starts later inherit the mask. Does nothing when the pool is not pinned, and for
  // the pool's own threads, which have cores of their own.
  void pin_caller();
  // Runs body(part) for part = 0 .. parts-1, each once, on whichever thread takes it first; returns when all are done.
  // A thread that is late (asleep, or its core is busy elsewhere) is not waited for: the others take its share. Only
  // the thread that owns the pool's stream may call it. `body` must not allocate on the step path.
  using Body = void (*)(void* context, int part);
  void run(int parts, Body body, void* context);
  template <class F>
  void parallel(int parts, F&& f) {
    run(
        parts, [](void* c, int part) { (*static_cast<std::remove_reference_t<F>*>(c))(part); }, &f);
  }
  // The same; says that the parts are of uneven size (attention, experts).
  void run_dynamic(int parts, Body body, void* context) { run(parts, body, context); }
  template <class F>
  void parallel_dynamic(int parts, F&& f) {
    parallel(parts, f);
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tern::device
