// continue_final_message: the prompt ends inside the last message, which the model goes on writing, as transformers'
// apply_chat_template() does it.
#pragma once

#include <string>

#include "base/error.h"
#include "json/json.h"

namespace tern::serve::prepare {

// Marks the end of the last text of the last message. `messages`: an array as the template gets it. kInvalidArgument
// when there is no such text.
Status mark_final_message(json::Value& messages);
// Cuts the rendered prompt at the mark. A template that trims contents trims the last one too. kInvalidArgument when
// the template does not print that text.
Expected<std::string> cut_at_mark(std::string rendered);

}  // namespace tern::serve::prepare
