// The text of a chat message or delta.
#pragma once

#include <string>
#include <string_view>

#include "json/json.h"

namespace tern::serve::openai {

// "content", or with --enable-mm-output "multimodal_content".
inline void append_content(std::string_view text, bool mm_output, std::string& out) {
  if (mm_output) {
    out += "\"multimodal_content\":[{\"type\":\"text\",\"text\":";
    json::append_quoted(out, text);
    out += "}]";
  } else {
    out += "\"content\":";
    json::append_quoted(out, text);
  }
}

}  // namespace tern::serve::openai
