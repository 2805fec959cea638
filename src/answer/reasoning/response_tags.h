// ernie-x1: the answer stands in <response>...</response>; other text behind the thoughts is dropped
// (models-ernie-paddleocr.md 8.4).
#pragma once

#include <string>
#include <string_view>

#include "answer/matcher.h"
#include "answer/reasoning/reasoning.h"

namespace tern::answer {

class ResponseTags {
 public:
  // calls_in_response: <tool_call> ends a response (tools are parsed). From the first <tool_call> on everything passes.
  ResponseTags(ReasoningStart start, bool calls_in_response);
  void push(std::string_view text, std::string& out);
  void finish(std::string& out);
  size_t held() const { return between_.held().size() + inside_.held().size(); }

 private:
  enum State : uint8_t { kBetween, kInside, kPass };
  bool byte(char c, std::string& out);  // false: put it once more

  State state_;
  Matcher between_;
  Matcher inside_;
};

}  // namespace tern::answer
