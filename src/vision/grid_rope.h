// Rotary angles of patches (models-ernie-paddleocr.md 5.4, 6.2): the first half of a head's pairs turns
// by the patch's row, the second by its column, over the same frequencies.
#pragma once

#include "base/error.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tern::vision {

// What ops::rope_table() reads, on the device.
struct GridRope {
  device::Buffer memory;
  TensorView inv_freq;  // [head_dim / 2] f32
  TensorView axis;      // [head_dim / 2] u8: 1 row, 2 column
};

// Waits for the copies. head_dim is a multiple of 4.
Expected<GridRope> make_grid_rope(int head_dim, double theta, device::Device& device);

}  // namespace tern::vision
