// From values to the scales of a quantized weight. Codes are made by the formats (WeightFormat::pack_scaled).
#pragma once

#include <cstdint>
#include <vector>

#include "device/tensor.h"
#include "ops/linear.h"

namespace tern::ops {

// Ranks cut columns at multiples of this where scales serve groups of them.
inline constexpr int64_t kScaleGrain = 64;

// Groups of columns that a slice [.., k] meets.
int64_t scale_groups(const ScaleBlocks& blocks, int64_t k, int64_t first_group);

// Columns of the first group of a slice that begins at column `begin` of the whole matrix; 0: a whole group.
int64_t first_group_of(const ScaleBlocks& blocks, int64_t begin);

// The scale of rows [0, values.dim[0]) x columns [begin, end) of `values` (bf16 or f32). Negative when one of them is
// NaN or infinite.
float scale_of(const ScaleBlocks& blocks, TensorView values, int64_t begin, int64_t end);

// The next power of two from a scale on; 0 stays.
float power_of_two_from(float scale);

// [rows][groups] scales of whole rows of the whole matrix, from a block of scales on. False: as above.
bool scales_of(const ScaleBlocks& blocks, TensorView values, std::vector<float>& scales);

// Codes of rows [n, k] (bf16 or f32), a byte each, by the scales of each row [n, groups of whole columns]: two's
// complement, or e4m3 where `e4m3`. What the formats' pack_scaled() makes of them.
void encode_rows(TensorView source, TensorView scales, const ScaleBlocks& blocks, bool e4m3, TensorView codes);

}  // namespace tern::ops
