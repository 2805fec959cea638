// The line programs `tern tokenize` and `tern render`. Both need only the tokenizer files of a model folder.
#pragma once

#include <iosfwd>
#include <string>

#include "base/error.h"

namespace tern::content {

// Reads lines until the end of input. With `as_json`: {"text":...} gives {"ids":[...]}, {"ids":[...]} gives
// {"text":...}, anything else {"error":...}; an optional "add_special_tokens" / "skip_special_tokens" (default false)
// applies. Without: every line is a text and gives its ids, separated by spaces. Fails only when the tokenizer cannot
// load.
Status run_tokenize(const std::string& dir, std::istream& in, std::ostream& out, bool as_json);

// A line {"messages":..., "tools":..., "add_generation_prompt":..., "chat_template_kwargs":..., "documents":...} gives
// {"prompt":...} or {"error":...}. `chat_template` is a file or the template itself; "" takes the folder's own.
Status run_render(const std::string& dir, const std::string& chat_template, std::istream& in, std::ostream& out);

}  // namespace tern::content
