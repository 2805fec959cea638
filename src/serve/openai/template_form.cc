#include "serve/openai/template_form.h"

#include <optional>

namespace tern::serve::openai {
namespace {

constexpr std::string_view kMark = "tern-probe";

json::Object text_part(std::string_view text) { return {{"type", "text"}, {"text", text}}; }

// A part of a type, with the key that some templates look for instead. It says nothing of where the picture comes from.
json::Object media_part(std::string_view type) {
  json::Object part{{"type", type}};
  if (type.ends_with("_url"))
    part[type] = json::Object{{"url", ""}};
  else
    part[type] = "";
  return part;
}

json::Object message(std::string_view role, json::Value content) {
  return {{"role", role}, {"content", std::move(content)}};
}

std::optional<std::string> render(const content::ChatTemplate& chat_template, const content::SpecialText& special,
                                  json::Array messages) {
  const json::Value list(std::move(messages));
  content::RenderInput input;
  input.messages = &list;
  auto variables = content::render_variables(input, special);
  if (!variables.ok()) return std::nullopt;
  auto text = chat_template.render(*variables, 0);
  if (!text.ok()) return std::nullopt;
  return *std::move(text);
}

size_t count(std::string_view text, std::string_view what) {
  size_t n = 0;
  for (size_t at = 0; !what.empty() && (at = text.find(what, at)) != std::string_view::npos; at += what.size()) ++n;
  return n;
}

// A list that was printed instead of read shows its keys.
bool reads_list(const std::optional<std::string>& text) {
  return text && count(*text, kMark) == 1 && count(*text, "\"type\"") == 0 && count(*text, "'type'") == 0;
}

std::string find_type(const content::ChatTemplate& chat_template, const content::SpecialText& special,
                      const content::Placeholder& placeholder, std::initializer_list<std::string_view> types) {
  for (const auto type : types) {
    json::Array parts{media_part(type), text_part(kMark)};
    const auto text = render(chat_template, special, {message("user", std::move(parts))});
    if (!reads_list(text)) continue;
    for (const auto& spelling : placeholder.texts) {
      if (count(*text, spelling) == 1) return std::string(type);
    }
  }
  return {};
}

}  // namespace

std::string joined_text(const json::Array& parts) {
  std::string text;
  bool first = true;
  for (const auto& part : parts) {
    const json::Value* piece = json::find(part.get_object(), "text");
    if (piece == nullptr) continue;
    if (!first) text += '\n';
    text += std::string_view(piece->get_string());
    first = false;
  }
  return text;
}

TemplateForm probe_template(const content::ChatTemplate& chat_template, const content::SpecialText& special,
                            const content::VisionProfile& profile) {
  const json::Array list{text_part(kMark)};
  const auto reads = [&](json::Array messages) {
    return reads_list(render(chat_template, special, std::move(messages)));
  };
  TemplateForm form;
  form.user_lists = reads({message("user", list)});
  const json::Value question = form.user_lists ? json::Value(json::Array{text_part("x")}) : json::Value("x");
  form.system_lists = reads({message("system", list), message("user", question)});
  form.assistant_lists = reads({message("user", question), message("assistant", list), message("user", question)});
  form.image_type = find_type(chat_template, special, profile.image, {"image", "image_url"});
  if (profile.takes_video) {
    form.video_type = find_type(chat_template, special, profile.video, {"video", "video_url"});
  }
  return form;
}

json::Value shape_messages(const json::Array& messages, const TemplateForm& form) {
  json::Array out = messages;
  for (auto& item : out) {
    json::Object& message = item.get_object();
    json::Value* content = message.if_contains("content");
    if (content == nullptr || content->is_null()) continue;
    const std::string_view role = message.at("role").get_string();
    const bool lists = role == "user"        ? form.user_lists
                       : role == "system"    ? form.system_lists
                       : role == "assistant" ? form.assistant_lists
                                             : false;
    if (content->is_string()) {
      if (lists) *content = json::Array{text_part(content->get_string())};
      continue;
    }
    bool has_media = false;
    for (auto& part : content->get_array()) {
      const std::string type(part.get_object().at("type").get_string());
      if (type == "text") continue;
      has_media = true;
      const std::string& spelling = type == "image" ? form.image_type : form.video_type;
      part = media_part(spelling.empty() ? type : spelling);
    }
    if (!lists && !has_media) *content = joined_text(content->get_array());
  }
  return out;
}

}  // namespace tern::serve::openai
