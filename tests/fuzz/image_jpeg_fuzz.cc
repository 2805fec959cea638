// A JPEG in one part, and in two as by two threads: the same picture or the same error.
#include "image_fuzz.h"

#include <cstring>

namespace tern::image {
namespace {

// The lower rows come first, from whoever asks for a second thread.
class Both : public RowWatch {
 public:
  void begin(const Image&) override {}
  bool share(Task task) override {
    task();
    return true;
  }
  void rows(int, int) override {}
  void forget() override {}
};

}  // namespace
}  // namespace tern::image

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern::image;
  Image one, two;
  Both both;
  const auto plain = decode_jpeg({data, size}, fuzz_limits(), &one, nullptr);
  const auto shared = decode_jpeg({data, size}, fuzz_limits(), &two, &both);
  if (plain.ok() != shared.ok()) std::abort();
  if (!plain.ok()) {
    if (plain.error().message.empty() || plain.error().message != shared.error().message) std::abort();
    return 0;
  }
  if (one.size_bytes() != two.size_bytes() || std::memcmp(one.data(), two.data(), one.size_bytes()) != 0) std::abort();
  look_at(std::move(one));
  return 0;
}
