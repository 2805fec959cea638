// deepseek_v3: calls of DeepSeek V3-0324 and R1 (models-other.md 13.4).
#include "answer/tools/deepseek_calls.h"

namespace tern::answer {

const ToolFormat kDeepseekV3 = {
    .name = "deepseek_v3",
    .start_marks = kDeepseekStart,
    .trigger = kDeepseekBegin,
    .marks = kDeepseekMarks,
    .scanner = [](std::shared_ptr<const Tools>, ToolScanner::IdSource ids) -> std::unique_ptr<ToolScanner> {
      return std::make_unique<DeepseekCalls>(DeepseekForm::kCodeFence, std::move(ids));
    },
    .grammar = [](const GrammarAsk& ask) { return deepseek_grammar(ask, DeepseekForm::kCodeFence); },
};

}  // namespace tern::answer
