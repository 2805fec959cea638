#include <fmt/format.h>

#include "app/start/service.h"
#include "base/clock.h"

namespace tern::app {
namespace {

Expected<std::unique_ptr<content::ChatTemplate>> compile(const std::string& source, bool own) {
  if (source.empty()) return std::unique_ptr<content::ChatTemplate>();
  auto compiled = content::ChatTemplate::compile(source);
  if (compiled.ok()) return compiled;
  if (own) {
    TERN_WARN("the model's chat template does not compile ({}); chat requests are answered with status 400",
              compiled.error().message);
    return std::unique_ptr<content::ChatTemplate>();
  }
  Error error = std::move(compiled).error();
  error.message = "--chat-template: " + error.message;
  return error;
}

}  // namespace

Expected<TextParts> load_text(const std::string& folder, const std::string& chat_template) {
  TextParts parts;
  if (content::has_tokenizer(folder)) {
    TERN_ASSIGN_OR_RETURN(parts.tokenizer, content::Tokenizer::load(folder));
  } else {
    TERN_WARN("{} has no tokenizer files: only prompts of token ids are served", folder);
  }
  if (!chat_template.empty()) {
    TERN_ASSIGN_OR_RETURN(const std::string source, content::read_template(chat_template));
    TERN_ASSIGN_OR_RETURN(parts.chat_template, compile(source, false));
    return parts;
  }
  TERN_ASSIGN_OR_RETURN(const content::TemplateSet set, content::find_templates(folder));
  TERN_ASSIGN_OR_RETURN(parts.chat_template, compile(set.choose(false), true));
  if (set.choose(true) != set.choose(false)) {
    TERN_ASSIGN_OR_RETURN(parts.tool_template, compile(set.choose(true), true));
  }
  return parts;
}

}  // namespace tern::app
