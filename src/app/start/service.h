// A running server: everything from a resolved configuration to the end of the process.
#pragma once

#include <memory>

#include "app/config/settings.h"
#include "content/text/chat_template.h"
#include "content/text/tokenizer.h"
#include "engine/engine.h"
#include "model/model.h"

namespace tern::app {

// Loads, serves until a signal or a fault, drains. Gives the exit status; what went wrong was printed as one line.
int run_service(const Settings& settings);

// What turns text into tokens and back; any of them may be null.
struct TextParts {
  std::unique_ptr<content::Tokenizer> tokenizer;
  std::unique_ptr<content::ChatTemplate> chat_template, tool_template;
};
// A folder without tokenizer files gives none (token-id prompts are served); a broken one is an error, as is a
// --chat-template that does not compile. A folder's own template that does not compile is left out with a warning.
Expected<TextParts> load_text(const std::string& folder, const std::string& chat_template);

}  // namespace tern::app
