// The safetensors format: 8 bytes of header length, a JSON header, tensor bytes. A weights file is hostile input: every
// length, offset, type and shape is checked before anything is read (the rules are those of the reference library:
// tensors lie one after the other without holes or overlaps and end with the file).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tern::model {

// Element types a file may hold. Only F32, F16 and BF16 can become weights; the others may be there to be ignored.
enum class FileType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
};
size_t file_type_bytes(FileType type);
const char* file_type_name(FileType type);
bool is_float_weight(FileType type);

struct TensorEntry {
  FileType dtype = FileType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes from the start of the file
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry, std::less<>> tensors;
  std::map<std::string, std::string, std::less<>> metadata;
};

inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;  // bytes, as the reference library
inline constexpr size_t kMaxTensorRank = 8;

// Parses and checks a whole file's header. `head` holds at least the header (the first bytes of the file), `file_size`
// is the size of the whole file. kCorrupt names the tensor at fault; kTooLarge for the header limit.
Expected<SafetensorsHeader> parse_safetensors(std::string_view head, uint64_t file_size);

// "[2, 3]", for messages.
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace tern::model
