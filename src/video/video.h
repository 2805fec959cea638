// Frames of a video: chosen by rule, decoded by a child process with limits, stamped with their time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "image/image.h"

namespace tern::video {

// What the file says, as the original's reader counts it (models-ernie-paddleocr.md 5.7).
struct VideoFacts {
  int64_t frames = 0;
  double average_fps = 0, duration = 0;  // duration = frames / average_fps, seconds
  int width = 0, height = 0;             // after rotation
};

enum class FrameChoice : uint8_t { kLeading, kMiddle, kRandom };
struct SamplingRule {  // fastdeploy.md 4.4, 4.6
  double fps = 2;
  int min_frames = 16, max_frames = 180, target_frames = -1;
  FrameChoice choice = FrameChoice::kLeading;
  uint64_t seed = 0;  // of kRandom
  // Qwen-VL's rule instead: frames / average_fps * fps, clamped, a multiple of `multiple`.
  bool qwen = false;
};
struct ChosenFrame {
  int64_t index = 0;
  double seconds = 0;  // index * duration / frames
};
// Pure. kInvalidArgument for contradictory rules (target_frames together with fps >= 0).
Expected<std::vector<ChosenFrame>> choose_frames(const VideoFacts& facts, const SamplingRule& rule);

struct VideoLimits {
  size_t max_bytes = 256u << 20;
  int64_t max_pixels = 1 << 23;                // of a frame
  int max_frames = 768;                        // chosen frames
  double max_seconds = 3600;                   // duration
  double cpu_seconds = 60, wall_seconds = 90;  // of the child
  size_t memory_bytes = size_t{2} << 30;
  size_t frame_bytes = size_t{1} << 30;  // of all chosen frames as RGB together
};
struct VideoOptions {
  SamplingRule sampling;
  VideoLimits limits;
  std::string helper;     // the decoder's program
  std::string font_file;  // Roboto-Regular; empty: frames are not stamped
  bool pair = true;       // an odd number of frames is filled up with a copy of the last
};
struct Video {
  VideoFacts facts;
  std::vector<image::Image> frames;  // RGB at native size, stamped; an even number when options.pair
  std::vector<double> seconds;
};
// Blocks for as long as the child works, at most limits.wall_seconds; call it on a pool's thread. A broken frame is
// replaced by its nearest neighbour (and carries that one's time). Errors are fixed texts: kInvalidArgument
// (contradictory rules), kUnsupported (format or codec), kCorrupt (damaged, no frames, the child died), kTooLarge (a
// limit, time included), kUnavailable (no helper), kResourceExhausted.
Expected<Video> read_video(std::span<const std::byte> file, const VideoOptions& options);

// Where the helper and the font lie: beside the program, the font otherwise where Debian's fonts-roboto-unhinted puts
// it (empty when it is nowhere).
std::string find_helper(const std::string& program_folder);
std::string find_font(const std::string& program_folder);

}  // namespace tern::video
