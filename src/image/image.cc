#include "image/image.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "image/kernels.h"

namespace tern::image {

const char* mode_name(Mode mode) {
  switch (mode) {
    case Mode::k1:
      return "1";
    case Mode::kL:
      return "L";
    case Mode::kLA:
      return "LA";
    case Mode::kP:
      return "P";
    case Mode::kRGB:
      return "RGB";
    case Mode::kRGBA:
      return "RGBA";
    case Mode::kCMYK:
      return "CMYK";
    case Mode::kI16:
      return "I;16";
  }
  return "?";
}

int bytes_per_pixel(Mode mode) {
  switch (mode) {
    case Mode::k1:
    case Mode::kL:
    case Mode::kP:
      return 1;
    case Mode::kLA:
    case Mode::kI16:
      return 2;
    case Mode::kRGB:
      return 3;
    case Mode::kRGBA:
    case Mode::kCMYK:
      return 4;
  }
  return 1;
}

Expected<Image> Image::make(Mode mode, int64_t width, int64_t height) {
  const auto w = checked_cast<int32_t>(width), h = checked_cast<int32_t>(height);
  if (!w || !h || *w < 1 || *h < 1) {
    return make_error(ErrorCode::kInvalidArgument, "a picture's sides must be at least one pixel");
  }
  const auto pixels = checked_mul<uint64_t>(*w, *h);
  const auto bytes = checked_mul<uint64_t>(*pixels, bytes_per_pixel(mode));
  Image image;
  image.mode_ = mode;
  image.width_ = *w;
  image.height_ = *h;
  if (bytes && *bytes < SIZE_MAX - kPixelTail) {
    const size_t room = *bytes + kPixelTail;
    image.data_ = {static_cast<uint8_t*>(take_pages(room)), Free{room}};
  }
  if (!image.data_) return make_error(ErrorCode::kResourceExhausted, "not enough memory for the picture");
  std::memset(image.data_.get() + *bytes, 0, kPixelTail);
  return image;
}

namespace {

HashLanes first_lanes(HashKey key) {
  HashLanes lanes;
  const uint64_t start[4] = {key.k0 ^ 0x736f6d6570736575, key.k1 ^ 0x646f72616e646f6d, key.k0 ^ 0x6c7967656e657261,
                             key.k1 ^ 0x7465646279746573};
  for (int i = 0; i < 4; ++i) std::fill_n(lanes.v[i], 8, start[i]);
  return lanes;
}

}  // namespace

// Bytes go through eight keyed SipHash states side by side; their final states and all that is left go through one.
Fingerprinter::Fingerprinter(HashKey key, Isa isa) : key_(key), isa_(isa), lanes_(first_lanes(key)) {}

void Fingerprinter::add(const Image& image, int rows) {
  const size_t blocks = (image.row_bytes() * static_cast<size_t>(rows) - done_) / 64;
  kernels_for(isa_).hash(&lanes_, image.data() + done_, blocks);
  done_ += blocks * 64;
}

Hash128 Fingerprinter::finish(const Image& image) const {
  struct {
    HashLanes lanes;
    uint64_t width, height, mode;
    uint8_t tail[64];
    uint8_t palette[768];
    uint8_t padding[40];
  } record{};
  static_assert(sizeof(record) == 1152, "no hidden padding");
  record.lanes = lanes_;
  std::memcpy(record.tail, image.data() + done_, image.size_bytes() - done_);
  record.width = image.width();
  record.height = image.height();
  record.mode = static_cast<uint64_t>(image.mode());
  if (image.mode() == Mode::kP) std::memcpy(record.palette, image.palette.data(), sizeof(record.palette));
  return siphash128(key_, &record, sizeof(record));
}

Hash128 hash_file(std::span<const uint8_t> file, HashKey key, Isa isa) {
  struct {
    HashLanes lanes;
    uint64_t size;
    uint8_t tail[64];
    uint8_t padding[56];
  } record{};
  static_assert(sizeof(record) == 384, "no hidden padding");
  record.lanes = first_lanes(key);
  const size_t blocks = file.size() / 64, done = blocks * 64;
  kernels_for(isa).hash(&record.lanes, file.data(), blocks);
  if (file.size() > done) std::memcpy(record.tail, file.data() + done, file.size() - done);
  record.size = file.size();
  return siphash128(key, &record, sizeof(record));
}

Hash128 fingerprint(const Image& image, HashKey key, Isa isa) {
  Fingerprinter all(key, isa);
  all.add(image, image.height());
  return all.finish(image);
}

}  // namespace tern::image
