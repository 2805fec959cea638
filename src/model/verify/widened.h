// The reference of a quantized model: the same codes times their scales as float32 weights, and what they compute.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "device/device.h"
#include "model/model.h"
#include "model/verify/golden_case.h"
#include "ops/linear.h"

namespace tern::model {

// Float32 weights with the values of another format's codes, by format. Models made with them need them.
class WidenedFormats {
 public:
  explicit WidenedFormats(device::DeviceKind kind) : kind_(kind) {}
  const ops::WeightFormat* of(const ops::WeightFormat& codes);

 private:
  const device::DeviceKind kind_;
  std::map<std::string, std::unique_ptr<ops::WeightFormat>, std::less<>> made_;
};

// The case with all that `widened`, a model of such weights, computes in the place of what another implementation
// computed of the weights as they stand in the files: hidden states, logits, greedy tokens and their margins.
Expected<GoldenCase> widened_case(GoldenCase golden, const Model& widened, device::Device& device);

}  // namespace tern::model
