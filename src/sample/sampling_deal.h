// What one of several ranks draws of a step's batch: the rows of its slots, those with slot % ranks == rank, which it
// counts as slot / ranks, so that penalties and counts of a slot live with one rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "device/communicator.h"
#include "device/device.h"
#include "sample/sampler.h"

namespace tern::sample {

class SamplingDeal {
 public:
  SamplingDeal(const SamplerLimits& whole, const device::Communicator& rank)
      : rank_(rank), place_(static_cast<size_t>(whole.max_rows)) {}
  // The sizes of a rank's sampler and of its batches.
  static SamplerLimits limits_of(SamplerLimits whole, int ranks);
  // The rank of each of the first logit rows; rows that none is drawn from are dealt by number.
  static void owners(const SamplingBatch& whole, int ranks, std::span<int32_t> owner);

  // The rank's thread. Fills `mine` with its part of `whole`, which is only read and stays until give(). Where `mine`
  // is held back, its rows wait for upload_late(): a graph may not have copied yet that there are none.
  void take(const SamplingBatch& whole, std::span<const int32_t> owner, SamplingBatch& mine);
  // `mine` has been sampled and its results have come: to where `whole` has them. Ranks write to different places;
  // rank 0 also the ids, of which it has all.
  void give(const SamplingBatch& mine, std::span<const int32_t> owner, SamplingBatch& whole) const;

 private:
  device::Communicator rank_;
  std::vector<int32_t> place_;  // where each captured row of the whole is among this rank's
};

}  // namespace tern::sample
