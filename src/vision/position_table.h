// A learned table of positions, side x side, resampled to another grid (models-ernie-paddleocr.md 6.2): bilinear, the
// corners' pixels not aligned, as in the original and FastDeploy.
#pragma once

#include <cstdint>

namespace tern::vision {

struct Neighbours {
  int32_t row[4];   // of the table
  float weight[4];  // add up to 1
};

// What patch (y, x) of an h x w grid reads.
Neighbours resampled(int side, int h, int w, int y, int x);

}  // namespace tern::vision
