// TIFF directories of pictures and of Exif data: every tag that is looked at, and what exif_orientation makes of them.
#include "image/codecs/tiff_directory.h"
#include "image/image.h"

#include <cstdlib>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern::image;
  const auto directory = TiffDirectory::read({data, size});
  if (directory) {
    for (const uint16_t tag : {256, 257, 258, 273, 274, 277, 320, 338, 700}) {
      const uint64_t count = directory->count(tag);
      if (directory->value(tag, count).has_value()) std::abort();
      if (count > 0 && !directory->value(tag, count - 1).has_value()) std::abort();
      if (directory->bytes(tag).size() > size) std::abort();
    }
  }
  std::vector<uint8_t> jpeg{0xff, 0xd8, 0xff, 0xe1, 0, 0};
  if (size + 8 > 0xffff) return 0;
  jpeg[4] = static_cast<uint8_t>((size + 8) >> 8);
  jpeg[5] = static_cast<uint8_t>(size + 8);
  for (const char c : {'E', 'x', 'i', 'f', '\0', '\0'}) jpeg.push_back(static_cast<uint8_t>(c));
  jpeg.insert(jpeg.end(), data, data + size);
  const int turn = exif_orientation(jpeg.data(), jpeg.size());
  if (turn < 1 || turn > 8) std::abort();
  return 0;
}
