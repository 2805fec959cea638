#include "engine/step/slot_owner.h"

#include <algorithm>
#include <limits>

#include "sample/processors.h"

namespace tern::engine {

SlotOwner owner_of(Generation& g) {
  constexpr int64_t kNever = std::numeric_limits<int32_t>::max();
  SlotOwner owner{.generation = &g, .id = g.id, .prompt = g.prompt, .rope_delta = g.rope_delta};
  // The token after `first` is the first that may end the answer.
  const int64_t first = int64_t{g.prompt} + std::max(g.min_tokens, 1) - 1;
  const bool asks_more = g.guided || !g.thought || g.drawn_from || g.request.sampling.logprobs >= 0;
  owner.plain_from = static_cast<int32_t>(asks_more ? kNever : std::min(first, kNever));
  owner.processors = g.processors & ~static_cast<uint32_t>(sample::kMinTokens);
  return owner;
}

}  // namespace tern::engine
