#include "cuda/ptx/tensor_map.h"

#include <cuda_runtime.h>

#include "cuda/runtime/driver.h"

namespace tern::cuda {
namespace {

// How much of memory is brought where a box asks for 128 bytes. Boxes are 128 bytes wide, and the one beside is asked
// for next: with slower memory it pays to bring 256 bytes at once (an H100: 2 to 3 % of decode attention and of
// products of few rows), with faster one that costs 6 % of the former and 1 to 3 % of the latter (an H200). GPUs of one
// machine are taken to be alike.
CUtensorMapL2promotion promotion() {
  static const CUtensorMapL2promotion found = [] {
    constexpr int64_t kFast = 4'000'000'000'000;  // bytes per second by clock and width; H100 3.4, H200 4.9 times 1e12
    int device = 0, kilohertz = 0, bits = 0;
    (void)cudaGetDevice(&device);
    (void)cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device);
    (void)cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device);
    const bool fast = int64_t{2} * kilohertz * 1000 * (bits / 8) > kFast;
    return fast ? CU_TENSOR_MAP_L2_PROMOTION_NONE : CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
  }();
  return found;
}

Status encode(const void* base, uint32_t rank, const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
              CUtensorMap* out, CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B) {
  TERN_ASSIGN_OR_RETURN(const Driver* d, driver());
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  const CUresult r =
      d->encode_map(out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, const_cast<void*>(base), dims, strides, box, steps,
                    CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion(), CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) {
    return make_error(ErrorCode::kInternal, "CUDA driver: a tensor map was refused with code " + std::to_string(r));
  }
  return {};
}

}  // namespace

Status tensor_map(const void* base, int64_t rows, int64_t k, int64_t row_stride, int box_rows, CUtensorMap* out) {
  const cuuint64_t dims[2] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(row_stride) * 2};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)};
  return encode(base, 2, dims, strides, box, out);
}

Status tensor_map_plain(const void* base, int64_t rows, int64_t columns, int64_t row_stride, int box_columns,
                        int box_rows, CUtensorMap* out) {
  const cuuint64_t dims[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(row_stride) * 2};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows)};
  return encode(base, 2, dims, strides, box, out, CU_TENSOR_MAP_SWIZZLE_NONE);
}

Status tensor_map_anywhere(const void* base, int64_t rows, int64_t row_stride, int box_rows, CUtensorMap* out) {
  constexpr cuuint64_t kPlanes = cuuint64_t{1} << 31;  // 256 GiB of addresses
  const cuuint64_t dims[3] = {64, static_cast<cuuint64_t>(rows), kPlanes};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(row_stride) * 2, 128};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(box_rows), 1};
  return encode(base, 3, dims, strides, box, out);
}

Status tensor_map_units(const void* base, int64_t n, int64_t row_stride, bool gated, int box_units, int box_planes,
                        CUtensorMap* out, int64_t planes) {
  const auto row = static_cast<cuuint64_t>(row_stride) * 2;
  const int64_t second = gated ? n / 2 : 8, next = gated ? 8 : 16;
  const cuuint64_t dims[5] = {64, 8, 2, static_cast<cuuint64_t>(n / 16), static_cast<cuuint64_t>(planes)};
  const cuuint64_t strides[4] = {row, static_cast<cuuint64_t>(second) * row, static_cast<cuuint64_t>(next) * row, 128};
  const cuuint32_t box[5] = {64, 8, 2, static_cast<cuuint32_t>(box_units), static_cast<cuuint32_t>(box_planes)};
  return encode(base, 5, dims, strides, box, out);
}

Status tensor_map_wide(const void* base, int64_t n, int64_t k, int64_t row_stride, bool gated, CUtensorMap* out) {
  const auto row = static_cast<cuuint64_t>(row_stride) * 2;
  const int64_t second = gated ? n / 2 : 8, next = gated ? 8 : 16;
  const cuuint64_t dims[4] = {static_cast<cuuint64_t>(k), 8, 2, static_cast<cuuint64_t>(n / 16)};
  const cuuint64_t strides[3] = {row, static_cast<cuuint64_t>(second) * row, static_cast<cuuint64_t>(next) * row};
  const cuuint32_t box[4] = {256, 8, 2, 1};
  return encode(base, 4, dims, strides, box, out, CU_TENSOR_MAP_SWIZZLE_NONE);
}

Status tensor_map_stripes(const void* base, int piece_bytes, int64_t pieces, int64_t stripes, int64_t stripe_bytes,
                          int box_pieces, int box_stripes, CUtensorMap* out) {
  const auto bytes = static_cast<cuuint64_t>(piece_bytes);
  const cuuint64_t dims[3] = {bytes / 2, static_cast<cuuint64_t>(pieces), static_cast<cuuint64_t>(stripes)};
  const cuuint64_t strides[2] = {bytes, static_cast<cuuint64_t>(stripe_bytes)};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(bytes / 2), static_cast<cuuint32_t>(box_pieces),
                             static_cast<cuuint32_t>(box_stripes)};
  return encode(base, 3, dims, strides, box, out, CU_TENSOR_MAP_SWIZZLE_NONE);
}

Status tensor_map_pages(const void* base, int64_t values, int64_t rows, int64_t block_bytes, int box_rows,
                        CUtensorMap* out) {
  constexpr cuuint64_t kBlocks = cuuint64_t{1} << 31;
  const cuuint64_t dims[3] = {static_cast<cuuint64_t>(values), static_cast<cuuint64_t>(rows), kBlocks};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(values) * 2, static_cast<cuuint64_t>(block_bytes)};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(box_rows), 1};
  return encode(base, 3, dims, strides, box, out);
}

Status tensor_map_heads(const void* base, int64_t values, int64_t heads, int64_t tokens, int64_t head_stride,
                        int64_t token_stride, int box_heads, int box_tokens, CUtensorMap* out) {
  const cuuint64_t dims[3] = {static_cast<cuuint64_t>(values), static_cast<cuuint64_t>(heads),
                              static_cast<cuuint64_t>(tokens)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(head_stride) * 2, static_cast<cuuint64_t>(token_stride) * 2};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(box_heads), static_cast<cuuint32_t>(box_tokens)};
  return encode(base, 3, dims, strides, box, out);
}

Status tensor_map_narrow(const void* base, int64_t values, int64_t heads, int64_t tokens, int64_t head_stride,
                         int64_t token_stride, int box_tokens, CUtensorMap* out) {
  const cuuint64_t dims[3] = {static_cast<cuuint64_t>(values), static_cast<cuuint64_t>(heads),
                              static_cast<cuuint64_t>(tokens)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(head_stride) * 2, static_cast<cuuint64_t>(token_stride) * 2};
  const cuuint32_t box[3] = {16, 1, static_cast<cuuint32_t>(box_tokens)};
  return encode(base, 3, dims, strides, box, out, CU_TENSOR_MAP_SWIZZLE_32B);
}

}  // namespace tern::cuda
