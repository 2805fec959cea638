#include "vision/grid_rope.h"

#include <vector>

#include "model/rope/rope_frequencies.h"

namespace tern::vision {

Expected<GridRope> make_grid_rope(int head_dim, double theta, device::Device& device) {
  model::RopeSpec rope;
  rope.dim = head_dim / 2;
  rope.theta = theta;
  std::vector<float> freq = model::make_rope_table(rope, 0).inv_freq;
  const size_t quarter = freq.size(), half = 2 * quarter, bytes = half * sizeof(float);
  freq.reserve(half);
  for (size_t i = 0; i < quarter; ++i) freq.push_back(freq[i]);
  std::vector<uint8_t> axis(quarter, 1);
  axis.resize(half, 2);
  GridRope out;
  TERN_ASSIGN_OR_RETURN(out.memory, device.allocate(bytes + half));
  const device::Stream stream = device.stream();
  device.copy_to_device(out.memory.data(), freq.data(), bytes, stream);
  device.copy_to_device(out.memory.data() + bytes, axis.data(), half, stream);
  TERN_RETURN_IF_ERROR(device.synchronize(stream));
  out.inv_freq = tensor1(out.memory.data(), DType::kF32, static_cast<int64_t>(half));
  out.axis = tensor1(out.memory.data() + bytes, DType::kU8, static_cast<int64_t>(half));
  return out;
}

}  // namespace tern::vision
