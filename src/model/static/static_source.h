// Values and codes of a static export, from the tensors of all its ranks.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "model/static/static_places.h"
#include "model/weights/weight_source.h"

namespace tern::model {

class StaticSource final : public WeightSource {
 public:
  // The parameters and the folder that the places are in must outlive it.
  StaticSource(const std::vector<Parameter>& parameters, std::vector<StaticPlace> places);

  DType natural_type(int parameter) const override;
  void read(const Piece& piece, TensorView dst) const override;
  std::optional<DType> code_type(int parameter) const override;
  std::string code_format(const Piece& piece) const override;
  Status read_codes(const Piece& piece, TensorView codes, TensorView scales, TensorView zeros) const override;
  TensorView in_place(const Piece& piece) const override;
  bool scattered(const Piece& piece) const override;
  void expect(const Piece& piece) const override;
  void release(const Piece& piece) const override;
  Status check(const Piece& piece) const override;

  // Columns of the groups by which a block's scales are kept: the files' own where one rank's columns hold all of it;
  // 0: a scale per row.
  int64_t group_of(const Piece& piece) const;
  // Of values: their type in the files, and rows [row, row + rows) as bytes of that type.
  FileType value_type(int parameter) const;
  void copy_rows(int parameter, int64_t row, int64_t rows, char* out) const;

 private:
  // Part `index` of the piece's parameter, and the block of it that is in the piece: in the part's own coordinates,
  // and where it begins in the piece.
  struct Overlap {
    const StaticPart& part;
    int index = 0;
    int64_t row = 0, rows = 0, col = 0, cols = 0;
    int64_t piece_row = 0, piece_col = 0;
  };
  template <class F>
  void for_overlaps(const Piece& piece, F&& f) const;
  Status read_block(const Overlap& o, TensorView codes) const;
  Status read_scales(const Piece& piece, const Overlap& o, int64_t group, TensorView scales) const;
  Status read_coded(const Piece& piece, TensorView values) const;
  std::string name_of(const Piece& piece) const { return parameters_[static_cast<size_t>(piece.parameter)].name; }

  const std::vector<Parameter>& parameters_;
  const std::vector<StaticPlace> places_;
  std::vector<int> first_part_;   // by parameter, in `parts_`
  std::vector<Parameter> parts_;  // every part as a parameter of its own, for the source of values
  std::optional<CheckpointSource> values_;
  mutable std::mutex mutex_;
  mutable Status error_;  // the first of read()
};

}  // namespace tern::model
