// What a request says about the form of its answer, as a value: nothing is compiled yet.
#pragma once

#include <cstdint>
#include <string>

namespace tern::content {

enum class GrammarKind : uint8_t {
  kJsonSchema,
  kRegex,
  kLark,           // Lark as llguidance knows it, or GBNF (root ::= ...)
  kJsonObject,     // no text
  kChoice,         // a JSON array of texts
  kStructuralTag,  // JSON: "structures" and "triggers", or "format"
};

struct GrammarOptions {
  bool tight = false;    // no white space between tokens of JSON; else at most 40 characters
  bool closed = false;   // objects that name properties and say nothing of others allow no others
  bool lenient = false;  // keywords that cannot be enforced are left out and become warnings

  bool operator==(const GrammarOptions&) const = default;
};

struct GrammarSpec {
  GrammarKind kind = GrammarKind::kJsonSchema;
  std::string text;
  GrammarOptions options;

  bool operator==(const GrammarSpec&) const = default;
};

}  // namespace tern::content
