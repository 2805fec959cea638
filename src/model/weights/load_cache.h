// Packed weights kept in a file of the model's folder, so that the next start need not quantize them again
// (FD_ENABLE_MODEL_LOAD_CACHE).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "device/device.h"
#include "model/opened_folder.h"
#include "model/weights/pack.h"

namespace tern::model {

// Raised whenever a format packs otherwise than before.
inline constexpr int kPackedLayoutVersion = 1;
inline constexpr size_t kCacheChunk = 4 << 20;  // bytes that one sum is about

// What stands before the weights of such a file.
struct LoadCacheHeader {
  std::string_view key;   // what they were made from, by what and for what
  uint64_t begin = 0;     // of the weights
  uint64_t bytes = 0;     // of the weights; the file ends with them
  std::string_view sums;  // eight bytes for each chunk
};
// `head` holds the first bytes of a file of `file_size` bytes, up to the weights at least. Hostile input.
Expected<LoadCacheHeader> parse_load_cache(std::string_view head, uint64_t file_size);

class LoadCache {
 public:
  // The plan has been placed (place_plan).
  LoadCache(const OpenedFolder& folder, const WeightPlan& plan, const PackOptions& options, device::Device& device);

  // Fills [dst, dst + bytes). False: there is no such file, or it does not serve, which note() then says; what is at
  // `dst` is then anything.
  bool read(char* dst, size_t bytes);
  // Writes the file anew. note() says where it lies, or why there is none: nothing else fails because of it.
  void write(const char* src, size_t bytes);

  const std::string& note() const { return note_; }

 private:
  Status fill(char* dst, size_t bytes);
  Status save(int file, const char* src, size_t bytes);

  const PackOptions& options_;
  device::Device& device_;
  std::string key_, path_, note_;
};

}  // namespace tern::model
