// The parameters of a decoder: names, shapes and how ranks share them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/loader.h"

namespace tern::model {

// How a parameter is divided among the ranks of a tensor-parallel group.
enum class ShardRule : uint8_t {
  kReplicated,  // whole on every rank
  kColumn,      // output rows in equal parts
  kRow,         // input columns in equal parts; partial results are summed
  kHeads,       // output rows (or input columns, see axis) by attention head
  kKvHeads,     // output rows by KV head; with more ranks than KV heads, neighbours hold the same head
  kVocabulary,  // rows of the vocabulary, the last rank may hold fewer
};

enum class ParameterKind : uint8_t {
  kLinear,  // a matrix [out, in] that files may store the other way round
  kRouter,  // likewise, but its orientation says nothing about the others (models-ernie-paddleocr.md, trap 3)
  kTable,   // a matrix always stored as is (embedding)
  kNorm,    // a vector around 1
  kBias,    // a vector around 0
};

// Another place where a file may keep a parameter: rows of a fused matrix, or one entry of a stack of matrices.
struct Location {
  std::string name;
  int64_t row = 0, total_rows = 0;  // rows [row, row + rows) of a matrix with total_rows
  int64_t index = 0, count = 0;     // count > 0: entry `index` of a stack [count, ...]
  bool across = false;              // a square router is stored [in, out] here
};

struct Parameter {
  std::string name;  // canonical: Hugging Face's, prefix "model."
  ParameterKind kind = ParameterKind::kLinear;
  int64_t rows = 0, cols = 1;  // logical [out, in]; vectors: [rows]
  ShardRule rule = ShardRule::kReplicated;
  int axis = 0;       // 0: rows are divided, 1: columns
  int64_t units = 1;  // heads, or values that must stay together: (axis length) / units is one unit
  int expert = -1;    // expert number; with expert parallelism its rank holds the whole, others nothing
  bool optional = false;
  std::vector<Location> others;  // tried in this order after `name`; one name may be there in several shapes
  bool across = false;           // of `name`, see Location

  bool is_vector() const { return kind == ParameterKind::kNorm || kind == ParameterKind::kBias; }
  int64_t elements() const { return rows * cols; }
};

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// The part of the divided axis that a rank holds. An error says which count does not divide.
Expected<Range> shard_range(const Parameter& parameter, const Shard& shard);

}  // namespace tern::model
