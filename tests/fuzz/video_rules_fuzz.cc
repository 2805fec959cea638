// Frame choice with whatever a file or a request may say: indices within the video, not more than the rule allows.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "video/stamp.h"
#include "video/video.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern::video;
  struct {
    int64_t frames;
    double average_fps, fps;
    int32_t low, high, target;
    uint8_t choice, qwen;
    uint64_t seed;
  } input{};
  std::memcpy(&input, data, size < sizeof input ? size : sizeof input);
  VideoFacts facts;
  facts.frames = input.frames % 10'000'001;
  facts.average_fps = input.average_fps;
  facts.duration = static_cast<double>(facts.frames) / input.average_fps;
  SamplingRule rule;
  rule.fps = input.fps;
  rule.min_frames = input.low % 5000;
  rule.max_frames = input.high % 5000;
  rule.target_frames = input.target % 5000;
  rule.choice = static_cast<FrameChoice>(input.choice % 3);
  rule.qwen = input.qwen % 2 != 0;
  rule.seed = input.seed;
  const auto chosen = choose_frames(facts, rule);
  if (!chosen.ok()) return 0;
  if (chosen->empty() || chosen->size() > 5001) std::abort();
  int64_t before = 0;
  for (const auto& frame : *chosen) {
    if (frame.index < before || frame.index >= facts.frames) std::abort();
    if (!(frame.seconds >= 0) || frame.seconds > facts.duration) std::abort();
    before = frame.index;
  }
  if (facts.duration < 1e9) (void)time_text(chosen->back().seconds);
  return 0;
}
