#include "image_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern::image;
  look_at(decode_gif({data, size}, fuzz_limits()));
  return 0;
}
