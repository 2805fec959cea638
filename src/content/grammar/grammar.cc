#include "content/grammar/grammar.h"

#include <textkit_grammar.h>

#include <utility>

#include "content/text/textkit_handle.h"
#include "content/text/tokenizer.h"

namespace tern::content {
namespace {

// Ids of the engine are not negative where they mean a token.
const uint32_t* raw_ids(std::span<const int32_t> ids) { return reinterpret_cast<const uint32_t*>(ids.data()); }

Status status(tk_code code, const TkBytes& error) {
  if (code == TK_OK) return {};
  return tk_error(code, error, "");
}

tk_grammar_limits raw_limits(const GrammarLimits& limits) {
  tk_grammar_limits raw{};
  raw.text_bytes = limits.text_bytes;
  raw.nodes = limits.nodes;
  raw.initial_fuel = limits.initial_fuel;
  raw.step_fuel = limits.step_fuel;
  raw.grammar_size = limits.grammar_size;
  raw.lexer_states = limits.lexer_states;
  raw.step_items = limits.step_items;
  raw.row_items = limits.row_items;
  raw.depth = limits.depth;
  raw.milliseconds = limits.milliseconds;
  return raw;
}

tk_grammar_kind raw_kind(GrammarKind kind) {
  switch (kind) {
    case GrammarKind::kJsonSchema:
      return TK_JSON_SCHEMA;
    case GrammarKind::kRegex:
      return TK_REGEX;
    case GrammarKind::kLark:
      return TK_LARK;
    case GrammarKind::kJsonObject:
      return TK_JSON_OBJECT;
    case GrammarKind::kChoice:
      return TK_CHOICE;
    case GrammarKind::kStructuralTag:
      return TK_STRUCTURAL_TAG;
  }
  return TK_JSON_SCHEMA;
}

Expected<const tk_grammar_env*> make_env(const tk_tokenizer* tokenizer, std::span<const int32_t> ends, bool plain) {
  TkBytes error;
  const tk_grammar_env* env = nullptr;
  const tk_code code = tk_grammar_env_new(tokenizer, raw_ids(ends), ends.size(), plain ? 1 : 0, &env, &error.raw);
  if (code != TK_OK) return tk_error(code, error, "");
  return env;
}

}  // namespace

Expected<std::shared_ptr<const GrammarVocabulary>> GrammarVocabulary::make(const Tokenizer& tokenizer,
                                                                           std::span<const int32_t> ends) {
  TERN_ASSIGN_OR_RETURN(const tk_grammar_env* env, make_env(tokenizer.handle(), ends, false));
  return std::shared_ptr<const GrammarVocabulary>(new GrammarVocabulary(env));
}

Expected<std::shared_ptr<const GrammarVocabulary>> GrammarVocabulary::make_plain(const Tokenizer& tokenizer,
                                                                                 std::span<const int32_t> ends) {
  TERN_ASSIGN_OR_RETURN(const tk_grammar_env* env, make_env(tokenizer.handle(), ends, true));
  return std::shared_ptr<const GrammarVocabulary>(new GrammarVocabulary(env));
}

Expected<std::shared_ptr<const GrammarVocabulary>> GrammarVocabulary::bytes() {
  TERN_ASSIGN_OR_RETURN(const tk_grammar_env* env, make_env(nullptr, {}, false));
  return std::shared_ptr<const GrammarVocabulary>(new GrammarVocabulary(env));
}

GrammarVocabulary::~GrammarVocabulary() { tk_grammar_env_free(env_); }

size_t GrammarVocabulary::ids() const { return tk_grammar_env_ids(env_); }

Matcher::Matcher(Matcher&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}

Matcher& Matcher::operator=(Matcher&& other) noexcept {
  std::swap(raw_, other.raw_);
  return *this;
}

Matcher::~Matcher() { tk_matcher_free(raw_); }

Status Matcher::fill(std::span<uint32_t> words) {
  TkBytes error;
  const tk_code code = tk_matcher_mask(raw_, words.data(), words.size(), &error.raw);
  return status(code, error);
}

Expected<size_t> Matcher::fill_ahead(std::span<const int32_t> ids, size_t stride, std::span<uint32_t> words) {
  if (stride == 0 || words.size() / stride <= ids.size()) {
    return make_error(ErrorCode::kInternal, "too little memory for the masks");
  }
  TkBytes error;
  size_t filled = 0;
  const tk_code code = tk_matcher_masks(raw_, raw_ids(ids), ids.size(), words.data(), stride, &filled, &error.raw);
  if (code != TK_OK) return tk_error(code, error, "");
  return filled;
}

Status Matcher::consume(std::span<const int32_t> ids) {
  TkBytes error;
  const tk_code code = tk_matcher_consume(raw_, raw_ids(ids), ids.size(), &error.raw);
  return status(code, error);
}

Expected<size_t> Matcher::accepts(std::span<const int32_t> ids) {
  TkBytes error;
  size_t taken = 0;
  const tk_code code = tk_matcher_accepts(raw_, raw_ids(ids), ids.size(), &taken, &error.raw);
  if (code != TK_OK) return tk_error(code, error, "");
  return taken;
}

Status Matcher::roll_back(size_t count) {
  TkBytes error;
  const tk_code code = tk_matcher_rollback(raw_, count, &error.raw);
  return status(code, error);
}

Status Matcher::forced(size_t most, std::vector<int32_t>& ids) {
  TkBytes error;
  const size_t before = ids.size();
  ids.resize(before + most);
  size_t count = 0;
  const tk_code code =
      tk_matcher_forced(raw_, reinterpret_cast<uint32_t*>(ids.data() + before), most, &count, &error.raw);
  ids.resize(before + count);
  return status(code, error);
}

bool Matcher::accepting() { return (tk_matcher_state(raw_) & 1) != 0; }
bool Matcher::stopped() { return (tk_matcher_state(raw_) & 2) != 0; }

Expected<std::shared_ptr<const CompiledGrammar>> CompiledGrammar::compile(const GrammarVocabulary& vocabulary,
                                                                          const GrammarSpec& spec,
                                                                          const GrammarLimits& limits) {
  const tk_grammar_limits raw = raw_limits(limits);
  const GrammarOptions& o = spec.options;
  const uint32_t flags = (o.tight ? uint32_t{TK_GRAMMAR_TIGHT} : 0) | (o.closed ? uint32_t{TK_GRAMMAR_CLOSED} : 0) |
                         (o.lenient ? uint32_t{TK_GRAMMAR_LENIENT} : 0);
  TkBytes error;
  const tk_grammar* made = nullptr;
  const tk_code code = tk_grammar_compile(vocabulary.handle(), raw_kind(spec.kind), tk_data(spec.text),
                                          spec.text.size(), flags, &raw, &made, &error.raw);
  if (code != TK_OK) return tk_error(code, error, "");
  return std::shared_ptr<const CompiledGrammar>(new CompiledGrammar(made, vocabulary.ids()));
}

CompiledGrammar::CompiledGrammar(const tk_grammar* raw, size_t ids) : raw_(raw), ids_(ids) {
  TkBytes lines;
  if (tk_grammar_warnings(raw, &lines.raw) != TK_OK) return;
  std::string_view rest = lines.view();
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    warnings_.emplace_back(rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
}

CompiledGrammar::~CompiledGrammar() { tk_grammar_free(raw_); }

Expected<Matcher> CompiledGrammar::start() const {
  TkBytes error;
  tk_matcher* raw = nullptr;
  const tk_code code = tk_matcher_new(raw_, &raw, &error.raw);
  if (code != TK_OK) return tk_error(code, error, "");
  return Matcher(raw);
}

size_t CompiledGrammar::bytes() const { return tk_grammar_bytes(raw_); }

}  // namespace tern::content
