// Probes of verification: keep hidden states and expert choices, compare or force choices.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/model.h"

namespace tern::model {

// Expert choices of one sequence: by MoE layer, top_k ids for each position.
struct RoutingRecord {
  int top_k = 0;
  std::map<int, std::vector<int32_t>> layers;
};

// Feeds on the steps of one sequence in order. On a GPU each look waits for the stream of steps.
class VerifyProbe final : public Probe {
 public:
  enum class Mode { kWatch, kCompare, kForce };
  explicit VerifyProbe(device::Device& device, Mode mode = Mode::kWatch, const RoutingRecord* reference = nullptr)
      : device_(device), mode_(mode), reference_(reference) {}

  void tensor(std::string_view name, TensorView value) override;
  bool routing(int layer, TensorView ids) override;

  // Of the first step.
  const std::map<std::string, std::vector<float>, std::less<>>& tensors() const { return tensors_; }
  const RoutingRecord& record() const { return record_; }
  // Token-layers whose set of experts differs from the reference's, and all that were compared.
  int64_t flips() const { return flips_; }
  int64_t compared() const { return compared_; }

 private:
  // Rows of a tensor of rank 2 in host memory, one behind the other.
  std::vector<char> fetch(const TensorView& value);

  device::Device& device_;
  const Mode mode_;
  const RoutingRecord* const reference_;
  std::map<std::string, std::vector<float>, std::less<>> tensors_;
  RoutingRecord record_;
  int64_t flips_ = 0, compared_ = 0;
};

}  // namespace tern::model
