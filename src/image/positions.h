// 3-D positions of a prompt with pictures (models-ernie-paddleocr.md 5.1, 6.4; models-other.md 8.4).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tern::image {

// One image or one whole video in a prompt, in merged cells: t * h * w tokens from `begin` on, t-major, then rows.
struct PositionSpan {
  int32_t begin = 0;
  int32_t t = 1, h = 0, w = 0;
  double t_step = 1.0;  // how far t moves from one cell to the next (Qwen2.5-VL: seconds per grid x tokens per second)
};

// Where the text after a picture goes on.
enum class AdvanceRule : uint8_t {
  kMaxAll,  // FastDeploy, vLLM: one more than the largest of the three coordinates
  kMaxHw,   // newer transformers: max(h, w) after the picture's first position
};

struct Positions {
  std::vector<int32_t> values;  // [3, tokens]: t, h, w
  int32_t delta = 0;            // position of the next token minus `tokens`
};

// `spans` are ordered by begin, do not overlap and end within `tokens`.
Positions make_positions(int32_t tokens, std::span<const PositionSpan> spans, AdvanceRule rule);

}  // namespace tern::image
