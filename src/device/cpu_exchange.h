// Where ranks that are threads of one process meet: what each brings to the collective under way, and waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.h"

namespace tern::device {

class CpuExchange {
 public:
  // Bytes that a rank may put where the others read it: what is as small needs one wait instead of two.
  static constexpr size_t kStageBytes = size_t{128} << 10;

  CpuExchange(int ranks, bool spin);
  virtual ~CpuExchange() = default;
  CpuExchange(const CpuExchange&) = delete;
  CpuExchange& operator=(const CpuExchange&) = delete;

  // A collective is: begin() by every rank, reading what others brought, end() by every rank, after which a rank's
  // memory is its own again. Both wait for all ranks, and give an error after fail().
  struct Part {
    void* data = nullptr;
    int64_t columns = 0, stride = 0, first = 0;  // as the op needs them
  };
  Status begin(int rank, const Part& part);
  const Part& part(int rank) const { return seats_[static_cast<size_t>(rank)].part; }
  Status end(int rank);

  // Or, for up to kStageBytes, with one wait: the rank fills stage(), then share() waits until all have filled theirs,
  // which shared() shows until this rank's next share(). Two sets take turns, so nobody waits for those that still
  // read.
  void* stage(int rank) const { return memory(seats_[static_cast<size_t>(rank)].turn, rank); }
  Status share(int rank);
  const void* shared(int rank, int of) const { return memory(seats_[static_cast<size_t>(rank)].turn ^ 1, of); }

  void fail();

 protected:
  // Tests leave waits out to see that they are missed.
  virtual bool waits(int /*rank*/) { return true; }

 private:
  struct alignas(64) Seat {
    std::atomic<uint32_t> arrived{0};  // how often; kFailed: nobody waits any more
    uint32_t count = 0, turn = 0;      // of the rank alone
    Part part;
  };
  static constexpr uint32_t kFailed = 1u << 31;

  Status meet(int rank);
  Status wait_for(Seat& other, uint32_t count);
  void* memory(uint32_t turn, int of) const {
    return memory_.get() + (turn * seats_.size() + static_cast<size_t>(of)) * kStageBytes;
  }

  std::vector<Seat> seats_;
  const bool spin_;
  std::atomic<uint32_t> sleepers_{0};
  std::unique_ptr<char[]> memory_;  // [2, ranks, kStageBytes]
};

}  // namespace tern::device
