// A matrix that a checkpoint keeps as codes, and reading blocks of it.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/tensor.h"
#include "model/files/checkpoint.h"
#include "model/quantized/scheme.h"

namespace tern::model {

// A matrix of its own, or one of a stack [count, ...] of them.
struct CodedPlace {
  std::string module;
  int64_t n = 0, k = 0;
  int64_t index = 0, count = 0;  // count 0: no stack
};

struct CodedTensor {
  std::string module;
  CodeScheme scheme;
  const StoredTensor* codes = nullptr;
  const StoredTensor* scales = nullptr;
  const StoredTensor* zeros = nullptr;                     // null: there are none
  int64_t n = 0, k = 0;                                    // of the whole matrix [out, in]
  std::vector<std::unique_ptr<StoredTensor>> slices = {};  // of a matrix in a stack: its part of the three above

  DType code_type() const { return scheme.layout == CodeLayout::kFloat8 ? DType::kF8E4M3 : DType::kI8; }
  int64_t group() const { return scheme.group == 0 ? k : scheme.group; }
  // Neighbouring rows lie in the same pages.
  bool across() const { return scheme.layout == CodeLayout::kGptq || scheme.layout == CodeLayout::kAwq; }

  // Rows [row, row + rows) and columns [col, col + cols) of the matrix, a byte a code: two's complement (whose 0 is the
  // middle of the codes) or e4m3. An error: an e4m3 code that is no number.
  Status read_codes(int64_t row, int64_t col, TensorView to) const;
  // Scales of the groups that those columns meet, and, where there are zero points, what is to be subtracted from a
  // code. Either may be empty: it is not wanted. An error: a scale of zero, infinity or NaN.
  Status read_scales(int64_t row, int64_t rows, int64_t col, int64_t cols, TensorView scales, TensorView zeros) const;
  // Values as float32 [rows, cols].
  Status read_values(int64_t row, int64_t col, TensorView to) const;
};

// Finds the tensors of modules with codes and checks their types and shapes.
class CodedFinder {
 public:
  CodedFinder(const StoredCodes& codes, const Checkpoint& checkpoint) : codes_(codes), checkpoint_(checkpoint) {}

  // A matrix, or null: it is not stored as codes, or wrongly, which `wrong` then says. Names of tensors that belong to
  // it go to `used`. Those of a stack are "X.weight", "X.weight_scale", or "X", "X_scale".
  std::shared_ptr<const CodedTensor> find(const CodedPlace& place, std::set<std::string>& used,
                                          std::vector<std::string>& wrong) const;
  // Whether the config says that a module has codes and the files must agree.
  bool promised(const std::string& module) const {
    return codes_.complete && codes_.scheme_of(module) != nullptr && !codes_.ignore.may_contain(module);
  }

 private:
  const StoredCodes& codes_;
  const Checkpoint& checkpoint_;
};

}  // namespace tern::model
