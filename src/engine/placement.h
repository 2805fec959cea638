// Which of several engines takes a request. Pure: the same figures give the same engine.
#pragma once

#include <cstdint>
#include <span>

namespace tern::engine {

struct EngineLoad {
  int64_t hit_tokens = 0;   // of the request's prompt, in this engine's prefix cache
  int64_t open_tokens = 0;  // known tokens of its open requests, running and waiting: prompts and what was said
  int open_requests = 0;
  int places = 0;    // requests that can run at once
  int capacity = 0;  // requests it takes, those that wait included
};

// A token of the prompt that is cached makes up for so many tokens of load: one step computes the others, while load is
// there for as long as its requests run.
inline constexpr int64_t kHitWorth = 4;

// Engines with a free place come first, where there are any; those that take no more requests last. Of them the one
// with the longest cached beginning of the prompt, unless its load is larger than that of another by kHitWorth times
// what it has more of the prompt; equal: the fewest open requests, then the first. So one shared beginning draws
// requests to the engine that has it only until that engine has kHitWorth such beginnings more to do than the others,
// and no engine is left idle for long. `engines` is not empty.
int place_request(std::span<const EngineLoad> engines);

}  // namespace tern::engine
