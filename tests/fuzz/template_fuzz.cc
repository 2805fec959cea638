// A chat template and its variables, separated by a zero byte: compiling and rendering end with a prompt or an error.
#include <cstdint>
#include <string_view>

#include "content/text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  const std::string_view variables = cut == std::string_view::npos
                                         ? R"({"messages":[{"role":"user","content":"Hi"}],"tools":null,"n":3})"
                                         : input.substr(cut + 1);
  tern::content::TemplateLimits limits;
  limits.max_steps = 200'000;
  limits.max_memory_bytes = 8u << 20;
  limits.max_output_bytes = 1u << 20;
  const auto compiled = tern::content::ChatTemplate::compile(input.substr(0, cut), limits);
  if (!compiled.ok()) return 0;
  const auto prompt = (*compiled)->render(variables, 0);
  if (!prompt.ok() && prompt.error().code == tern::ErrorCode::kInternal) __builtin_trap();
  if (prompt.ok() && prompt->size() > limits.max_output_bytes) __builtin_trap();
  return 0;
}
