// Engines whose experts are dealt to the ranks of all of them (model::Shard::engines): step n of one is step n of all,
// since every layer of experts is a meeting of all ranks. Each plans for itself; one that has nothing to do when
// another has launched a step launches an empty one.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/error.h"
#include "device/communicator.h"

namespace tern::engine {

class Lockstep {
 public:
  // `experts`: of all ranks, engine by engine. It outlives the engines.
  Lockstep(int engines, int ranks_of_each, std::unique_ptr<device::CommunicatorGroup> experts);

  int engines() const { return static_cast<int>(seats_.size()); }
  device::Communicator experts(int engine, int rank) const { return experts_->of(engine * ranks_ + rank); }

  // While it runs, an engine is woken when it should look again; `wake` must not call back.
  void join(int engine, void (*wake)(void*), void* context);
  void leave(int engine);

  // Its engine thread. launched(): it has launched so many steps, which wakes those with fewer; behind(): it has fewer
  // than another. may_end(): it has nothing to do and never will; whether that is so of all, or one has failed.
  void launched(int engine, uint64_t steps);
  bool behind(int engine) const;
  bool may_end(int engine);

  // Rank 0's thread, once for each step in their order: waits until all engines have come, and says what each brings.
  // An error after fail().
  Status meet(int engine, int32_t tokens, std::span<int32_t> all);

  // Any thread: a rank has failed. All that wait for it, or will, get an error.
  void fail();

 private:
  struct Seat {
    void (*wake)(void*) = nullptr;
    void* context = nullptr;
    uint64_t launched = 0, met = 0;
    int32_t tokens[2] = {0, 0};  // of the steps that take turns
    bool joined = false, ended = false;
  };
  Seat& seat(int engine) { return seats_[static_cast<size_t>(engine)]; }

  const int ranks_;
  const std::unique_ptr<device::CommunicatorGroup> experts_;
  mutable std::mutex mutex_;
  std::condition_variable met_;
  std::vector<Seat> seats_;
  bool failed_ = false;
};

}  // namespace tern::engine
