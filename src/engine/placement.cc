#include "engine/placement.h"

#include <algorithm>
#include <tuple>

namespace tern::engine {

int place_request(std::span<const EngineLoad> engines) {
  const auto rank = [](const EngineLoad& e) {
    return std::tuple(e.open_requests >= e.capacity, e.open_requests >= e.places,
                      e.open_tokens - kHitWorth * e.hit_tokens, e.open_requests);
  };
  const auto best = std::min_element(engines.begin(), engines.end(),
                                     [&](const EngineLoad& a, const EngineLoad& b) { return rank(a) < rank(b); });
  return static_cast<int>(best - engines.begin());
}

}  // namespace tern::engine
