#include "model/static/static_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bf16.h"
#include "base/checked.h"
#include "base/float8.h"

namespace tern::model {
namespace {

float scale_at(const StoredTensor& t, int64_t index) {
  const char* at = t.data + index * static_cast<int64_t>(file_type_bytes(t.dtype));
  if (t.dtype == FileType::kF32) {
    float v;
    std::memcpy(&v, at, sizeof v);
    return v;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return t.dtype == FileType::kF16 ? half_to_float(bits) : to_float(bf16{bits});
}

// A part's values as an entry of a checkpoint.
Stored stored_values(const StaticPart& part) {
  const StaticMatrix& m = part.matrix;
  const bool swapped = m.kind == StaticMatrix::Kind::kSwapped;
  const int64_t stride = swapped ? m.n : m.k;
  const int64_t at = swapped ? part.at_col * stride + part.at_row : part.at_row * stride + part.at_col;
  return {m.tensor, m.data + at * static_cast<int64_t>(file_type_bytes(m.tensor->dtype)), stride, swapped};
}

TensorView block_of(TensorView v, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  return tensor2(v.row_bytes(row) + col * static_cast<int64_t>(dtype_bytes(v.dtype)), v.dtype, rows, cols, v.stride[0]);
}

}  // namespace

StaticSource::StaticSource(const std::vector<Parameter>& parameters, std::vector<StaticPlace> places)
    : parameters_(parameters), places_(std::move(places)) {
  std::vector<Stored> stored;
  for (const StaticPlace& place : places_) {
    first_part_.push_back(static_cast<int>(parts_.size()));
    for (const StaticPart& part : place.parts) {
      Parameter& p = parts_.emplace_back();
      p.rows = part.rows, p.cols = part.cols;
      stored.push_back(part.matrix.coded() ? Stored{} : stored_values(part));
    }
  }
  values_.emplace(parts_, std::move(stored));
}

template <class F>
void StaticSource::for_overlaps(const Piece& piece, F&& f) const {
  const auto p = static_cast<size_t>(piece.parameter);
  for (size_t i = 0; i < places_[p].parts.size(); ++i) {
    const StaticPart& part = places_[p].parts[i];
    const int64_t row = std::max(piece.row, part.row), row_end = std::min(piece.row + piece.rows, part.row + part.rows);
    const int64_t col = std::max(piece.col, part.col), col_end = std::min(piece.col + piece.cols, part.col + part.cols);
    if (row >= row_end || col >= col_end) continue;
    f(Overlap{part, first_part_[p] + static_cast<int>(i), row - part.row, row_end - row, col - part.col, col_end - col,
              row - piece.row, col - piece.col});
  }
}

DType StaticSource::natural_type(int parameter) const {
  const StaticMatrix& m = places_[static_cast<size_t>(parameter)].parts.front().matrix;
  return !m.coded() && m.tensor->dtype == FileType::kBF16 ? DType::kBF16 : DType::kF32;
}

std::optional<DType> StaticSource::code_type(int parameter) const {
  const StaticMatrix& m = places_[static_cast<size_t>(parameter)].parts.front().matrix;
  if (!m.coded()) return std::nullopt;
  return m.kind == StaticMatrix::Kind::kFloat8 ? DType::kF8E4M3 : DType::kI8;
}

int64_t StaticSource::group_of(const Piece& piece) const {
  const StaticPlace& place = places_[static_cast<size_t>(piece.parameter)];
  const int64_t own = place.parts.front().matrix.group;
  bool alone = true;
  for (const StaticPart& part : place.parts) {
    const bool met = piece.col < part.col + part.cols && part.col < piece.col + piece.cols;
    if (met) alone = alone && part.col <= piece.col && piece.col + piece.cols <= part.col + part.cols;
    // Groups are counted from the matrix's first column.
    if (met && own > 0) alone = alone && part.col % own == 0;
  }
  return alone ? own : place.group;
}

std::string StaticSource::code_format(const Piece& piece) const {
  const StaticMatrix& m = places_[static_cast<size_t>(piece.parameter)].parts.front().matrix;
  if (!m.coded()) return "";
  if (m.kind == StaticMatrix::Kind::kFloat8) return "block_wise_fp8";
  const int64_t group = group_of(piece);
  return fmt::format("wint{}{}", m.layout.bits, group == 0 ? "" : fmt::format("-{}", group));
}

Status StaticSource::read_block(const Overlap& o, TensorView codes) const {
  const StaticMatrix& m = o.part.matrix;
  const int64_t row = o.part.at_row + o.row, col = o.part.at_col + o.col;
  if (m.kind == StaticMatrix::Kind::kWeightOnly) {
    m.layout.read(m.data, row, col, codes);
    return {};
  }
  bool good = true;
  for (int64_t r = 0; r < o.rows; ++r) {
    char* out = codes.row_bytes(r);
    std::memcpy(out, m.data + (row + r) * m.k + col, static_cast<size_t>(o.cols));
    for (int64_t c = 0; c < o.cols; ++c) good = good && (out[c] & 0x7f) != 0x7f;
  }
  return good ? Status() : Status(make_error(ErrorCode::kCorrupt, "holds NaN"));
}

// Scales of the block's rows, by groups of the piece's columns.
Status StaticSource::read_scales(const Piece& piece, const Overlap& o, int64_t group, TensorView scales) const {
  const StaticMatrix& m = o.part.matrix;
  const int64_t width = group == 0 ? parameters_[static_cast<size_t>(piece.parameter)].cols : group;
  const int64_t first = piece.col / width, own = m.scale_groups();
  const int64_t begin = o.part.col + o.col, end = begin + o.cols;
  for (int64_t r = 0; r < o.rows; ++r) {
    const int64_t row = o.part.at_row + o.row + r;
    for (int64_t g = begin / width; g <= (end - 1) / width; ++g) {
      const int64_t col = o.part.at_col + std::max(g * width, begin) - o.part.col;
      int64_t at = m.first_scale;
      if (m.kind == StaticMatrix::Kind::kFloat8) {
        const int64_t blocks = ceil_div<int64_t>(m.section_rows, 128);
        at += (row / m.section_rows * blocks + row % m.section_rows / 128) * own + col / 128;
      } else {
        at += (m.group == 0 ? 0 : col / m.group) * m.n + row;
      }
      const float scale = scale_at(*m.scales, at);
      if (!std::isfinite(scale))
        return make_error(ErrorCode::kCorrupt,
                          fmt::format("has the scale {} for row {}", scale, o.part.row + o.row + r));
      reinterpret_cast<float*>(scales.row_bytes(o.piece_row + r))[g - first] = scale;
    }
  }
  return {};
}

Status StaticSource::read_codes(const Piece& piece, TensorView codes, TensorView scales, TensorView zeros) const {
  if (zeros.data != nullptr) return make_error(ErrorCode::kInternal, "static exports have no zero points");
  Status status;
  const int64_t group = group_of(piece);
  for_overlaps(piece, [&](const Overlap& o) {
    if (status.ok()) status = read_block(o, block_of(codes, o.piece_row, o.rows, o.piece_col, o.cols));
    if (status.ok()) status = read_scales(piece, o, group, scales);
  });
  if (status.ok()) return {};
  return make_error(status.error().code, fmt::format("{} {}", name_of(piece), status.error().message));
}

// Codes times their scales.
Status StaticSource::read_coded(const Piece& piece, TensorView values) const {
  const int64_t group = group_of(piece);
  const int64_t width = group == 0 ? parameters_[static_cast<size_t>(piece.parameter)].cols : group;
  const int64_t first = piece.col / width, groups = (piece.col + piece.cols - 1) / width - first + 1;
  const DType type = *code_type(piece.parameter);
  std::vector<uint8_t> codes(static_cast<size_t>(piece.rows * piece.cols));
  std::vector<float> scales(static_cast<size_t>(piece.rows * groups));
  TERN_RETURN_IF_ERROR(read_codes(piece, tensor2(codes.data(), type, piece.rows, piece.cols),
                                  tensor2(scales.data(), DType::kF32, piece.rows, groups), {}));
  for (int64_t r = 0; r < piece.rows; ++r) {
    for (int64_t c = 0; c < piece.cols; ++c) {
      const uint8_t q = codes[static_cast<size_t>(r * piece.cols + c)];
      const float whole = type == DType::kF8E4M3 ? from_e4m3(q) : static_cast<float>(static_cast<int8_t>(q));
      const float v = whole * scales[static_cast<size_t>(r * groups + (piece.col + c) / width - first)];
      char* to = piece.transposed ? values.row_bytes(c) : values.row_bytes(r);
      const int64_t at = piece.transposed ? r : c;
      if (values.dtype == DType::kBF16) {
        reinterpret_cast<bf16*>(to)[at] = to_bf16(v);
      } else {
        reinterpret_cast<float*>(to)[at] = v;
      }
    }
  }
  return {};
}

void StaticSource::read(const Piece& piece, TensorView dst) const {
  if (code_type(piece.parameter)) {
    if (Status status = read_coded(piece, dst); !status.ok()) {
      const std::lock_guard lock(mutex_);
      if (error_.ok()) error_ = std::move(status);
    }
    return;
  }
  for_overlaps(piece, [&](const Overlap& o) {
    const Piece part{o.index, o.row, o.rows, o.col, o.cols, piece.transposed};
    const TensorView to = piece.transposed ? block_of(dst, o.piece_col, o.cols, o.piece_row, o.rows)
                                           : block_of(dst, o.piece_row, o.rows, o.piece_col, o.cols);
    values_->read(part, to);
  });
}

TensorView StaticSource::in_place(const Piece& piece) const {
  TensorView found;
  for_overlaps(piece, [&](const Overlap& o) {
    if (!o.part.matrix.coded() && o.rows == piece.rows && o.cols == piece.cols)
      found = values_->in_place({o.index, o.row, o.rows, o.col, o.cols, piece.transposed});
  });
  return found;
}

bool StaticSource::scattered(const Piece& piece) const {
  bool any = false;
  for_overlaps(piece, [&](const Overlap& o) {
    const StaticMatrix& m = o.part.matrix;
    any = any ||
          (m.kind == StaticMatrix::Kind::kWeightOnly ? m.layout.columns_only
                                                     : (m.kind == StaticMatrix::Kind::kSwapped) != piece.transposed);
  });
  return any;
}

void StaticSource::expect(const Piece& piece) const {
  for_overlaps(piece, [&](const Overlap& o) {
    if (!o.part.matrix.coded()) values_->expect({o.index, o.row, o.rows, o.col, o.cols, piece.transposed});
  });
}

void StaticSource::release(const Piece& piece) const {
  for_overlaps(piece, [&](const Overlap& o) {
    const StaticMatrix& m = o.part.matrix;
    if (!m.coded()) return values_->release({o.index, o.row, o.rows, o.col, o.cols, piece.transposed});
    // Rows of codes lie below each other, but for those regrouped by columns.
    const auto bytes = static_cast<size_t>(m.kind == StaticMatrix::Kind::kFloat8 ? m.n * m.k : m.layout.bytes());
    const auto row = [&](int64_t r) { return bytes / static_cast<size_t>(m.n) * static_cast<size_t>(r); };
    const size_t begin = m.layout.columns_only ? 0 : row(o.part.at_row + o.row);
    const size_t end = m.layout.columns_only ? bytes : row(o.part.at_row + o.row + o.rows);
    m.tensor->file->release(m.data + begin, end - begin);
  });
}

Status StaticSource::check(const Piece& piece) const {
  {
    const std::lock_guard lock(mutex_);
    if (!error_.ok()) return error_;
  }
  Status status;
  for_overlaps(piece, [&](const Overlap& o) {
    const MappedFile& file = *o.part.matrix.tensor->file;
    if (status.ok() && file.lost()) status = file.check();
  });
  return status;
}

FileType StaticSource::value_type(int parameter) const {
  return places_[static_cast<size_t>(parameter)].parts.front().matrix.tensor->dtype;
}

void StaticSource::copy_rows(int parameter, int64_t row, int64_t rows, char* out) const {
  const Parameter& p = parameters_[static_cast<size_t>(parameter)];
  const auto bytes = static_cast<int64_t>(file_type_bytes(value_type(parameter)));
  for_overlaps({parameter, row, rows, 0, p.cols}, [&](const Overlap& o) {
    const Stored s = stored_values(o.part);
    const int64_t down = (s.swapped ? 1 : s.stride) * bytes, along = (s.swapped ? s.stride : 1) * bytes;
    for (int64_t r = 0; r < o.rows; ++r) {
      char* to = out + ((o.piece_row + r) * p.cols + o.piece_col) * bytes;
      const char* from = s.data + (o.row + r) * down + o.col * along;
      for (int64_t c = 0; c < o.cols; ++c) std::memcpy(to + c * bytes, from + c * along, static_cast<size_t>(bytes));
    }
  });
}

}  // namespace tern::model
