#include <algorithm>

#include "answer/tools/format.h"

namespace tern::answer {

std::span<const NamedToolFormat> tool_formats() {
  static constexpr NamedToolFormat kFormats[] = {
      {"ernie-x1", &kErnieX1},
      {"ernie-45-vl-thinking", &kErnie45VlThinking},
      {"hermes", &kHermes},
      {"qwen3", &kHermes},
      {"qwen3_coder", &kQwen3Coder},
      {"deepseek_v3", &kDeepseekV3},
      {"deepseek_v31", &kDeepseekV31},
      {"deepseek", &kDeepseekV31},
      {"llama3_json", &kLlama3Json},
      {"mistral", &kMistral},
      {"glm45", &kGlm45},
  };
  return kFormats;
}

const ToolFormat* find_tool_format(std::string_view name) {
  const auto all = tool_formats();
  const auto found = std::ranges::find(all, name, &NamedToolFormat::name);
  return found == all.end() ? nullptr : found->format;
}

}  // namespace tern::answer
