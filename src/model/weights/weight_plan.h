// From a DecoderSpec and a rank to: every parameter there is, and what of it goes where in this rank's memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "model/decoder_spec.h"
#include "model/weights/decoder_weights.h"
#include "model/weights/output_layer.h"
#include "model/weights/parameter.h"

namespace tern::model {

struct StoredCodes;

// A block of a parameter, in the parameter's logical [out, in] coordinates.
struct Piece {
  int parameter = 0;
  int64_t row = 0, rows = 0, col = 0, cols = 0;
  bool transposed = false;  // the target takes the block's transpose
  int64_t target_rows() const { return transposed ? cols : rows; }
  int64_t target_cols() const { return transposed ? rows : cols; }
};

// What a matrix is for; its role chooses its weight format (pack.h).
enum class MatrixRole : uint8_t {
  kLinear,         // projections of attention, dense MLPs
  kSharedExpert,   // serves every token of a layer of experts
  kExpert,         // one of those that tokens choose
  kPictureExpert,  // likewise, in the bank for pictures
  kHead,           // the output layer
  kPlain,          // what stays in the activation type, whatever the formats: latent projections of MLA, towers' parts
  kRouter,         // float32: routers, gates of shared experts
};
inline constexpr int kMatrixRoles = 7;

// A packed weight: the pieces' rows one below the other.
struct MatrixPlan {
  ops::PackedWeight* out = nullptr;
  MatrixRole role = MatrixRole::kLinear;
  int64_t n = 0, k = 0;
  std::vector<Piece> pieces;
  const ops::WeightFormat* format = nullptr;  // of codes that are taken from the files as they are; null: the role's
};

// A vector, or the embedding table, kept as rows: pieces one after the other.
struct ArrayPlan {
  TensorView* out = nullptr;
  bool activation_type = false;  // true: in the activation type; false: float32
  int64_t rows = 0, cols = 1;    // cols 1: a vector
  std::vector<Piece> pieces;
};

struct WeightPlan {
  std::vector<Parameter> parameters;
  std::vector<MatrixPlan> matrices;
  std::vector<ArrayPlan> arrays;
};

// What the files decide and the config does not.
struct Presences {
  OutputLayer output;
  bool correction_bias = false;
  // The output layer's format is not the embedding's: where both are one tensor, it is packed twice.
  bool head_apart = false;
};

// Fills `weights` with empty places and returns what belongs there. `weights` must stay where it is while the plan is
// in use. kInvalidArgument when the ranks cannot share the heads or widths; kTooLarge for an absurd number of tensors.
Expected<WeightPlan> plan_weights(const DecoderSpec& spec, const Presences& presences, const Shard& shard,
                                  DecoderWeights& weights);

// Matrices of the modules in `ignore` (Quantization::ignore) get the role kPlain. Errors: an entry that names nothing,
// a pattern that is none, a product of which only a part is named.
Status leave_out(const std::vector<std::string>& ignore, WeightPlan& plan);
// The same of those that a checkpoint's config leaves out: for weights that are made from a seed.
void leave_out(const StoredCodes& codes, WeightPlan& plan);

// Elements of all parameters, and those that take part in one token.
struct ParameterCount {
  int64_t all = 0, active = 0;
};
Expected<ParameterCount> count_parameters(const DecoderSpec& spec, const WeightPlan& plan);

}  // namespace tern::model
