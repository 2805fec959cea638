// What the server and its decoder process say to each other over one socket: plain structs of this machine, in this
// order:
//   server: Setup · decoder: Facts · server: Wanted, int64_t[count] · decoder: (FrameHead, pixels)* · FrameHead{kEnd}
// The server does not trust a word of the decoder; see child.cc. Free of other headers: the decoder links nothing of
// ours.
#pragma once

#include <cstdint>

namespace tern::video {

inline constexpr uint32_t kMagic = 0x54565031;  // "TVP1"
inline constexpr int kFileFd = 0, kSocketFd = 3;
inline constexpr uint32_t kEnd = 0xFFFFFFFF;

struct Setup {
  uint32_t magic = kMagic;
  uint32_t cpu_seconds = 0;
  int64_t max_pixels = 0;
  int64_t max_packets = 0;  // frames of the whole file
  uint64_t memory_bytes = 0;
};

enum class Verdict : uint32_t { kGood, kUnsupported, kDamaged, kTooLarge, kNoVideo };

struct Facts {
  uint32_t magic = kMagic;
  Verdict verdict = Verdict::kDamaged;
  int64_t frames = 0;
  int32_t width = 0, height = 0;  // as coded
  int32_t rotation = 0;           // clockwise: 0, 90, 180, 270
  int32_t unused = 0;
  double average_fps = 0;
};

struct Wanted {
  uint32_t magic = kMagic;
  uint32_t count = 0;  // indices that follow, ascending
};

struct FrameHead {
  uint32_t magic = kMagic;
  uint32_t entry = kEnd;  // which of the wanted indices
  int64_t index = -1;  // the frame that was decoded for it: a neighbour when it is broken; -1: none, no pixels follow
  uint64_t bytes = 0;  // width * height * 3: R, G, B, not yet rotated
};

}  // namespace tern::video
