#include <gif_lib.h>

#include <algorithm>
#include <cstring>

#include "image/codecs/decoders.h"

namespace tern::image {
namespace {

// After the last pixel the file may end at once, as for Pillow. The library wants to read on to the end of the data
// blocks there; so where a block's length is missing, it is given a zero, which ends the blocks. Where pixels are still
// missing that is an error of the library.
struct Source {
  const uint8_t* at;
  size_t left;
  bool in_blocks = false;  // reads alternate between a length and that many bytes
  int body = 0;            // the length that was read last
  bool ended = false;
};

int read_bytes(GifFileType* gif, GifByteType* out, int count) {
  auto* source = static_cast<Source*>(gif->UserData);
  if (count <= 0) return 0;
  const bool is_length = source->in_blocks && source->body == 0;
  if (static_cast<size_t>(count) > source->left) {
    source->ended = true;
    if (!is_length) return 0;
    *out = 0;
    return count;
  }
  std::memcpy(out, source->at, count);
  source->at += count;
  source->left -= count;
  source->body = is_length ? *out : 0;
  return count;
}

class Reader {
 public:
  explicit Reader(Bytes file) : source_{file.data(), file.size()} {
    int code = 0;
    gif_ = DGifOpen(&source_, read_bytes, &code);
    no_memory_ = code == D_GIF_ERR_NOT_ENOUGH_MEM;
  }
  ~Reader() {
    int code = 0;
    if (gif_ != nullptr) DGifCloseFile(gif_, &code);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  GifFileType* get() { return gif_; }
  void enter_blocks() { source_.in_blocks = true; }
  Error error() const {
    if (source_.ended) return error_truncated();
    const bool memory = no_memory_ || (gif_ != nullptr && gif_->Error == D_GIF_ERR_NOT_ENOUGH_MEM);
    return memory ? error_memory() : error_damaged();
  }

 private:
  Source source_;
  GifFileType* gif_ = nullptr;
  bool no_memory_ = false;
};

// Goes to the first frame's pixels. transparent: the index that the frame's control block names, or 0.
bool find_frame(GifFileType* gif, int* transparent) {
  for (;;) {
    GifRecordType record = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(gif, &record) != GIF_OK) return false;
    if (record == IMAGE_DESC_RECORD_TYPE) return true;
    if (record != EXTENSION_RECORD_TYPE) return false;
    int code = 0;
    GifByteType* block = nullptr;
    if (DGifGetExtension(gif, &code, &block) != GIF_OK) return false;
    if (code == GRAPHICS_EXT_FUNC_CODE && block != nullptr && block[0] >= 4 && (block[1] & 1) != 0) {
      *transparent = block[4];
    }
    while (block != nullptr) {
      if (DGifGetExtensionNext(gif, &block) != GIF_OK) return false;
    }
  }
}

// A palette whose entry i is the gray i says nothing: Pillow opens such a picture as L.
bool is_gray_ramp(const ColorMapObject& map) {
  for (int i = 0; i < map.ColorCount; ++i) {
    const GifColorType& c = map.Colors[i];
    if (c.Red != i || c.Green != i || c.Blue != i) return false;
  }
  return true;
}

bool read_frame(GifFileType* gif, Image* image) {
  const GifImageDesc& frame = gif->Image;
  const auto line = [&](int y) {
    uint8_t* row = image->row(frame.Top + y) + frame.Left;
    return DGifGetLine(gif, row, frame.Width) == GIF_OK;
  };
  if (!frame.Interlace) {
    for (int y = 0; y < frame.Height; ++y) {
      if (!line(y)) return false;
    }
    return true;
  }
  static constexpr int kFirst[] = {0, 4, 2, 1}, kStep[] = {8, 8, 4, 2};
  for (int pass = 0; pass < 4; ++pass) {
    for (int y = kFirst[pass]; y < frame.Height; y += kStep[pass]) {
      if (!line(y)) return false;
    }
  }
  return true;
}

}  // namespace

Expected<Image> decode_gif(Bytes file, const DecodeLimits& limits) {
  if (file.size() < 13) return error_truncated();
  Reader reader(file);
  GifFileType* gif = reader.get();
  if (gif == nullptr) return reader.error();
  int transparent = 0;
  if (!find_frame(gif, &transparent)) return reader.error();
  if (DGifGetImageDesc(gif) != GIF_OK) return reader.error();
  reader.enter_blocks();
  const GifImageDesc& frame = gif->Image;
  if (frame.Width <= 0 || frame.Height <= 0 || frame.Left < 0 || frame.Top < 0) return error_damaged();
  // A frame that reaches over the screen enlarges it.
  const uint64_t width = std::max<uint64_t>(gif->SWidth, static_cast<uint64_t>(frame.Left) + frame.Width);
  const uint64_t height = std::max<uint64_t>(gif->SHeight, static_cast<uint64_t>(frame.Top) + frame.Height);
  TERN_RETURN_IF_ERROR(check_size(width, height, limits));
  const ColorMapObject* map = frame.ColorMap != nullptr ? frame.ColorMap : gif->SColorMap;
  const bool gray = map == nullptr || is_gray_ramp(*map);
  TERN_ASSIGN_OR_RETURN(Image image, Image::make(gray ? Mode::kL : Mode::kP, width, height));
  if (!gray) {
    for (int i = 0; i < map->ColorCount && i < 256; ++i) {
      image.palette[3 * i] = map->Colors[i].Red;
      image.palette[3 * i + 1] = map->Colors[i].Green;
      image.palette[3 * i + 2] = map->Colors[i].Blue;
    }
  }
  if (image.size_bytes() != static_cast<size_t>(frame.Width) * frame.Height) {
    std::memset(image.data(), transparent, image.size_bytes());
  }
  if (!read_frame(gif, &image)) return reader.error();
  return image;
}

}  // namespace tern::image
