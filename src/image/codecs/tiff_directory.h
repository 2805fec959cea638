// The first directory of a TIFF structure: of TIFF files, and of Exif data. Reads where it is asked, allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tern::image {

class TiffDirectory {
 public:
  // Nothing when the header is no TIFF's or the directory lies outside. Its entries may still be cut short.
  static std::optional<TiffDirectory> read(std::span<const uint8_t> file);

  // How many values a tag has; 0: it is not there, or its values lie outside the file or are no numbers.
  uint64_t count(uint16_t tag) const;
  // One of its values; nothing beyond count(). Negative ones are huge.
  std::optional<uint64_t> value(uint16_t tag, uint64_t index = 0) const;
  uint64_t value_or(uint16_t tag, uint64_t otherwise) const { return value(tag).value_or(otherwise); }
  // The values of a tag of single bytes.
  std::span<const uint8_t> bytes(uint16_t tag) const;
  bool little() const { return little_; }

 private:
  struct Entry {
    uint64_t count = 0, at = 0;  // `at`: of the first value
    int size = 0;                // of a value
  };
  std::optional<Entry> find(uint16_t tag) const;
  uint64_t number(uint64_t at, int size) const;

  std::span<const uint8_t> file_;
  bool little_ = true, big_ = false;  // byte order; BigTIFF, with offsets of 8 bytes
  uint64_t first_ = 0, entries_ = 0;
};

}  // namespace tern::image
