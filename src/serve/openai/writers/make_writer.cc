#include "serve/openai/writers/make_writer.h"

#include "serve/openai/writers/stream_writer.h"
#include "serve/openai/writers/whole_writer.h"

namespace tern::serve::openai {

std::unique_ptr<Writer> make_writer(const Generation& generation) {
  const Ask& ask = generation.ask();
  if (ask.stream) {
    if (ask.chat) return std::make_unique<ChatStream>(generation);
    return std::make_unique<CompletionStream>(generation);
  }
  if (ask.chat) return std::make_unique<ChatWhole>(generation);
  return std::make_unique<CompletionWhole>(generation);
}

std::string_view finish_name(const Choice& choice) {
  switch (choice.reason) {
    case engine::FinishReason::kStop:
      return choice.called ? "tool_calls" : "stop";
    case engine::FinishReason::kLength:
      return "length";
    case engine::FinishReason::kAbort:
      return "abort";
    case engine::FinishReason::kError:
      return "error";
    case engine::FinishReason::kNone:
      break;
  }
  return "";
}

}  // namespace tern::serve::openai
