#include "device/cpu_exchange.h"

#include <climits>

#include "device/communicator.h"
#include "device/waiting.h"

namespace tern::device {
namespace {

// The ranks of a step come within microseconds of each other, unless one of them has more to do.
constexpr int64_t kSpinNs = 100'000;

class CpuGroup final : public CommunicatorGroup {
 public:
  CpuGroup(int ranks, bool spin) : ranks_(ranks), exchange_(ranks, spin) {}
  Communicator of(int rank) const override { return {rank, ranks_, &exchange_, nullptr}; }
  void fail() override { exchange_.fail(); }

 private:
  const int ranks_;
  mutable CpuExchange exchange_;
};

}  // namespace

CpuExchange::CpuExchange(int ranks, bool spin)
    : seats_(static_cast<size_t>(ranks)),
      spin_(spin),
      memory_(std::make_unique<char[]>(2 * static_cast<size_t>(ranks) * kStageBytes)) {}

Status CpuExchange::begin(int rank, const Part& part) {
  seats_[static_cast<size_t>(rank)].part = part;
  return meet(rank);
}

Status CpuExchange::end(int rank) { return meet(rank); }

Status CpuExchange::share(int rank) {
  TERN_RETURN_IF_ERROR(meet(rank));
  seats_[static_cast<size_t>(rank)].turn ^= 1;
  return {};
}

// Says that this rank has come this far and waits until all others have. A rank's count is its own copy of how often it
// has arrived: after fail() the flags say something else.
Status CpuExchange::meet(int rank) {
  Seat& mine = seats_[static_cast<size_t>(rank)];
  const uint32_t count = mine.count = (mine.count + 1) & ~kFailed;
  uint32_t before = (count - 1) & ~kFailed;
  if (!mine.arrived.compare_exchange_strong(before, count, std::memory_order_seq_cst)) {
    return make_error(ErrorCode::kUnavailable, "another rank has failed");
  }
  if (sleepers_.load(std::memory_order_seq_cst) != 0) futex_wake(mine.arrived, INT_MAX);
  if (!waits(rank)) return {};
  for (Seat& other : seats_) {
    if (&other != &mine) TERN_RETURN_IF_ERROR(wait_for(other, count));
  }
  return {};
}

Status CpuExchange::wait_for(Seat& other, uint32_t count) {
  uint32_t seen = 0;
  // At this meeting, or ahead; counts go round.
  const auto settled = [&] {
    seen = other.arrived.load(std::memory_order_seq_cst);
    return (seen & kFailed) != 0 || ((seen - count) & ~kFailed) < kFailed / 2;
  };
  if (!(spin_ ? spin_until(kSpinNs, settled) : settled())) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (!settled()) futex_wait(other.arrived, seen);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }
  return (seen & kFailed) == 0 ? Status() : make_error(ErrorCode::kUnavailable, "another rank has failed");
}

void CpuExchange::fail() {
  for (Seat& seat : seats_) {
    seat.arrived.fetch_or(kFailed, std::memory_order_seq_cst);
    futex_wake(seat.arrived, INT_MAX);
  }
}

std::unique_ptr<CommunicatorGroup> make_cpu_communicators(int ranks, bool spin) {
  return std::make_unique<CpuGroup>(ranks, spin);
}

}  // namespace tern::device
