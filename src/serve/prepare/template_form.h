// How a chat template wants the messages of a conversation: found out by rendering small conversations, since templates
// differ (strings or lists of parts, "image" or "image_url", arguments of tool calls as text or as an object, an absent
// content as null or as nothing).
#pragma once

#include <cstdint>
#include <string>

#include "content/media/profile/vision_profile.h"
#include "content/text/chat_template.h"
#include "content/text/tokenizer.h"
#include "json/json.h"

namespace tern::serve::prepare {

// What stands in a message without content.
enum class NoContent : uint8_t {
  kNull,    // the key with null, as the client sent it: what a template that asks `content is none` needs
  kEmpty,   // an empty text, or an empty list where the role's contents are lists
  kAbsent,  // no key
};

enum class ArgumentsForm : uint8_t {
  kAsSent,  // both forms render correctly, or neither does: what the client sent is kept
  kText,
  kObject,
};

struct TemplateForm {
  // FastDeploy hands lists of parts to the templates of vision-language models; where a template does not render a
  // role's list, that role gets text.
  bool user_lists = false, system_lists = false, assistant_lists = false;
  std::string image_type,
      video_type;  // "" when neither spelling ("image", "image_url") makes the template write a placeholder
  NoContent system = NoContent::kEmpty, user = NoContent::kEmpty, assistant = NoContent::kEmpty,
            calling = NoContent::kEmpty,  // an assistant's message with tool calls
      tool = NoContent::kEmpty;           // role tool, and any role not named here
  // The template writes an assistant's tool calls only where content is null: shape_messages makes null of an empty
  // text.
  bool calls_need_null = false;
  ArgumentsForm arguments = ArgumentsForm::kAsSent;
  // Arguments that are no JSON object render as text; false: shape_messages wraps them, {"arguments": TEXT}.
  bool takes_any_text = true;
};

// Renders a few dozen conversations of a few words. `profile` says what a placeholder looks like; null for a text-only
// model.
TemplateForm probe_template(const content::ChatTemplate& chat_template, const content::SpecialText& special,
                            const content::VisionProfile* profile);

// Ask::messages as the template wants them. Where the template has no spelling for media, they stay in their list: the
// prompt then lacks their placeholders, and laying it out gives an error.
json::Array shape_messages(json::Array messages, const TemplateForm& form);

// The text parts of a content list, with line breaks between them.
std::string joined_text(const json::Array& parts);

}  // namespace tern::serve::prepare
