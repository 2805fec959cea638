// --scripted: the file of answers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "content/text/tokenizer.h"
#include "engine/echo.h"

namespace tern::app {

// JSON lines, empty ones left out: {"match": a part of the client's last text, "text": the answer, "token_delay_ms": a
// number, "stop": "natural" or "length"}. Only `text` is needed. Errors name the file and the line.
Expected<std::vector<engine::ScriptedAnswer>> read_script(const std::string& path, const content::Tokenizer& tokenizer);
// Its text; `name` stands in errors.
Expected<std::vector<engine::ScriptedAnswer>> parse_script(std::string_view text, const std::string& name,
                                                           const content::Tokenizer& tokenizer);

}  // namespace tern::app
