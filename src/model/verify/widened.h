// The reference of a quantized model: the same codes times their scales as float32 weights, and what they compute.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
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

// Parts of it, for cases with pictures. Values, of which the last rows count, in the place of a tensor, if there is
// one.
void replace_tensor(GoldenCase& golden, const std::string& name, std::span<const float> values);
// The greedy tokens of a prompt and their margins, from the logits after the prompt on; step(i): those after token i.
using NextLogits = std::function<Expected<std::span<const float>>(size_t)>;
Status replace_greedy(const std::vector<int32_t>& banned, std::span<const float> last, const NextLogits& step,
                      GoldenPrompt& p);

}  // namespace tern::model
