// Where weight values come from: files, or a seed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/tensor.h"
#include "model/files/checkpoint.h"
#include "model/quantized/coded_tensor.h"
#include "model/weights/weight_plan.h"

namespace tern::model {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // kBF16 when reading as bf16 loses nothing, else kF32.
  virtual DType natural_type(int parameter) const = 0;
  // Writes the block (its transpose when piece.transposed) to `dst` [target_rows, target_cols], bf16 or f32, row stride
  // free. Safe to call from several threads.
  virtual void read(const Piece& piece, TensorView dst) const = 0;
  // The type of the codes that files hold of a parameter: kI8, kF8E4M3; nothing: they hold values.
  virtual std::optional<DType> code_type(int) const { return std::nullopt; }
  // The name of the format that holds the codes of a block as they are (ops::find_weight_format); empty: values.
  virtual std::string code_format(const Piece&) const { return {}; }
  // Codes of the block, and scales and zero points (either may be empty) of its rows and the groups its columns meet.
  virtual Status read_codes(const Piece&, TensorView /*codes*/, TensorView /*scales*/, TensorView /*zeros*/) const {
    return make_error(ErrorCode::kInternal, "these weights are not stored as codes");
  }
  // The same values where they lie in memory, without a copy; empty when they cannot be used in place.
  virtual TensorView in_place(const Piece& piece) const = 0;
  // Rows of the block run across the pages of the source: neighbouring rows share them.
  virtual bool scattered(const Piece&) const { return false; }
  // The block will be read next, all of it.
  virtual void expect(const Piece&) const {}
  // The block will not be read again soon.
  virtual void release(const Piece& piece) const = 0;
  // Whether what was read of the block was really there.
  virtual Status check(const Piece&) const { return {}; }
};

// Seeded random values: matrices of variance 1 / in, norms 1, biases small. An element depends on (seed, name, row,
// column) only, so slices of any rank fit together.
class DummySource final : public WeightSource {
 public:
  DummySource(const std::vector<Parameter>& parameters, uint64_t seed);
  DType natural_type(int) const override { return DType::kBF16; }
  void read(const Piece& piece, TensorView dst) const override;
  TensorView in_place(const Piece&) const override { return {}; }
  void release(const Piece&) const override {}

 private:
  const std::vector<Parameter>& parameters_;
  const uint64_t seed_;
  std::vector<float> normal_;  // [4096]: quantiles of the normal distribution, shuffled
};

// A parameter found in a file.
struct Stored {
  const StoredTensor* tensor = nullptr;
  const char* data = nullptr;                     // element (0, 0) of the parameter's storage
  int64_t stride = 0;                             // elements from one stored row to the next
  bool swapped = false;                           // stored [in, out]
  std::shared_ptr<const CodedTensor> coded = {};  // null: values. Else the parameter's first row is `row` of it
  int64_t row = 0;
};

class CheckpointSource final : public WeightSource {
 public:
  CheckpointSource(const std::vector<Parameter>& parameters, std::vector<Stored> stored);
  DType natural_type(int parameter) const override;
  void read(const Piece& piece, TensorView dst) const override;
  std::optional<DType> code_type(int parameter) const override;
  std::string code_format(const Piece& piece) const override;
  Status read_codes(const Piece& piece, TensorView codes, TensorView scales, TensorView zeros) const override;
  TensorView in_place(const Piece& piece) const override;
  bool scattered(const Piece& piece) const override {
    const Stored& s = stored_[static_cast<size_t>(piece.parameter)];
    return s.coded != nullptr ? s.coded->across() : s.swapped != piece.transposed;
  }
  void expect(const Piece& piece) const override;
  void release(const Piece& piece) const override;
  Status check(const Piece& piece) const override;

 private:
  void read_coded(const Stored& s, const Piece& piece, TensorView dst) const;

  const std::vector<Parameter>& parameters_;
  const std::vector<Stored> stored_;
  mutable std::mutex mutex_;
  mutable Status error_;  // the first of read()
};

struct ResolveOptions {
  int layers = 0;      // decoder layers in the spec
  int mtp_layers = 0;  // layers after them that may be there
  bool cut = false;    // the layer count was overridden: the others are not missed
  // Parts of names. Tensors whose name holds one of `foreign` belong to another part of the model (a tower, say). When
  // `own` is not empty, so do all whose name holds none of `own`.
  std::vector<std::string> foreign = {}, own = {};
  const StoredCodes* codes = nullptr;  // null: all weights are stored as values
};

// Finds every parameter in the checkpoint: names under any root prefix and spelling, fused or split, in either
// orientation. All missing, unexpected and wrongly shaped tensors are one kCorrupt error, each missing or unexpected
// name with the nearest one on the other side.
Expected<std::vector<Stored>> resolve_parameters(const std::vector<Parameter>& parameters, const Checkpoint& checkpoint,
                                                 const ResolveOptions& options);

// What only the files tell.
Presences detect_presences(const DecoderSpec& spec, const Checkpoint& checkpoint);
Presences default_presences(const DecoderSpec& spec);

}  // namespace tern::model
