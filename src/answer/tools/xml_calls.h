// Calls written as pairs of tags: what qwen3_coder and glm45 have in common.
#pragma once

#include <string>
#include <string_view>

#include "answer/matcher.h"
#include "answer/tools/parts/xml_arguments.h"
#include "answer/tools/scanner.h"

namespace tern::answer {

// From a call's name to its end mark. A subclass finds the call and its name.
class XmlCalls : public ToolScanner {
 protected:
  struct Shape {
    std::string_view before_key, after_key, before_value, value_end;  // before_value may be ""
    std::string_view arguments_end;
    std::string_view call_end;             // ends a malformed call; that of a well-formed one is the subclass's to read
    ValueKind unknown = ValueKind::kText;  // of members that the schema does not have
    XmlArguments::Trim trim = XmlArguments::Trim::kSpace;
  };
  XmlCalls(Policy policy, IdSource ids, std::shared_ptr<const Tools> tools, const Shape& shape);

  // After the name: the call begins.
  void begin_named(std::string_view name);
  // A byte of the begun call. True once arguments_end has been read; the subclass ends the call. in_call() is false
  // after a malformed call has ended.
  bool consume_argument_byte(char c);
  bool valid() const { return valid_; }  // the arguments, once arguments_end was read
  bool in_call() const { return part_ != kNone; }
  // c cannot stand here: the rest of the call is passed on verbatim.
  void malformed(char c);
  void leave_call() { part_ = kNone; }
  // The answer ends in a call.
  void cut();
  size_t held_in_call() const;

 private:
  enum Part : uint8_t { kNone, kPairs, kKey, kBetween, kValue, kRaw };
  static constexpr size_t kMaxKey = 1024;

  bool in_pairs(char c);
  void in_key(char c);
  void in_value(char c);
  void in_raw(char c);
  void begin_value();
  void leave(std::string& json);

  Shape shape_;
  std::shared_ptr<const Tools> tools_;
  const json::Value* parameters_ = nullptr;
  Part part_ = kNone;
  bool valid_ = true;
  Matcher pairs_, after_key_, before_value_, value_end_, call_end_;
  std::string key_, json_;
  XmlArguments writer_;
};

}  // namespace tern::answer
