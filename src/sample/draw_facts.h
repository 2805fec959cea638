// What the tokens of a step are drawn from, where a request wants to know: entropies, and ids that truncation left.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.h"
#include "base/sampling_params.h"
#include "device/device.h"
#include "ops/draw_facts.h"
#include "sample/sampler_limits.h"
#include "sample/staged.h"

namespace tern::sample {

class DrawFacts {
 public:
  static Expected<DrawFacts> create(const SamplerLimits& limits, device::Device& device, const DrawFacts* shares);

  int count() const { return count_; }
  void clear() { count_ = out_ = 0; }
  // Those of the token drawn from that logit row. Returns a number for the results.
  int add(int32_t logit_row, const SamplingParams& params);
  // One of several ranks: those of `whole` whose logit row is the rank's, and back to where `whole` has them.
  void take(const DrawFacts& whole, std::span<const int32_t> owner, int rank);
  void give(DrawFacts& whole) const;

  void upload(CopyList& list) const { rows_.upload(count_, list); }
  void download(CopyList& list) const;
  // On the logits that the tokens have been drawn from.
  Status run(TensorView logits, void* workspace, device::Stream stream) const;

  // Results, on the host once the step is done. NaN: not wanted.
  float entropy(int number) const;
  std::span<const uint32_t> kept(int number) const;  // a bit per id; empty: not wanted

 private:
  int count_ = 0, out_ = 0;  // rows, places for results
  int64_t words_ = 0;        // of a row of kept_; 0: not wanted
  Staged<ops::DrawFactsRow> rows_;
  Staged<float> entropy_;
  Staged<uint32_t> kept_;
};

}  // namespace tern::sample
