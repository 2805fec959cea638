// A model with its tower for verification, and calls of the tower over items of prompts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "model/loader.h"
#include "vision/tower.h"

namespace tern::vision {

struct Encoded {
  device::Buffer memory;
  TensorView rows;  // [tokens, hidden]
  // Rows [begin, begin + count) in host memory.
  Expected<std::vector<float>> values(device::Device& device, int64_t begin, int64_t count) const;
};

// One call over `grids`; `patches` is host memory of the tower's patch type.
Expected<Encoded> encode_items(const Tower& tower, device::Device& device, std::span<const Grid> grids,
                               const void* patches, model::Probe* probe = nullptr);

}  // namespace tern::vision
