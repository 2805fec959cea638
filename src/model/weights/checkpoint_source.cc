#include <algorithm>
#include <cstring>

#include "model/weights/weight_source.h"

namespace tern::model {
namespace {

// Files need not align their tensors; every value goes through memcpy.
struct FromF32 {
  static constexpr size_t kBytes = 4;
  static float load(const char* p) {
    float v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
};
struct FromBf16 {
  static constexpr size_t kBytes = 2;
  static float load(const char* p) {
    bf16 v;
    std::memcpy(&v, p, sizeof v);
    return to_float(v);
  }
};
struct FromF16 {
  static constexpr size_t kBytes = 2;
  static float load(const char* p) {
    uint16_t v;
    std::memcpy(&v, p, sizeof v);
    return half_to_float(v);
  }
};

void store(float* to, float v) { *to = v; }
void store(bf16* to, float v) { *to = to_bf16(v); }

// n x k values: dst row i, column j from src + i * row + j * col (bytes). Small tiles keep both sides in the cache when
// the source runs across.
template <class From, class T>
void copy_block(const char* src, int64_t row, int64_t col, T* dst, int64_t dst_stride, int64_t n, int64_t k) {
  constexpr int64_t kTile = 32;
  if (col == static_cast<int64_t>(From::kBytes)) {
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < k; ++j) store(dst + i * dst_stride + j, From::load(src + i * row + j * col));
    return;
  }
  for (int64_t i0 = 0; i0 < n; i0 += kTile) {
    for (int64_t j0 = 0; j0 < k; j0 += kTile) {
      for (int64_t j = j0; j < std::min(j0 + kTile, k); ++j)
        for (int64_t i = i0; i < std::min(i0 + kTile, n); ++i)
          store(dst + i * dst_stride + j, From::load(src + i * row + j * col));
    }
  }
}

template <class T>
void copy_block(FileType type, const char* src, int64_t row, int64_t col, T* dst, int64_t dst_stride, int64_t n,
                int64_t k) {
  switch (type) {
    case FileType::kF32:
      return copy_block<FromF32>(src, row, col, dst, dst_stride, n, k);
    case FileType::kF16:
      return copy_block<FromF16>(src, row, col, dst, dst_stride, n, k);
    default:
      return copy_block<FromBf16>(src, row, col, dst, dst_stride, n, k);
  }
}

}  // namespace

CheckpointSource::CheckpointSource(const std::vector<Parameter>& parameters, std::vector<Stored> stored)
    : parameters_(parameters), stored_(std::move(stored)) {
  constexpr size_t kWorthTelling = 1 << 20;
  for (const Stored& s : stored_)
    if (s.tensor != nullptr && (s.swapped || (s.coded != nullptr && s.coded->across())) &&
        s.tensor->bytes >= kWorthTelling)
      s.tensor->file->expect_scattered(s.tensor->data, s.tensor->bytes);
}

DType CheckpointSource::natural_type(int parameter) const {
  // Codes times their scales are float32.
  return stored_[static_cast<size_t>(parameter)].tensor->dtype == FileType::kBF16 ? DType::kBF16 : DType::kF32;
}

std::optional<DType> CheckpointSource::code_type(int parameter) const {
  const Stored& s = stored_[static_cast<size_t>(parameter)];
  return s.coded == nullptr ? std::nullopt : std::optional(s.coded->code_type());
}

std::string CheckpointSource::code_format(const Piece& piece) const {
  const Stored& s = stored_[static_cast<size_t>(piece.parameter)];
  return s.coded == nullptr ? std::string() : s.coded->scheme.format();
}

Status CheckpointSource::read_codes(const Piece& p, TensorView codes, TensorView scales, TensorView zeros) const {
  const Stored& s = stored_[static_cast<size_t>(p.parameter)];
  TERN_RETURN_IF_ERROR(s.coded->read_codes(s.row + p.row, p.col, codes));
  return s.coded->read_scales(s.row + p.row, p.rows, p.col, p.cols, scales, zeros);
}

// Codes whose matrix stays in the activation type.
void CheckpointSource::read_coded(const Stored& s, const Piece& p, TensorView dst) const {
  std::vector<float> values(static_cast<size_t>(p.rows * p.cols));
  if (Status status = s.coded->read_values(s.row + p.row, p.col, tensor2(values.data(), DType::kF32, p.rows, p.cols));
      !status.ok()) {
    const std::lock_guard lock(mutex_);
    if (error_.ok()) error_ = std::move(status);
  }
  const int64_t row = (p.transposed ? 1 : p.cols) * 4, col = (p.transposed ? p.cols : 1) * 4;
  const auto* src = reinterpret_cast<const char*>(values.data());
  if (dst.dtype == DType::kBF16) {
    copy_block<FromF32>(src, row, col, dst.as<bf16>(), dst.stride[0], p.target_rows(), p.target_cols());
  } else {
    copy_block<FromF32>(src, row, col, dst.as<float>(), dst.stride[0], p.target_rows(), p.target_cols());
  }
}

void CheckpointSource::read(const Piece& piece, TensorView dst) const {
  const Stored& s = stored_[static_cast<size_t>(piece.parameter)];
  if (s.coded != nullptr) return read_coded(s, piece, dst);
  const auto bytes = static_cast<int64_t>(file_type_bytes(s.tensor->dtype));
  // Byte steps of one logical row and one logical column.
  const int64_t row = (s.swapped ? 1 : s.stride) * bytes, col = (s.swapped ? s.stride : 1) * bytes;
  const char* src = s.data + piece.row * row + piece.col * col;
  const int64_t n = piece.target_rows(), k = piece.target_cols();
  const int64_t dn = piece.transposed ? col : row, dk = piece.transposed ? row : col;
  if (dst.dtype == DType::kBF16) {
    copy_block(s.tensor->dtype, src, dn, dk, dst.as<bf16>(), dst.stride[0], n, k);
  } else {
    copy_block(s.tensor->dtype, src, dn, dk, dst.as<float>(), dst.stride[0], n, k);
  }
}

TensorView CheckpointSource::in_place(const Piece& piece) const {
  const Stored& s = stored_[static_cast<size_t>(piece.parameter)];
  if (s.coded != nullptr || piece.transposed || s.swapped || s.tensor->dtype == FileType::kF16) return {};
  const DType type = s.tensor->dtype == FileType::kBF16 ? DType::kBF16 : DType::kF32;
  const auto bytes = static_cast<int64_t>(dtype_bytes(type));
  const char* p = s.data + (piece.row * s.stride + piece.col) * bytes;
  if (reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) != 0) return {};
  return tensor2(const_cast<char*>(p), type, piece.rows, piece.cols, s.stride);
}

void CheckpointSource::expect(const Piece& piece) const {
  const Stored& s = stored_[static_cast<size_t>(piece.parameter)];
  if (s.swapped || s.coded != nullptr) return;
  const auto bytes = static_cast<int64_t>(file_type_bytes(s.tensor->dtype));
  const char* begin = s.data + piece.row * s.stride * bytes;
  const char* end = s.data + (piece.row + piece.rows) * s.stride * bytes;
  const char* stop = s.tensor->data + s.tensor->bytes;
  s.tensor->file->expect_whole(begin, static_cast<size_t>(std::min(end, stop) - begin));
}

Status CheckpointSource::check(const Piece& piece) const {
  const std::lock_guard lock(mutex_);
  if (!error_.ok()) return error_;
  const MappedFile& file = *stored_[static_cast<size_t>(piece.parameter)].tensor->file;
  return file.lost() ? file.check() : Status();
}

void CheckpointSource::release(const Piece& piece) const {
  const Stored& s = stored_[static_cast<size_t>(piece.parameter)];
  if (s.coded != nullptr) {
    const CodedTensor& t = *s.coded;
    for (const StoredTensor* whole : {t.codes, t.scales, t.zeros}) {
      if (whole == nullptr) continue;
      // Rows below each other are given back alone; else rows share their pages with all others.
      const auto part = [&](int64_t row) {
        return static_cast<size_t>(static_cast<double>(whole->bytes) / static_cast<double>(t.n) *
                                   static_cast<double>(row));
      };
      const size_t begin = t.across() ? 0 : part(s.row + piece.row);
      const size_t end = t.across() ? whole->bytes : std::min(part(s.row + piece.row + piece.rows), whole->bytes);
      whole->file->release(whole->data + begin, end - begin);
    }
    return;
  }
  const auto bytes = static_cast<int64_t>(file_type_bytes(s.tensor->dtype));
  if (s.swapped) {
    // The block's columns run through every stored row.
    const Parameter& p = parameters_[static_cast<size_t>(piece.parameter)];
    return s.tensor->file->release(s.data, static_cast<size_t>(((p.cols - 1) * s.stride + p.rows) * bytes));
  }
  const char* begin = s.data + piece.row * s.stride * bytes;
  const char* end = s.data + (piece.row + piece.rows) * s.stride * bytes;
  const char* stop = s.tensor->data + s.tensor->bytes;
  s.tensor->file->release(begin, static_cast<size_t>(std::min(end, stop) - begin));
}

}  // namespace tern::model
