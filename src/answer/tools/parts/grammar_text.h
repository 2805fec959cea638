// Lark text for llguidance, put together from the parts that tool-call formats share.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "answer/tools/format.h"
#include "answer/tools/parts/xml_arguments.h"

namespace tern::answer {

// Functions that return a text return an expression (or the name of a rule) to be used in another rule.
class GrammarText {
 public:
  explicit GrammarText(const GrammarAsk& ask) : ask_(ask) {}

  // One after the other; empty parts are left out.
  static std::string row(std::initializer_list<std::string_view> parts);
  // As often as `count` says: "?", "*" or "".
  static std::string group(std::string_view body, std::string_view count);
  std::string literal(std::string_view text) const;
  // A mark: the token where the vocabulary has one, else its text.
  std::string mark(std::string_view text) const;
  void rule(std::string_view name, std::string_view body);

  // {"name": ..., KEY: ...} of any of the tools.
  std::string json_calls(std::string_view arguments_key);
  // The bare name, `between` (an expression or ""), the arguments as JSON.
  std::string named_calls(std::string_view between);

  struct XmlShape {  // expressions, but for `value_end`, which is a text
    std::string before_name, after_name, before_key, after_key, before_value;
    std::string_view value_end;
    std::string after_value, call_end;
    ValueKind unknown = ValueKind::kText;
  };
  std::string xml_calls(const XmlShape& shape);

  struct Calls {
    std::string begin;        // before each call; "" for none
    std::string body;         // a call after `begin`
    std::string between;      // between a call and the next call's `begin`
    bool begin_once = false;  // `begin` stands before the first call only
    bool once = false;        // `body` is all calls
  };
  // The whole grammar, with its start rule.
  std::string calls(const Calls& calls);

 private:
  std::string arguments(size_t tool);  // the rule of a tool's JSON arguments
  std::string xml_arguments(size_t tool, const XmlShape& shape);
  std::string xml_value(size_t tool, size_t member, const json::Value& schema, std::string_view key,
                        const XmlShape& shape);
  std::string any_text(std::string_view close);  // text up to and including `close`

  const GrammarAsk& ask_;
  std::string rules_;
  bool has_text_ = false;
  size_t with_arguments_ = 0;  // tools whose rule of arguments is made
};

}  // namespace tern::answer
