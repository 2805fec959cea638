// ernie-x1: the answer stands in <response>...</response>; other text after the thoughts is dropped
// (models-ernie-paddleocr.md 8.4).
#pragma once

#include <string>
#include <string_view>

#include "answer/matcher.h"
#include "answer/reasoning/reasoning.h"

namespace tern::answer {

class ResponseTags {
 public:
  // calls_in_response: <tool_call> ends a response (tools are parsed). After the first recognised <tool_call> all text
  // passes unchanged.
  ResponseTags(ReasoningStart start, bool calls_in_response);
  void push(std::string_view text, std::string& out);
  void finish(std::string& out);
  size_t held() const { return outside_.held().size() + inside_.held().size(); }

 private:
  enum State : uint8_t { kOutside, kInside, kPass };
  bool byte(char c, std::string& out);  // False: the byte was not used; call again with it.

  State state_;
  Matcher outside_;
  Matcher inside_;
};

}  // namespace tern::answer
