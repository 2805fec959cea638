// hermes = qwen3 (models-other.md 15): text before the calls and between them is content.
#include "answer/tools/tagged_json.h"

namespace tern::answer {
namespace {

constexpr std::string_view kStart[] = {"<tool_call>"};
constexpr std::string_view kMarks[] = {"<tool_call>", "</tool_call>"};

}  // namespace

const ToolFormat kHermes = {
    .name = "hermes",
    .start_marks = kStart,
    .trigger = "<tool_call>",
    .marks = kMarks,
    .scanner = [](std::shared_ptr<const Tools>, ToolScanner::IdSource ids) -> std::unique_ptr<ToolScanner> {
      return std::make_unique<TaggedJson>(ToolScanner::Policy{}, std::move(ids));
    },
    .grammar = tagged_json_grammar,
};

}  // namespace tern::answer
