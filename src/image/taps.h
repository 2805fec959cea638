// Inside the room: the coefficients of one direction of a resize.
#pragma once

#include <cstdint>
#include <vector>

#include "image/kernels.h"
#include "image/resize.h"

namespace tern::image {

// For each pixel of the result: its first source pixel, its number of taps, and the coefficients in 22-bit fixed point.
struct Taps {
  std::vector<int32_t> first, count, taps;  // taps: [out][stride]
  int stride = 0;                           // the largest count
};

// in and out: 1 to kMaxResizeSide.
Taps make_taps(int in, int out, Filter filter);

// The tables that the kernels read; they point into the object, which must not be moved after table() or row().
class HorizontalTaps {
 public:
  explicit HorizontalTaps(Taps taps, int in);
  HorizontalTable table() const;

 private:
  Taps taps_;
  int windows_ = 0, pairs_ = 0;
  std::vector<int32_t> start_;
  std::vector<int16_t> low_, high_;
};

class VerticalTable {
 public:
  explicit VerticalTable(Taps taps);
  int first(int y) const { return taps_.first[y]; }
  int count(int y) const { return taps_.count[y]; }
  int most() const { return taps_.stride; }
  VerticalTaps row(int y) const;

 private:
  Taps taps_;
  int pairs_ = 0;  // per row
  std::vector<int32_t> low_, high_;
};

}  // namespace tern::image
