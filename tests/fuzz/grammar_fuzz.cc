// The kind of a grammar (first byte) and its text: compiling, a mask and a step end with a result or an error.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "content/grammar/grammar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern::content;
  static const auto vocabulary = GrammarVocabulary::bytes();
  if (!vocabulary.ok()) __builtin_trap();
  if (size == 0) return 0;
  constexpr std::array kKinds = {GrammarKind::kJsonSchema, GrammarKind::kRegex,  GrammarKind::kLark,
                                 GrammarKind::kJsonObject, GrammarKind::kChoice, GrammarKind::kStructuralTag};
  GrammarSpec spec;
  spec.kind = kKinds[data[0] % kKinds.size()];
  spec.options = {(data[0] & 0x20) != 0, (data[0] & 0x40) != 0, (data[0] & 0x80) != 0};
  spec.text.assign(reinterpret_cast<const char*>(data + 1), size - 1);
  GrammarLimits limits;
  limits.text_bytes = 16u << 10;
  limits.nodes = 5'000;
  limits.initial_fuel = 50'000;
  limits.step_fuel = 20'000;
  limits.grammar_size = 20'000;
  limits.lexer_states = 2'000;
  limits.step_items = 5'000;
  limits.depth = 40;
  const auto grammar = CompiledGrammar::compile(**vocabulary, spec, limits);
  if (!grammar.ok()) {
    if (grammar.error().code == tern::ErrorCode::kInternal || grammar.error().message.empty()) __builtin_trap();
    return 0;
  }
  auto matcher = (*grammar)->start();
  if (!matcher.ok()) __builtin_trap();
  std::vector<uint32_t> words(((*vocabulary)->ids() + 31) / 32);
  for (int step = 0; step < 16; ++step) {
    if (!matcher->fill(words).ok()) return 0;
    const auto word = std::find_if(words.begin(), words.end(), [](uint32_t w) { return w != 0; });
    if (word == words.end()) __builtin_trap();  // a request could only hang
    const auto id = static_cast<int32_t>((word - words.begin()) * 32 + std::countr_zero(*word));
    if (id == 256) return 0;
    // What the mask allows is taken, unless a limit is hit.
    const auto taken = matcher->accepts(std::array{id});
    if (taken.ok() && *taken == 0) __builtin_trap();
    if (!matcher->consume(std::array{id}).ok()) return 0;
  }
  if (!matcher->roll_back(3).ok()) return 0;
  return 0;
}
