// Grammars that want to cost much: each is an error, or done, within 2 seconds of work and 256 MiB.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <string>
#include <vector>

#include "content/grammar/grammar.h"

namespace tern::content {
namespace {

std::string repeat(const std::string& text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

std::string many_values() {
  std::string out = R"({"enum":[)";
  for (int i = 0; i < 100'000; ++i) out.append(i ? ",\"value" : "\"value").append(std::to_string(i)).append("\"");
  return out + "]}";
}

std::string many_numbers() {
  std::string out = R"({"enum":[)";
  for (int i = 0; i < 100'000; ++i) out.append(i ? "," : "").append(std::to_string(i * 7));
  return out + "]}";
}

// Alternatives that multiply: 4^20 when written out.
std::string products() {
  const std::string one = R"({"anyOf":[{"minimum":1},{"maximum":9},{"multipleOf":2},{"type":"string"}]})";
  return R"({"allOf":[)" + one + repeat("," + one, 19) + "]}";
}

std::string doubling_references() {
  std::string out = R"({"$defs":{"d0":{"type":"null"})";
  for (int i = 1; i < 60; ++i) {
    const std::string ref = R"({"$ref":"#/$defs/d)" + std::to_string(i - 1) + "\"}";
    out += ",\"d" + std::to_string(i) + R"(":{"type":"array","prefixItems":[)" + ref + "," + ref +
           R"(],"minItems":2,"allOf":[{"items":true}]})";
  }
  return out + R"(},"$ref":"#/$defs/d59"})";
}

std::string many_dependencies() {
  std::string out = R"({"type":"object","dependentRequired":{)";
  for (int i = 0; i < 40; ++i) {
    const std::string n = std::to_string(i);
    out += (i ? ",\"a" : "\"a") + n + R"(":["b)" + n + "\"]";
  }
  return out + "}}";
}

std::vector<GrammarSpec> hostile() {
  using enum GrammarKind;
  const std::string one_of = R"({"oneOf":[{"type":"array","items":)";
  return {
      {kJsonSchema, repeat(one_of, 30) + "{}" + repeat(R"(},{"type":"object"}]})", 30), {}},
      {kJsonSchema, R"({"oneOf":[)" + repeat("{},", 300) + "{}]}", {}},
      {kJsonSchema, repeat(R"({"not":)", 100) + "{}" + repeat("}", 100), {}},
      {kJsonSchema, R"({"$ref":"#"})", {}},
      {kJsonSchema, R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})", {}},
      {kJsonSchema, R"({"$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"},{"type":"object"}]}},"$ref":"#/$defs/a"})", {}},
      {kJsonSchema,
       R"({"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"$defs":{
         "a":{"anyOf":[{"properties":{"c":{"$ref":"#/$defs/a"}}},{"items":{"$ref":"#/$defs/b"}}]},
         "b":{"anyOf":[{"properties":{"c":{"$ref":"#/$defs/b"}}},{"items":{"$ref":"#/$defs/a"}}]}}})",
       {}},
      {kJsonSchema, many_values(), {}},
      {kJsonSchema, many_numbers(), {}},
      {kJsonSchema, products(), {}},
      {kJsonSchema, doubling_references(), {}},
      {kJsonSchema, many_dependencies(), {}},
      {kJsonSchema, repeat("[", 100'000), {}},
      {kJsonSchema, repeat(R"({"items":)", 119) + "{}" + repeat("}", 119), {}},
      {kJsonSchema, R"({"type":"string","pattern":"(.{1,1000}){1,1000}"})", {}},
      {kJsonSchema, R"({"type":"string","pattern":"^(a|aa)+$(b?){500}","minLength":900000,"maxLength":1000000})", {}},
      {kJsonSchema,
       R"({"type":"array","minItems":20000,"maxItems":20000,"items":{"type":"array","maxItems":19999}})",
       {}},
      {kJsonSchema, R"({"type":"object","propertyNames":{"pattern":"(.{1,999}){1,999}"}})", {}},
      {kRegex, "(a+)+b", {}},
      {kRegex, "(.{1,1000}){1,1000}", {}},
      {kRegex, "((a{1,100}){1,100}){1,100}", {}},
      {kRegex, repeat("(", 50'000) + repeat(")", 50'000), {}},
      {kRegex, repeat("(a|b|", 120) + "c" + repeat(")*", 120), {}},
      {kRegex, ".*a.{20}", {}},
      {kLark, "start: a a a a a\na: b b b b b\nb: c c c c c\nc: d d d d\nd: \"x\"?", {}},
      {kLark, "start: \"a\"{1,100000}", {}},
      {kLark, "start: start start | \"a\" |", {}},
      {kLark, "root ::= " + repeat("(", 100'000), {}},
      {kChoice, "[\"" + repeat("a", 900'000) + "\"]", {}},
  };
}

// Memory is bounded in a child: one that needs more ends by a signal.
TEST(GrammarHostile, EachEndsSoonAndSmall) {
  const auto vocabulary = GrammarVocabulary::bytes();
  ASSERT_TRUE(vocabulary.ok());
  size_t number = 0;
  for (const GrammarSpec& spec : hostile()) {
    SCOPED_TRACE(std::to_string(number++) + ": " + spec.text.substr(0, 80));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      rusage before{};
      getrusage(RUSAGE_SELF, &before);
      const auto grammar = CompiledGrammar::compile(**vocabulary, spec);
      if (grammar.ok()) {
        auto matcher = (*grammar)->start();
        std::vector<uint32_t> words(9);
        if (matcher.ok()) (void)matcher->fill(words);
      } else if (grammar.error().code == ErrorCode::kInternal) {
        _exit(3);
      }
      rusage after{};
      getrusage(RUSAGE_SELF, &after);
      const double seconds = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
      const long grown = after.ru_maxrss - before.ru_maxrss;  // KiB
      if (seconds > 2) _exit(4);
      _exit(grown > 256L << 10 ? 5 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0) << "3: internal fault, 4: too slow, 5: too large";
  }
}

}  // namespace
}  // namespace tern::content
