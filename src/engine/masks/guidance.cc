#include "engine/masks/guidance.h"

#include <span>
#include <utility>

namespace tern::engine {

void Guidance::open(Generation& g) const {
  const Constraint& c = g.request.constraint;
  // Log-probabilities are wanted of every token, and a forced one has none.
  g.guide = std::make_shared<Guide>(c.grammar, words_, !g.scored);
  g.guided = true;
  g.thought = g.thought || !c.after_thinking;  // a grammar from the first token on has no place for reasoning
  g.masked = g.thought;
  g.grammar_begin = 0;
}

void Guidance::begin(Generation& g) const {
  if (!g.guided || g.masked) return;
  g.masked = true;
  g.grammar_begin = static_cast<int32_t>(g.output.size());
}

void Guidance::ask(Generation& g, MaskRow& row, int32_t generated, bool last) {
  if (row.asked) return;
  const auto known = static_cast<int32_t>(g.output.size());
  if (generated != known || g.ended) {
    if (last || g.ended) row.state.store(MaskState::kMissed, std::memory_order_release);
    return;
  }
  row.asked = true;
  const size_t told = static_cast<size_t>(g.grammar_begin) + g.guide->told();
  if (g.guide->ask(std::span(g.output).subspan(told), &row)) asked_.push_back(g.guide);
}

MaskState Guidance::settle(Generation& g, MaskRow& row) const {
  MaskState state = row.state.load(std::memory_order_acquire);
  if (row.asked && state != MaskState::kReady) g.guide->cancel();
  return state;
}

void Guidance::close(Generation& g) {
  if (g.guide == nullptr) return;
  g.guide->cancel();
  pool_.retire(std::move(g.guide));
}

}  // namespace tern::engine
