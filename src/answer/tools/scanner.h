// Tool calls in the text of an answer: one format is one scanner.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "answer/events.h"
#include "json/json.h"

namespace tern::answer {

struct ToolSpec {
  std::string name;
  json::Value parameters;  // the JSON schema; null when there is none
  bool strict = false;
};
using Tools = std::vector<ToolSpec>;

struct ToolFormat;

// Text in, events out. The events do not depend on how the text is cut, except for where event texts are cut. What is
// held back is bounded. A call that is not well-formed is content as long as its name is not known; from then on its
// bytes leave verbatim as arguments, and complete_calls() is false for good. Nothing is repaired.
class ToolScanner {
 public:
  using IdSource = std::function<std::string()>;

  // Text beside the calls.
  struct Policy {
    // true: drop all text after the first call (later calls are still read). false: drop only white space directly
    // after a call.
    bool drop_text_after_first_call = false;
    bool drop_newlines = false;  // drop newlines directly before a call
    bool only_at_start = false;  // a call counts only if nothing but newlines precedes it
  };

  ToolScanner(Policy policy, IdSource ids) : policy_(policy), ids_(std::move(ids)) {}
  virtual ~ToolScanner() = default;
  ToolScanner(const ToolScanner&) = delete;
  ToolScanner& operator=(const ToolScanner&) = delete;

  void feed(std::string_view text, Events& out);
  // The end of the answer.
  void finish(Events& out);

  int32_t calls() const { return calls_; }
  int32_t ended_calls() const { return ended_; }
  bool complete_calls() const { return complete_ > 0 && !broken_; }
  // Bytes that went in and did not leave yet.
  size_t held() const { return held_.size() + held_elsewhere(); }

 protected:
  // One byte. A scanner may call it again with the same byte after a change of state.
  virtual void step(char c) = 0;
  virtual void end() = 0;
  virtual size_t held_elsewhere() const = 0;

  void content(std::string_view text);
  // Holds a byte that belongs either to a call or to content. False: kMaxHeld is reached; the caller calls release().
  bool hold(char c);
  void release();  // what is held is content
  void begin_call(const std::string& name);
  void arguments(std::string_view text);
  void end_call(bool complete);
  bool may_begin() const { return !(policy_.only_at_start && said_); }

  static constexpr size_t kMaxHeld = 8192 + 256;
  std::string held_;  // from a call's first byte until its name is known

 private:
  void say(std::string_view text);

  Policy policy_;
  IdSource ids_;
  Events* out_ = nullptr;
  int32_t calls_ = 0, ended_ = 0, complete_ = 0;
  bool broken_ = false;
  bool said_ = false;        // content other than newlines
  bool after_call_ = false;  // nothing but white space since a call
  size_t newlines_ = 0;      // held: content if no call follows (Policy::drop_newlines)
};

inline bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace tern::answer
