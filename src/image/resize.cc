#include "image/resize.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/checked.h"
#include "image/taps.h"

namespace tern::image {

struct ResizeTables {
  int from_width, from_height, width, height;
  std::optional<HorizontalTaps> across;  // empty where the width stays
  std::optional<VerticalTable> down;     // empty where the height stays
  bool down_first;                       // Pillow's exception for very tall pictures that become shorter
};

Expected<std::shared_ptr<const ResizeTables>> make_resize_tables(int from_width, int from_height, int width, int height,
                                                                 Filter filter) {
  if (std::min({from_width, from_height, width, height}) < 1) {
    return make_error(ErrorCode::kInvalidArgument, "only sides of at least one pixel can be resized");
  }
  if (std::max({from_width, from_height, width, height}) > kMaxResizeSide) {
    return make_error(ErrorCode::kTooLarge, "a side of the picture is longer than can be resized");
  }
  auto tables = std::make_shared<ResizeTables>();
  tables->from_width = from_width, tables->from_height = from_height;
  tables->width = width, tables->height = height;
  if (width != from_width) tables->across.emplace(make_taps(from_width, width, filter), from_width);
  if (height != from_height) tables->down.emplace(make_taps(from_height, height, filter));
  tables->down_first = tables->across && from_height > int64_t{100} * from_width && height < from_height;
  return std::shared_ptr<const ResizeTables>(std::move(tables));
}

Rows source_rows(const ResizeTables& t, const Rows& made) {
  if (made.begin >= made.end) return {};
  const int first = t.down ? t.down->first(made.begin) : made.begin;
  const int last = t.down ? t.down->first(made.end - 1) + t.down->count(made.end - 1) : made.end;
  // Rows are taken by fours, and read a little past their ends.
  const int64_t past = ceil_div<int64_t>(kPixelTail, int64_t{3} * t.from_width);
  const int64_t end = first + round_up(last - first, kRowsAtOnce) + past;
  return {first, static_cast<int>(std::min<int64_t>(end, t.from_height))};
}

struct RowResizer::State {
  const Image* source = nullptr;
  const Kernels* kernels = nullptr;
  std::shared_ptr<const ResizeTables> tables;
  int width = 0, height = 0, next = 0;
  const HorizontalTaps* across = nullptr;  // null where the width stays
  const VerticalTable* down = nullptr;     // null where the height stays
  // Rows of the intermediate picture: row y stands at y % ring_rows. Made rows: up to `made`, exclusive.
  std::vector<uint8_t> ring;
  size_t ring_stride = 0;
  int ring_rows = 0, made = 0;
  std::vector<const uint8_t*> rows;
  std::vector<uint8_t> out;
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
    if (tables->down_first) {
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
  TERN_ASSIGN_OR_RETURN(auto tables, make_resize_tables(source.width(), source.height(), width, height, filter));
  return make(source, std::move(tables), isa);
}

Expected<RowResizer> RowResizer::make(const Image& source, std::shared_ptr<const ResizeTables> tables, Isa isa) {
  if (source.mode() != Mode::kRGB || source.width() != tables->from_width || source.height() != tables->from_height) {
    return make_error(ErrorCode::kInvalidArgument, "only RGB pictures of the size that was named can be resized");
  }
  auto state = std::make_unique<State>();
  state->source = &source;
  state->kernels = &kernels_for(isa);
  state->width = tables->width;
  state->height = tables->height;
  if (tables->across) state->across = &*tables->across;
  if (tables->down) state->down = &*tables->down;
  const size_t bytes = static_cast<size_t>(tables->width) * 3;
  if (state->down != nullptr) {
    state->rows.resize(state->down->most());
    state->out.resize(bytes + 2 * kPixelTail);
  }
  if (tables->down_first) {
    state->narrow.resize(static_cast<size_t>(source.width()) * 3 + kPixelTail);
  } else if (state->across != nullptr) {
    state->ring_rows = (state->down != nullptr ? state->down->most() : 1) + kRowsAtOnce - 1;
    state->ring_stride = round_up<size_t>(bytes, 64) + kPixelTail;
    state->ring.resize(state->ring_stride * state->ring_rows);
  }
  state->tables = std::move(tables);
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

}  // namespace tern::image
