// Chat templates: which one a model folder uses, and rendering with limits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "content/text/tokenizer.h"
#include "json/json.h"

namespace tern::content {

// A render that passes a limit ends with kTooLarge; nothing a template or its variables do can hang or exhaust memory.
struct TemplateLimits {
  // Work, in steps of about 50 ns: evaluated nodes, and bytes and items that operators and filters touch
  // (rust/textkit/src/jinja/limits.rs says what costs how much). Long conversations may take more.
  uint64_t max_steps = 4'000'000;
  size_t variable_bytes_per_step = 4;      // a further step for so many bytes of variables
  uint32_t max_depth = 100;                // nested macro calls, blocks and expressions
  size_t max_output_bytes = 32u << 20;     // the prompt
  size_t max_memory_bytes = 128u << 20;    // all strings and lists made on the way
  size_t max_template_bytes = 1u << 20;    // the template's own text
  size_t max_variables_bytes = 64u << 20;  // the JSON text of the variables
};

// A compiled template. Immutable; render() may be called from any thread.
class ChatTemplate {
 public:
  static Expected<std::unique_ptr<ChatTemplate>> compile(std::string_view source, const TemplateLimits& limits = {});
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // `variables` is the JSON text of one object: messages, tools, add_generation_prompt, documents, bos_token, ... as
  // the template names them. `unix_seconds` is the (local) time strftime_now shows. Errors: kInvalidArgument when the
  // template itself raises or meets values it cannot handle, kTooLarge for a limit.
  Expected<std::string> render(std::string_view variables, int64_t unix_seconds) const;
  const std::string& source() const { return source_; }

 private:
  ChatTemplate() = default;
  struct Handle;
  std::unique_ptr<Handle> handle_;
  std::string source_;
};

// All templates of a model folder: chat_template.jinja, chat_template.json ({"chat_template": ...}), or
// tokenizer_config.json:chat_template (a string, or a list of {name, template}); in this order.
struct TemplateSet {
  std::string default_template;                              // "" when the folder has none
  std::vector<std::pair<std::string, std::string>> by_name;  // named ones ("tool_use", ...)
  // "tool_use" when there are tools and such a template exists, else the default.
  const std::string& choose(bool has_tools) const;
};
Expected<TemplateSet> find_templates(const std::string& dir, const TemplateLimits& limits = {});
// The value of --chat-template: a path to a file, or the template itself.
Expected<std::string> read_template(const std::string& path_or_text, const TemplateLimits& limits = {});

// The variables of one chat request as JSON text. Order and meaning as the Hugging Face renderer has them: messages,
// tools (null when absent), documents (null), add_generation_prompt, the special tokens, then chat_template_kwargs,
// which may override all but the reserved names (messages, tools, documents, chat_template): those are refused with
// kInvalidArgument.
struct RenderInput {
  const json::Value* messages = nullptr;   // array; required
  const json::Value* tools = nullptr;      // array or null
  const json::Value* documents = nullptr;  // array or null
  bool add_generation_prompt = true;
  const json::Object* kwargs = nullptr;  // chat_template_kwargs; may be null
};
Expected<std::string> render_variables(const RenderInput& input, const SpecialText& special);

// Seconds since 1970 on the wall clock of this machine's time zone: what strftime_now shows.
int64_t local_unix_seconds();

}  // namespace tern::content
