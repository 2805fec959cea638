// Inside the room: one decoder per format, and the fixed texts of their errors.
#pragma once

#include "image/codecs/decode.h"

namespace tern::image {

using Bytes = std::span<const uint8_t>;

Status decode_jpeg(Bytes file, const DecodeLimits& limits, Image* image, RowWatch* watch);
Expected<Image> decode_png(Bytes file, const DecodeLimits& limits);
Expected<Image> decode_gif(Bytes file, const DecodeLimits& limits);
Expected<Image> decode_webp(Bytes file, const DecodeLimits& limits);
Expected<Image> decode_bmp(Bytes file, const DecodeLimits& limits);
Expected<Image> decode_tiff(Bytes file, const DecodeLimits& limits);

Error error_format(Bytes file);  // kUnsupported: none of those that are decoded; says which it is, where that is known
Error error_truncated();         // kCorrupt
Error error_damaged();           // kCorrupt
Error error_variant();           // kUnsupported
Error error_memory();            // kResourceExhausted
Error error_file_bytes();        // kTooLarge
Error error_frames();            // kTooLarge
Error error_scans();             // kTooLarge

// kCorrupt for an empty side, kTooLarge above the limits. For sizes read from headers, before allocation.
Status check_size(uint64_t width, uint64_t height, const DecodeLimits& limits);

inline uint32_t read_le16(const uint8_t* p) { return static_cast<uint32_t>(p[0] | p[1] << 8); }
inline uint32_t read_le32(const uint8_t* p) { return read_le16(p) | read_le16(p + 2) << 16; }
inline uint32_t read_be16(const uint8_t* p) { return static_cast<uint32_t>(p[0] << 8 | p[1]); }
inline uint32_t read_be32(const uint8_t* p) { return read_be16(p) << 16 | read_be16(p + 2); }

}  // namespace tern::image
