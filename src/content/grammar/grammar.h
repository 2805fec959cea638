// Guided decoding without an engine: vocabularies, compiled grammars, and how far one answer has come in one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "content/grammar/grammar_spec.h"

struct tk_grammar_env;
struct tk_grammar;
struct tk_matcher;

namespace tern::content {

class Tokenizer;

// What a grammar may cost. A limit that is hit while compiling is kTooLarge; while masks are computed it ends the one
// matcher.
struct GrammarLimits {
  size_t text_bytes = 1u << 20;
  size_t nodes = 100'000;             // parts that a schema becomes
  uint64_t initial_fuel = 1'000'000;  // steps to build the lexer, about 50 a microsecond
  uint64_t step_fuel = 200'000;       // of the lexer for one mask, about 14 a microsecond
  size_t grammar_size = 200'000;      // symbols of the rules
  size_t lexer_states = 50'000;       // 1 to 2 KiB each
  size_t step_items = 50'000;         // of the parser for one mask
  size_t row_items = 2'000;           // of the parser for one place of the text
  size_t depth = 128;                 // nesting of the text
  uint64_t milliseconds = 1'500;      // to compile; looked at between its parts, which the other limits bound
};

// The tokens of a model as bytes, special ones told apart. Immutable; about 100 bytes a token. Making one takes part of
// a second.
class GrammarVocabulary {
 public:
  // `ends`: the ids that end an answer, at least one.
  static Expected<std::shared_ptr<const GrammarVocabulary>> make(const Tokenizer& tokenizer,
                                                                 std::span<const int32_t> ends);
  // llguidance without what is added here, to compare with.
  static Expected<std::shared_ptr<const GrammarVocabulary>> make_plain(const Tokenizer& tokenizer,
                                                                       std::span<const int32_t> ends);
  // The 256 bytes; id 256 ends.
  static Expected<std::shared_ptr<const GrammarVocabulary>> bytes();
  ~GrammarVocabulary();
  GrammarVocabulary(const GrammarVocabulary&) = delete;
  GrammarVocabulary& operator=(const GrammarVocabulary&) = delete;

  size_t ids() const;  // bits of a mask
  const tk_grammar_env* handle() const { return env_; }

 private:
  explicit GrammarVocabulary(const tk_grammar_env* env) : env_(env) {}
  const tk_grammar_env* env_;
};

// How far one answer has come in its grammar. For one thread at a time. After an error it only gives errors.
class Matcher {
 public:
  Matcher(Matcher&& other) noexcept;
  Matcher& operator=(Matcher&& other) noexcept;
  ~Matcher();

  // The ids that may come next: bit id % 32 of word id / 32 allows the id. Words beyond the vocabulary become zero.
  Status fill(std::span<uint32_t> words);
  // Masks before, between and behind `ids`, `stride` words each, until one is refused or the grammar ends. The number
  // of masks filled; the matcher stays where it is. `words` holds ids.size() + 1 masks.
  Expected<size_t> fill_ahead(std::span<const int32_t> ids, size_t stride, std::span<uint32_t> words);
  Status consume(std::span<const int32_t> ids);
  // How many of the ids could be consumed.
  Expected<size_t> accepts(std::span<const int32_t> ids);
  // Takes the last `count` consumed ids back.
  Status roll_back(size_t count);
  // Appends the ids that have to come next whatever is sampled, at most `most`.
  Status forced(size_t most, std::vector<int32_t>& ids);
  bool accepting();  // the answer may end here
  bool stopped();    // nothing but an end may follow

 private:
  friend class CompiledGrammar;
  explicit Matcher(tk_matcher* raw) : raw_(raw) {}
  tk_matcher* raw_;
};

// A grammar over one vocabulary. Immutable for its users; any thread.
class CompiledGrammar {
 public:
  // kInvalidArgument: the text is wrong; kUnsupported: the message names the keyword that cannot be enforced and its
  // JSON pointer; kTooLarge: a limit.
  static Expected<std::shared_ptr<const CompiledGrammar>> compile(const GrammarVocabulary& vocabulary,
                                                                  const GrammarSpec& spec,
                                                                  const GrammarLimits& limits = {});
  ~CompiledGrammar();
  CompiledGrammar(const CompiledGrammar&) = delete;
  CompiledGrammar& operator=(const CompiledGrammar&) = delete;

  // At the beginning of an answer; microseconds, apart from the first few of a grammar.
  Expected<Matcher> start() const;
  size_t ids() const { return ids_; }                                     // of the vocabulary
  size_t bytes() const;                                                   // of memory, estimated
  const std::vector<std::string>& warnings() const { return warnings_; }  // what a lenient compilation left out

 private:
  CompiledGrammar(const tk_grammar* raw, size_t ids);
  const tk_grammar* raw_;
  size_t ids_;
  std::vector<std::string> warnings_;
};

}  // namespace tern::content
