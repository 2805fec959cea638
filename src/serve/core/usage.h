// Tokens of a request, counted.
#pragma once

#include <cstdint>

namespace tern::serve {

struct UsageCounts {
  int64_t prompt = 0, completion = 0, cached = 0;
  int64_t reasoning = 0;         // of the completion: tokens of the thoughts
  int64_t image = 0, video = 0;  // of the prompt: placeholders of pictures and videos
};

}  // namespace tern::serve
