#include "image/codecs/tiff_directory.h"

#include <algorithm>

namespace tern::image {
namespace {

// Bytes of a value by its type (TIFF 6.0 section 2; 16 to 18: BigTIFF); 0: not a whole number, or unknown.
int size_of(uint64_t type) {
  switch (type) {
    case 1:  // BYTE
    case 2:  // ASCII
    case 6:  // SBYTE
    case 7:  // UNDEFINED
      return 1;
    case 3:  // SHORT
    case 8:  // SSHORT
      return 2;
    case 4:   // LONG
    case 9:   // SLONG
    case 13:  // IFD
      return 4;
    case 16:  // LONG8
    case 17:  // SLONG8
    case 18:  // IFD8
      return 8;
    default:
      return 0;
  }
}

}  // namespace

uint64_t TiffDirectory::number(uint64_t at, int size) const {
  uint64_t out = 0;
  for (int i = 0; i < size; ++i) out = out << 8 | file_[at + static_cast<uint64_t>(little_ ? size - 1 - i : i)];
  return out;
}

std::optional<TiffDirectory> TiffDirectory::read(std::span<const uint8_t> file) {
  if (file.size() < 8) return {};
  TiffDirectory out;
  out.file_ = file;
  out.little_ = file[0] == 'I' && file[1] == 'I';
  if (!out.little_ && !(file[0] == 'M' && file[1] == 'M')) return {};
  const uint64_t version = out.number(2, 2);
  out.big_ = version == 43;
  if (version != 42 && !out.big_) return {};
  if (out.big_ && (file.size() < 16 || out.number(4, 2) != 8)) return {};
  const uint64_t at = out.big_ ? out.number(8, 8) : out.number(4, 4);
  const uint64_t head = out.big_ ? 8 : 2, entry = out.big_ ? 20 : 12;
  if (at > file.size() || file.size() - at < head) return {};
  out.first_ = at + head;
  out.entries_ = std::min(out.number(at, static_cast<int>(head)), (file.size() - out.first_) / entry);
  return out;
}

std::optional<TiffDirectory::Entry> TiffDirectory::find(uint16_t tag) const {
  const uint64_t step = big_ ? 20 : 12;
  const int width = big_ ? 8 : 4;  // of counts and offsets
  for (uint64_t i = 0; i < entries_; ++i) {
    const uint64_t at = first_ + step * i;
    if (number(at, 2) != tag) continue;
    Entry entry;
    entry.size = size_of(number(at + 2, 2));
    if (entry.size == 0) return {};
    entry.count = number(at + 4, width);
    const uint64_t field = at + 4 + static_cast<uint64_t>(width),
                   most = file_.size() / static_cast<uint64_t>(entry.size);
    if (entry.count > most) return {};
    const uint64_t bytes = entry.count * static_cast<uint64_t>(entry.size);
    entry.at = bytes <= static_cast<uint64_t>(width) ? field : number(field, width);
    if (entry.at > file_.size() || file_.size() - entry.at < bytes) return {};
    return entry;
  }
  return {};
}

uint64_t TiffDirectory::count(uint16_t tag) const {
  const auto entry = find(tag);
  return entry ? entry->count : 0;
}

std::optional<uint64_t> TiffDirectory::value(uint16_t tag, uint64_t index) const {
  const auto entry = find(tag);
  if (!entry || index >= entry->count) return {};
  return number(entry->at + index * static_cast<uint64_t>(entry->size), entry->size);
}

std::span<const uint8_t> TiffDirectory::bytes(uint16_t tag) const {
  const auto entry = find(tag);
  if (!entry || entry->size != 1) return {};
  return file_.subspan(entry->at, entry->count);
}

}  // namespace tern::image
