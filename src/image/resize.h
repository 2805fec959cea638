// Resizing of RGB pictures as Pillow does it on uint8 (Image.resize with reducing_gap None): antialiased filters, a
// horizontal and a vertical pass with a rounding to uint8 in between (the vertical one first where a picture more than
// 100 times as tall as wide becomes shorter), coefficients of 22 bits. Bit-equal to Pillow 12.3.0 (RULES.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "image/image.h"

namespace tern::image {

// Numbers are Pillow's `resample` values.
enum class Filter : uint8_t { kLanczos = 1, kBilinear = 2, kBicubic = 3 };

// Longest side of a source or a result, in pixels.
inline constexpr int kMaxResizeSide = 1 << 16;

// Filters and sizes of a resize, for any number of resizers at once.
struct ResizeTables;
// Errors: kInvalidArgument for a side below 1, kTooLarge above kMaxResizeSide.
Expected<std::shared_ptr<const ResizeTables>> make_resize_tables(int from_width, int from_height, int width, int height,
                                                                 Filter filter);
// Rows [begin, end).
struct Rows {
  int begin = 0, end = 0;
};
// Rows of the source that are read for these rows of the result, when `begin` is the first one that a resizer makes.
Rows source_rows(const ResizeTables& tables, const Rows& made);

// The rows of a resized picture, from the top. Holds only as many rows of the intermediate picture as one row of the
// result needs.
class RowResizer {
 public:
  // source: mode RGB; must outlive the resizer. Errors: kInvalidArgument for a side below 1 or another mode, kTooLarge
  // above kMaxResizeSide, kResourceExhausted.
  static Expected<RowResizer> make(const Image& source, int width, int height, Filter filter, Isa isa);
  // kInvalidArgument for a source of another size than the tables'.
  static Expected<RowResizer> make(const Image& source, std::shared_ptr<const ResizeTables> tables, Isa isa);
  RowResizer(RowResizer&&) noexcept;
  RowResizer& operator=(RowResizer&&) noexcept;
  ~RowResizer();

  int width() const;
  int height() const;
  // Lets go of the rows before `y`, which are not made: the next one is row y. Not backwards.
  void skip_to(int y);
  // The next row: a pointer to width * 3 bytes, valid until the next call. At most height() calls.
  const uint8_t* next();
  // The next row into out, of which exactly width * 3 bytes are written.
  void next_into(uint8_t* out);

 private:
  struct State;
  explicit RowResizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The whole picture at once; an equal size is a copy. Errors as RowResizer::make.
Expected<Image> resize_rgb(const Image& source, int width, int height, Filter filter, Isa isa = active_isa());

}  // namespace tern::image
