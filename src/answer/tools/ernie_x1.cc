// ernie-x1 (models-other.md 15): newlines before a call and all text after the first call are dropped.
#include "answer/tools/tagged_json.h"

namespace tern::answer {
namespace {

constexpr std::string_view kStart[] = {"<tool_call>"};
constexpr std::string_view kMarks[] = {"<tool_call>", "</tool_call>"};

}  // namespace

const ToolFormat kErnieX1 = {
    .name = "ernie-x1",
    .start_marks = kStart,
    .trigger = "<tool_call>",
    .marks = kMarks,
    .scanner = [](std::shared_ptr<const Tools>, ToolScanner::IdSource ids) -> std::unique_ptr<ToolScanner> {
      return std::make_unique<TaggedJson>(
          ToolScanner::Policy{.drop_text_after_first_call = true, .drop_newlines = true}, std::move(ids));
    },
    .grammar = tagged_json_grammar,
};

}  // namespace tern::answer
