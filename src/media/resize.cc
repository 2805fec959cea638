#include "media/resize.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/checked.h"
#include "media/taps.h"

namespace tern::media {

struct RowResizer::State {
  const Image* source = nullptr;
  const Kernels* kernels = nullptr;
  int width = 0, height = 0, next = 0;
  std::optional<HorizontalTaps> across;  // empty where the width stays
  std::optional<VerticalTable> down;     // empty where the height stays
  // Rows of the intermediate picture: row y stands at y % ring_rows. Made rows: up to `made`, exclusive.
  std::vector<uint8_t> ring;
  size_t ring_stride = 0;
  int ring_rows = 0, made = 0;
  std::vector<const uint8_t*> rows;
  std::vector<uint8_t> out;
  bool down_first = false;
  std::vector<uint8_t> narrow;  // a row of the source's width, made first

  // The row of the intermediate picture; rows are asked for in ascending windows of at most down->most().
  const uint8_t* across_row(int y) {
    if (!across) return source->row(y);
    while (made <= y) {
      const uint8_t* in[kRowsAtOnce];
      uint8_t* to[kRowsAtOnce];
      for (int r = 0; r < kRowsAtOnce; ++r) {
        const int at = std::min(made + r, source->height() - 1);
        in[r] = source->row(at);
        to[r] = &ring[ring_stride * (at % ring_rows)];
      }
      kernels->horizontal(across->table(), in, to);
      made += kRowsAtOnce;
    }
    return &ring[ring_stride * (y % ring_rows)];
  }

  // Into `to`, or where the row already stands when `to` is null.
  const uint8_t* row(uint8_t* to) {
    TERN_CHECK(next < height);
    const int y = next++;
    const size_t bytes = static_cast<size_t>(width) * 3;
    if (!down) {
      const uint8_t* at = across_row(y);
      if (to != nullptr) std::memcpy(to, at, bytes);
      return at;
    }
    const int first = down->first(y), count = down->count(y);
    if (down_first) {
      for (int t = 0; t < count; ++t) rows[t] = source->row(first + t);
      kernels->vertical(down->row(y), rows.data(), narrow.data(), static_cast<size_t>(source->width()) * 3);
      const uint8_t* in[kRowsAtOnce];
      uint8_t* made_at[kRowsAtOnce];  // not `to`: the kernels write past the end
      std::fill_n(in, kRowsAtOnce, narrow.data());
      std::fill_n(made_at, kRowsAtOnce, out.data());
      kernels->horizontal(across->table(), in, made_at);
      if (to != nullptr) std::memcpy(to, out.data(), bytes);
      return out.data();
    }
    for (int t = 0; t < count; ++t) rows[t] = across_row(first + t);
    if (to == nullptr) to = out.data();
    kernels->vertical(down->row(y), rows.data(), to, bytes);
    return to;
  }
};

RowResizer::RowResizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
RowResizer::RowResizer(RowResizer&&) noexcept = default;
RowResizer& RowResizer::operator=(RowResizer&&) noexcept = default;
RowResizer::~RowResizer() = default;

Expected<RowResizer> RowResizer::make(const Image& source, int width, int height, Filter filter, Isa isa) {
  if (source.mode() != Mode::kRGB || source.width() < 1 || width < 1 || height < 1) {
    return make_error(ErrorCode::kInvalidArgument, "only RGB pictures can be resized, to sides of at least one pixel");
  }
  if (std::max({source.width(), source.height(), width, height}) > kMaxResizeSide) {
    return make_error(ErrorCode::kTooLarge, "a side of the picture is longer than can be resized");
  }
  auto state = std::make_unique<State>();
  state->source = &source;
  state->kernels = &kernels_for(isa);
  state->width = width;
  state->height = height;
  if (width != source.width()) state->across.emplace(make_taps(source.width(), width, filter), source.width());
  if (height != source.height()) {
    state->down.emplace(make_taps(source.height(), height, filter));
    state->rows.resize(state->down->most());
    state->out.resize(static_cast<size_t>(width) * 3 + 2 * kPixelTail);
  }
  // Pillow's exception for very tall pictures that become shorter.
  state->down_first = state->across && source.height() > int64_t{100} * source.width() && height < source.height();
  if (state->down_first) {
    state->narrow.resize(static_cast<size_t>(source.width()) * 3 + kPixelTail);
  } else if (state->across) {
    state->ring_rows = (state->down ? state->down->most() : 1) + kRowsAtOnce - 1;
    state->ring_stride = round_up<size_t>(static_cast<size_t>(width) * 3, 64) + kPixelTail;
    state->ring.resize(state->ring_stride * state->ring_rows);
  }
  return RowResizer(std::move(state));
}

void RowResizer::skip_to(int y) {
  TERN_CHECK(y >= state_->next && y <= state_->height);
  state_->next = y;
  if (y < state_->height) state_->made = std::max(state_->made, state_->down ? state_->down->first(y) : y);
}

int RowResizer::width() const { return state_->width; }
int RowResizer::height() const { return state_->height; }
const uint8_t* RowResizer::next() { return state_->row(nullptr); }
void RowResizer::next_into(uint8_t* out) { state_->row(out); }

Expected<Image> resize_rgb(const Image& source, int width, int height, Filter filter, Isa isa) {
  TERN_ASSIGN_OR_RETURN(RowResizer resizer, RowResizer::make(source, width, height, filter, isa));
  TERN_ASSIGN_OR_RETURN(Image image, Image::make(Mode::kRGB, width, height));
  for (int y = 0; y < height; ++y) resizer.next_into(image.row(y));
  return image;
}

}  // namespace tern::media
