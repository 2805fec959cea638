#include "model/paddle/weight_only.h"

#include <array>

namespace tern::model {
namespace {

// Where a code is: a byte, and the bits in it.
struct Place {
  int64_t byte;
  int shift;
};

// Columns of the file that hold columns 0 to 7 of eight (int4), of columns that are regrouped for 7.0.
constexpr std::array<int64_t, 8> kFromEight = {0, 4, 1, 5, 2, 6, 3, 7};
// Of four (int8): its own inverse.
constexpr std::array<int64_t, 4> kFromFour = {0, 2, 1, 3};

// A row (n) of the matrix: where its codes are.
class RowPlaces {
 public:
  RowPlaces(const WeightOnlyLayout& l, int64_t row) : l_(l) {
    if (l.columns_only) {
      base_ = l.bits == 8 ? row / 4 * 4 + kFromFour[static_cast<size_t>(row % 4)]
                          : row / 8 * 8 + kFromEight[static_cast<size_t>(row % 8)];
    } else {
      // Two rows take turns every 64 bytes (int8), four every 32 (int4).
      base_ = l.bits == 8 ? 64 * (row % 2) + 2 * l.k * (row / 2) : 32 * (row % 4) + 2 * l.k * (row / 4);
    }
  }
  Place operator()(int64_t col) const {
    if (l_.columns_only) {
      const int64_t at = col * l_.n + base_;
      return l_.bits == 8 ? Place{at, 0} : Place{at / 2, static_cast<int>(at % 2) * 4};
    }
    const Place& in = (l_.bits == 8 ? kWithin8 : kWithin4)[static_cast<size_t>(col % 64)];
    return {base_ + 128 * (col / 64) + in.byte, in.shift};
  }

 private:
  using Within = std::array<Place, 64>;
  static constexpr Within kWithin8 = [] {
    Within w{};
    for (int64_t k = 0; k < 64; ++k) {
      const int64_t r = k % 16;
      w[static_cast<size_t>(k)] = {16 * (k / 16) + (r < 8 ? 2 * r : 2 * (r - 8) + 1), 0};
    }
    return w;
  }();
  // Bytes of two neighbouring columns, the first in the low bits; then of each four bytes 0 and 2, 1 and 3 exchange
  // nibbles: low ones into the first, high ones into the second.
  static constexpr Within kWithin4 = [] {
    Within w{};
    for (int64_t k = 0; k < 64; ++k) {
      const int64_t b = k / 2, r = b % 8, t = r < 4 ? 2 * r : 2 * (r - 4) + 1;
      const int64_t at = 16 * (b / 16) + 2 * t + b % 16 / 8, of_four = at % 4;
      w[static_cast<size_t>(k)] = {at - of_four + of_four % 2 + 2 * (k % 2), static_cast<int>(of_four / 2) * 4};
    }
    return w;
  }();

  const WeightOnlyLayout& l_;
  int64_t base_;
};

}  // namespace

bool WeightOnlyLayout::possible() const { return n > 0 && k > 0 && n % 16 == 0 && (columns_only || k % 64 == 0); }

void WeightOnlyLayout::read(const char* tensor, int64_t row, int64_t col, TensorView to) const {
  const int bias = bits == 8 ? 128 : 8, mask = bits == 8 ? 255 : 15;
  for (int64_t r = 0; r < to.dim[0]; ++r) {
    const RowPlaces places(*this, row + r);
    auto* out = reinterpret_cast<int8_t*>(to.row_bytes(r));
    for (int64_t c = 0; c < to.dim[1]; ++c) {
      const Place p = places(col + c);
      out[c] = static_cast<int8_t>((static_cast<uint8_t>(tensor[p.byte]) >> p.shift & mask) - bias);
    }
  }
}

}  // namespace tern::model
