// Where a static export keeps every parameter: which part of which rank's tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "model/decoder_spec.h"
#include "model/paddle/weight_only.h"
#include "model/static/static_folder.h"
#include "model/weights/parameter.h"
#include "model/weights/weight_plan.h"

namespace tern::model {

// A matrix [n, k] (out, in), or a vector, in one rank's tensor.
struct StaticMatrix {
  enum class Kind : uint8_t {
    kStraight,    // values [n, k]
    kSwapped,     // values [k, n]
    kWeightOnly,  // codes of int8 or int4
    kFloat8,      // e4m3 [n, k] with a scale for each block of 128 x 128
  };
  Kind kind = Kind::kStraight;
  const StoredTensor* tensor = nullptr;
  const char* data = nullptr;  // of this matrix, where experts lie one behind the other
  int64_t n = 0, k = 0;
  WeightOnlyLayout layout = {};
  const StoredTensor* scales = nullptr;
  int64_t first_scale = 0;   // of this matrix
  int64_t group = 0;         // columns that a scale serves; 0: all
  int64_t section_rows = 0;  // kFloat8: rows after which blocks begin anew

  bool coded() const { return kind == Kind::kWeightOnly || kind == Kind::kFloat8; }
  int64_t scale_groups() const { return group == 0 ? 1 : (k + group - 1) / group; }
};

// Rows and columns of a parameter that lie together in one rank.
struct StaticPart {
  int64_t row = 0, rows = 0, col = 0, cols = 0;  // of the parameter
  int64_t at_row = 0, at_col = 0;                // the first of them in `matrix`
  StaticMatrix matrix;
};

struct StaticPlace {
  std::vector<StaticPart> parts;
  int64_t group = 0;  // of codes: columns of the groups that a format keeps their scales by when parts are joined
};

// Every parameter of a plan. All missing and wrongly shaped tensors are one kCorrupt error, as are layers that the
// spec does not have.
Expected<std::vector<StaticPlace>> find_static_places(const DecoderSpec& spec, const StaticFolder& folder,
                                                      const std::vector<Parameter>& parameters);

// The tensors outside of layers, told by shape and use; null: there is none.
struct StaticTables {
  const StaticParameter* embedding = nullptr;
  const StaticParameter* norm = nullptr;
  const StaticParameter* head = nullptr;
};
Expected<StaticTables> find_static_tables(const DecoderSpec& spec, const StaticFolder& folder);

// What only the files tell.
Expected<Presences> static_presences(const DecoderSpec& spec, const StaticFolder& folder);

}  // namespace tern::model
