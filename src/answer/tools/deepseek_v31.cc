// deepseek_v31: calls of DeepSeek V3.1 (models-other.md 13.5).
#include "answer/tools/deepseek_calls.h"

namespace tern::answer {

const ToolFormat kDeepseekV31 = {
    .name = "deepseek_v31",
    .start_marks = kDeepseekStart,
    .trigger = kDeepseekBegin,
    .marks = kDeepseekMarks,
    .scanner = [](std::shared_ptr<const Tools>, ToolScanner::IdSource ids) -> std::unique_ptr<ToolScanner> {
      return std::make_unique<DeepseekCalls>(DeepseekForm::kPlain, std::move(ids));
    },
    .grammar = [](const GrammarAsk& ask) { return deepseek_grammar(ask, DeepseekForm::kPlain); },
};

}  // namespace tern::answer
