// Checks the model code against a reference case: tensors within tolerance, greedy tokens, and results that do not
// depend on chunks, block tables or neighbours in the batch. What `tern verify` prints.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "json/json.h"
#include "ops/linear.h"

namespace tern::model {

// Relative to the reference tensor's largest absolute value.
struct VerifyTolerance {
  double max = 2e-5;
  double rms = 0.0;  // of the error over the reference's rms; 0: not checked
  static VerifyTolerance of(DType activation) {
    return activation == DType::kF32 ? VerifyTolerance{2e-5, 0.0} : VerifyTolerance{4e-2, 2.5e-2};
  }
};

struct VerifyOptions {
  DType activation = DType::kF32;
  const ops::WeightFormat* format = nullptr;  // linear weights in this format instead
  // Not null: weights and cache are quantized so (read_quantization()). The reference of weights is what the same codes
  // compute as float32 (widened.h) instead of what the case holds. That of a cache stays what it was: results may be
  // off 1.25 times as far as those of an oracle whose float32 cache holds the same rounded values, and by the
  // activations' tolerance besides.
  json::Value quantization = {};
  // More than one: the model is cut over so many ranks (ranked_model.h); on a CPU. Or experts are dealt to them whole.
  int ranks = 1;
  bool expert_parallel = false;
  // So many engines share the experts, and the others run the same beside the one that is looked at, or nothing.
  int engines = 1;
  bool others_idle = false;
  VerifyTolerance tolerance = VerifyTolerance::of(DType::kF32);
  bool variations = true;  // chunk sizes, block tables and batches
  // They change no bit. False: they stay within the tolerance (bfloat16: with the same experts), as on a GPU whose
  // products are chosen by the number of rows.
  bool exact = true;
};

struct TensorCheck {
  std::string name;
  double max_abs = 0.0;   // largest absolute error
  double relative = 0.0;  // the same over the reference's largest absolute value
  double rms = 0.0;       // rms of the error over rms of the reference
  double tolerance = 0.0;
  bool ok = false;
};

struct PromptCheck {
  std::string name;
  int steps = 0, checked = 0, matched = 0;  // checked: margin clear of the tolerance
  bool ok() const { return matched == checked; }
};

// Anything else that must hold, in words.
struct StatementCheck {
  std::string name, detail;
  bool ok = false;
};

struct CaseReport {
  std::string folder, architecture;
  std::vector<TensorCheck> tensors;
  std::vector<PromptCheck> prompts;
  std::vector<StatementCheck> statements;
  int passed() const;
  int failed() const;
};

// An Error when the case cannot be run at all (no such folder, unknown architecture, a picture case).
Expected<CaseReport> verify_case(const std::string& folder, const VerifyOptions& options, device::Device& device);

}  // namespace tern::model
