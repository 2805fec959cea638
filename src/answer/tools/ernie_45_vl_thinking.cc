// ernie-45-vl-thinking: a call counts only if nothing but newlines precedes it in the answer; after other text
// <tool_call> is plain text (models-other.md 15).
#include "answer/tools/tagged_json.h"

namespace tern::answer {
namespace {

constexpr std::string_view kStart[] = {"<tool_call>"};
constexpr std::string_view kMarks[] = {"<tool_call>", "</tool_call>"};

}  // namespace

const ToolFormat kErnie45VlThinking = {
    .name = "ernie-45-vl-thinking",
    .start_marks = kStart,
    .trigger = "<tool_call>",
    .marks = kMarks,
    .scanner = [](std::shared_ptr<const Tools>, ToolScanner::IdSource ids) -> std::unique_ptr<ToolScanner> {
      return std::make_unique<TaggedJson>(
          ToolScanner::Policy{.drop_text_after_first_call = true, .drop_newlines = true, .only_at_start = true},
          std::move(ids));
    },
    .grammar = tagged_json_grammar,
};

}  // namespace tern::answer
