// A group of GPUs of this process: all of them may read and write each other's memory, and each has a board and stages
// for the others to write to.
#include "cuda/collective/group.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "cuda/collective/peers.h"
#include "cuda/runtime/context.h"

namespace tern::cuda {
namespace {

constexpr size_t kBoardBytes = round_up<size_t>(sizeof(PeerBoard), 256);

int ordinal_of(device::Device& device) { return state(device.stream()).ordinal; }

Error unfit(const std::string& what) { return make_error(ErrorCode::kUnsupported, what, "tensor-parallel-size"); }

Status check_alike(int a, int b) {
  cudaDeviceProp first{}, second{};
  for (const auto& [ordinal, p] : {std::pair{a, &first}, std::pair{b, &second}}) {
    if (const cudaError_t e = cudaGetDeviceProperties(p, ordinal); e != cudaSuccess) return cuda_error("a device", e);
  }
  if (std::string(first.name) == second.name && first.totalGlobalMem == second.totalGlobalMem) return {};
  return unfit("GPUs " + std::to_string(a) + " and " + std::to_string(b) + " differ (" + first.name + ", " +
               second.name + "): ranks that share a model need GPUs of one kind");
}

// Lets `device` read and write the memory of `other`, all that is there and all that will be.
Status open_access(int device, int other) {
  int can = 0;
  if (const cudaError_t e = cudaDeviceCanAccessPeer(&can, device, other); e != cudaSuccess) {
    return cuda_error("peer access", e);
  }
  if (can == 0) {
    return unfit("GPUs " + std::to_string(device) + " and " + std::to_string(other) +
                 " have no peer access to each other's memory, which ranks that share a model need");
  }
  if (const cudaError_t e = cudaSetDevice(device); e != cudaSuccess) return cuda_error("choosing the device", e);
  const cudaError_t e = cudaDeviceEnablePeerAccess(other, 0);
  if (e == cudaSuccess) return {};
  (void)cudaGetLastError();
  return e == cudaErrorPeerAccessAlreadyEnabled ? Status() : cuda_error("peer access", e);
}

class PeerGroup final : public device::CommunicatorGroup {
 public:
  Status open(std::span<device::Device* const> devices);
  device::Communicator of(int rank) const override {
    return {rank, static_cast<int>(peers_.size()), nullptr,
            const_cast<Peers*>(&peers_[static_cast<size_t>(rank)])};  // NOLINT: ops only read it
  }
  void fail() override { std::atomic_ref(*failed()).store(1, std::memory_order_relaxed); }

 private:
  uint32_t* failed() const { return reinterpret_cast<uint32_t*>(failed_.data()); }

  std::vector<device::Buffer> memory_;  // by rank
  device::Buffer failed_;               // of the host
  std::vector<Peers> peers_;
};

Status PeerGroup::open(std::span<device::Device* const> devices) {
  const int ranks = static_cast<int>(devices.size());
  for (device::Device* d : devices) TERN_RETURN_IF_ERROR(check_alike(ordinal_of(*devices[0]), ordinal_of(*d)));
  for (device::Device* d : devices) {
    for (device::Device* other : devices) {
      if (d != other) TERN_RETURN_IF_ERROR(open_access(ordinal_of(*d), ordinal_of(*other)));
    }
  }
  TERN_ASSIGN_OR_RETURN(failed_, devices[0]->allocate_host(sizeof(uint32_t)));
  Peers all;
  all.failed = failed(), all.ranks = ranks;
  for (device::Device* d : devices) {
    TERN_ASSIGN_OR_RETURN(device::Buffer b, d->allocate(kBoardBytes + stage_bytes(ranks)));
    all.board[memory_.size()] = reinterpret_cast<PeerBoard*>(b.data());
    all.stage[memory_.size()] = reinterpret_cast<uint4*>(b.data() + kBoardBytes);
    memory_.push_back(std::move(b));
  }
  for (all.rank = 0; all.rank < ranks; ++all.rank) peers_.push_back(all);
  return {};
}

}  // namespace

Expected<std::unique_ptr<device::CommunicatorGroup>> make_communicators(std::span<device::Device* const> devices) {
  if (devices.size() < 2 || devices.size() > static_cast<size_t>(kMostRanks)) {
    return unfit(std::to_string(devices.size()) + " ranks: GPUs of one host are joined in groups of 2 to " +
                 std::to_string(kMostRanks));
  }
  auto group = std::make_unique<PeerGroup>();
  if (Status s = group->open(devices); !s.ok()) return std::move(s).error();
  return std::unique_ptr<device::CommunicatorGroup>(std::move(group));
}

}  // namespace tern::cuda
