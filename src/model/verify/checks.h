// Comparisons that cases of every kind share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/verify/golden_case.h"
#include "model/verify/verify_case.h"

namespace tern::model {

TensorCheck compare_tensor(std::string name, const GoldenTensor& want, std::span<const float> got,
                           const VerifyTolerance& tolerance);

// The largest entry's index, the lowest of equals; `banned` ids are never taken.
int32_t arg_max(std::span<const float> row, const std::vector<int32_t>& banned);

// Smallest margin between the best two logits at which a greedy step is held against us.
double clear_margin(const GoldenTensor* logits, const VerifyTolerance& tolerance);

// What logits of one thing computed in two ways owe each other. `scale`: errors are compared with this where it is more
// than the largest entry of `a`.
enum class Agreement : uint8_t { kBits, kTolerance, kToken };
bool agree(std::span<const float> a, std::span<const float> b, Agreement how, const VerifyTolerance& tolerance,
           const std::vector<int32_t>& banned, std::string& detail, double scale = 0.0);

}  // namespace tern::model
