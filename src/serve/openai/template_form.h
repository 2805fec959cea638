// How a chat template wants the contents of messages: found out by rendering small conversations, since templates
// differ (strings or lists of parts, "image" or "image_url").
#pragma once

#include <string>

#include "content/media/vision_profile.h"
#include "content/text/chat_template.h"
#include "content/text/tokenizer.h"
#include "json/json.h"

namespace tern::serve::openai {

struct TemplateForm {
  // FastDeploy hands lists of parts to the templates of models that see; where a template does not render a role's
  // list, that role gets text.
  bool user_lists = false, system_lists = false, assistant_lists = false;
  std::string image_type, video_type;  // "" when the template writes no placeholder for any spelling
};

// Renders a handful of conversations; `profile` says what a placeholder looks like.
TemplateForm probe_template(const content::ChatTemplate& chat_template, const content::SpecialText& special,
                            const content::VisionProfile& profile);

// Ask::messages of a model that sees, as the template wants them. Media the template has no spelling for stay in their
// list: the prompt then lacks their placeholders, which is noticed when it is laid out.
json::Value shape_messages(const json::Array& messages, const TemplateForm& form);

// The text parts of a content list, with line breaks between them.
std::string joined_text(const json::Array& parts);

}  // namespace tern::serve::openai
