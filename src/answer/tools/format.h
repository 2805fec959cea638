// The tool-call formats by name.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "answer/tools/scanner.h"
#include "answer/vocabulary.h"

namespace tern::answer {

// What a grammar has to allow.
struct GrammarAsk {
  std::span<const ToolSpec> tools;  // at least one; for a named choice exactly that one
  bool parallel = true;             // one or more calls; else exactly one
  // true: the text begins after the trigger (ToolFormat::trigger), which starts the first call; else with its mark.
  bool after_trigger = false;
  const Vocabulary* vocabulary = nullptr;  // marks that are one token are written as that token
};

struct ToolFormat {
  std::string_view name;
  // Texts with which a call may begin. Those that are single tokens are masked in requests with tool_choice none.
  std::span<const std::string_view> start_marks;
  // Once the model writes this text the grammar is applied; until then it may answer without a call (strict tools with
  // tool_choice auto).
  std::string_view trigger;
  // Texts that must reach the scanner even where they are special tokens and skip_special_tokens is set.
  std::span<const std::string_view> marks;
  bool short_ids = false;  // ids are nine letters and digits (Mistral), else chatcmpl-tool- and 32 hexadecimal digits
  std::unique_ptr<ToolScanner> (*scanner)(std::shared_ptr<const Tools> tools, ToolScanner::IdSource ids);
  std::string (*grammar)(const GrammarAsk& ask);  // Lark for llguidance
};

// Every name with its format; `qwen3` is `hermes`, `deepseek` is `deepseek_v31`.
struct NamedToolFormat {
  std::string_view name;
  const ToolFormat* format;
};
std::span<const NamedToolFormat> tool_formats();
const ToolFormat* find_tool_format(std::string_view name);  // nothing when there is none

extern const ToolFormat kErnieX1, kErnie45VlThinking, kHermes, kQwen3Coder, kDeepseekV3, kDeepseekV31, kLlama3Json,
    kMistral, kGlm45;

}  // namespace tern::answer
