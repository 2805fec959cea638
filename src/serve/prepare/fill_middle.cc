#include "serve/prepare/fill_middle.h"

#include <algorithm>

#include "content/text/token_table.h"
#include "serve/core/invalid.h"

namespace tern::serve::prepare {
namespace {

// In front of the text, of the suffix, and of the answer.
struct Marks {
  std::string_view text, suffix, answer;
};
constexpr Marks kMarks[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},     // Qwen, CodeGemma
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},           // StarCoder
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},     // DeepSeek
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},  // GLM
};

bool is_mark(const content::Tokenizer& tokenizer, std::string_view text) {
  const auto id = tokenizer.token_to_id(text);
  return id && (tokenizer.table().flags(*id) & content::kTokenAdded) != 0;
}

}  // namespace

Expected<std::string> around_gap(const content::Tokenizer& tokenizer, std::string_view text, std::string_view suffix) {
  const auto* marks = std::ranges::find_if(kMarks, [&](const Marks& m) {
    return is_mark(tokenizer, m.text) && is_mark(tokenizer, m.suffix) && is_mark(tokenizer, m.answer);
  });
  if (marks == std::end(kMarks)) {
    return invalid_value("suffix: this model's vocabulary has no tokens for filling a gap", "suffix");
  }
  std::string out(marks->text);
  out.append(text).append(marks->suffix).append(suffix).append(marks->answer);
  return out;
}

}  // namespace tern::serve::prepare
