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
  static Expected<SamplingDeal> create(const SamplerLimits& limits, const device::Communicator& rank,
                                       device::Device& device);
  // The sizes of this rank's sampler.
  static SamplerLimits limits_of(SamplerLimits whole, int ranks);
  // The rank of each of the first logit rows; rows that none is drawn from are dealt by number.
  static void owners(const SamplingBatch& whole, int ranks, std::span<int32_t> owner);

  // The rank's thread. Fills batch() with its part of `whole`, which is only read and stays until give().
  void take(const SamplingBatch& whole, std::span<const int32_t> owner);
  SamplingBatch& batch() { return mine_; }
  // batch() has been sampled: its results, but ids, to where `whole` has them; ranks write to different places.
  void give(SamplingBatch& whole, std::span<const int32_t> owner) const;
  // All ids of the first logit rows, which this rank has by now.
  void give_ids(SamplingBatch& whole, int64_t logit_rows, CopyList& list) const;

 private:
  device::Communicator rank_;
  SamplingBatch mine_;
  std::vector<int32_t> place_;  // where each captured row of the whole is in mine_
};

}  // namespace tern::sample
