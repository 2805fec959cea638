// Probes of verification: keep hidden states and expert choices, compare or force choices.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "model/run/sequence_runner.h"
#include "model/verify/verify_case.h"

namespace tern::model {

// Expert choices of one sequence: by MoE layer, top_k ids for each position.
struct RoutingRecord {
  int top_k = 0;
  std::map<int, std::vector<int32_t>> layers;
};

// Choices for the tokens of a step whose rows begin `sequences`, one after the other.
RoutingRecord joined(std::span<const RoutingRecord> sequences, std::span<const SequenceRunner::Row> rows);

// Feeds on the steps of one sequence (or of joined ones) in order. On a GPU each look waits for the stream of steps.
class VerifyProbe final : public Probe {
 public:
  // kForce counts what differs and puts the reference's choices in its place. kDisturb does so too, and choices are
  // made by scores off by normal errors of `error` times the rms of the token's scores, weights are not.
  enum class Mode { kWatch, kForce, kDisturb };
  explicit VerifyProbe(device::Device& device, Mode mode = Mode::kWatch, const RoutingRecord* reference = nullptr,
                       double error = 0.0, uint32_t seed = 1)
      : device_(device), mode_(mode), reference_(reference), error_(error), random_(seed) {}

  void tensor(std::string_view name, TensorView value) override;
  void router(int layer, TensorView scores) override;
  bool routing(int layer, TensorView ids) override;

  // Of the first step.
  const std::map<std::string, std::vector<float>, std::less<>>& tensors() const { return tensors_; }
  const RoutingRecord& record() const { return record_; }
  // Token-layers whose set of experts differs from the reference's, and all that were compared.
  int64_t flips() const { return flips_; }
  int64_t compared() const { return compared_; }

 private:
  // Rows of a tensor of rank 2 in host memory, one after the other.
  std::vector<char> to_host(const TensorView& value);
  void restore(const TensorView& value, const std::vector<char>& host);

  device::Device& device_;
  const Mode mode_;
  const RoutingRecord* const reference_;
  const double error_;
  std::mt19937 random_;
  TensorView scores_;  // kDisturb: of the layer under way
  std::vector<char> undisturbed_;
  std::map<std::string, std::vector<float>, std::less<>> tensors_;
  RoutingRecord record_;
  int64_t flips_ = 0, compared_ = 0;
};

// Of a router's choices in bfloat16: token-layers whose experts are not the reference's though the layers before had
// the reference's, and all there were.
struct RoutingFlips {
  static constexpr size_t kDraws = 3;
  int64_t flips = 0, compared = 0;
  std::array<int64_t, kDraws> disturbed{};  // the same of the reference itself, its scores off by the tolerance
  void add(const VerifyProbe& probe) { flips += probe.flips(), compared += probe.compared(); }
  // Runs what `reference` was recorded of, in float32, with scores off by `error`.
  Status disturb(SequenceRunner& run, const SequenceRunner::Row& row, device::Device& device,
                 const RoutingRecord& reference, double error);
  // Choices may differ where the reference's own are as near to others as that: no more of them than of the most
  // disturbed one.
  StatementCheck statement() const;
};

}  // namespace tern::model
