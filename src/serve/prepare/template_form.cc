#include "serve/prepare/template_form.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace tern::serve::prepare {
namespace {

constexpr std::string_view kMark = "tern-probe";
// One call's arguments, written as Python's json.dumps does.
constexpr std::string_view kArguments = R"({"tern-key": "tern-value"})";
constexpr std::string_view kBroken = R"({"tern-key": "tern)";

json::Object text_part(std::string_view text) { return {{"type", "text"}, {"text", text}}; }

json::Object message(std::string_view role, json::Value content) {
  return {{"role", role}, {"content", std::move(content)}};
}

// The call's id has nine letters and digits: some templates take no other.
json::Object calling(std::string_view arguments, json::Value content = nullptr) {
  json::Object out = message("assistant", std::move(content));
  out["tool_calls"] = json::Array{json::Object{{"id", "ternprob1"},
                                               {"type", "function"},
                                               {"function", json::Object{{"name", kMark}, {"arguments", arguments}}}}};
  return out;
}

json::Object tool_result(json::Value content) {
  json::Object out = message("tool", std::move(content));
  out["tool_call_id"] = "ternprob1";
  out["name"] = kMark;
  return out;
}

size_t count(std::string_view text, std::string_view what) {
  size_t n = 0;
  for (size_t at = 0; !what.empty() && (at = text.find(what, at)) != std::string_view::npos; at += what.size()) ++n;
  return n;
}

bool has(const std::optional<std::string>& text, std::string_view what) {
  return text && text->find(what) != std::string::npos;
}

class Probe {
 public:
  Probe(const content::ChatTemplate& chat_template, const content::SpecialText& special)
      : chat_template_(chat_template), special_(special) {}

  void read_lists(bool sees);
  void read_media(const content::VisionProfile& profile);
  void read_no_content();
  void read_arguments();

  TemplateForm form;

 private:
  std::optional<std::string> try_render(const json::Array& messages, const json::Value* tools) const {
    const json::Value list(messages);
    content::RenderInput input;
    input.messages = &list;
    input.tools = tools;
    auto variables = content::render_variables(input, special_);
    if (!variables.ok()) return std::nullopt;
    auto text = chat_template_.render(*variables, 0);
    if (!text.ok()) return std::nullopt;
    return *std::move(text);
  }

  // A template for tools may render nothing without them.
  std::optional<std::string> render(const json::Array& messages) const {
    if (auto text = try_render(messages, nullptr)) return text;
    static const json::Value kTools = json::Array{json::Object{
        {"type", "function"},
        {"function", json::Object{{"name", "f"},
                                  {"description", "d"},
                                  {"parameters", json::Object{{"type", "object"}, {"properties", json::Object{}}}}}}}};
    return try_render(messages, &kTools);
  }

  std::optional<std::string> render_shaped(json::Array messages, const TemplateForm& as) const {
    return render(shape_messages(std::move(messages), as));
  }

  // A list that was printed instead of read shows its keys.
  bool reads_list(const json::Array& messages) const {
    const auto text = render(messages);
    return text && count(*text, kMark) == 1 && count(*text, "\"type\"") == 0 && count(*text, "'type'") == 0;
  }

  std::string find_type(const content::Placeholder& placeholder, std::initializer_list<std::string_view> types) const;
  NoContent find_no_content(NoContent TemplateForm::*which, const json::Array& messages) const;

  const content::ChatTemplate& chat_template_;
  const content::SpecialText& special_;
};

// A model of text gets lists only where the template does not read a text.
void Probe::read_lists(bool sees) {
  const json::Array list{text_part(kMark)};
  const auto wants = [&](auto with) {
    return reads_list(with(json::Value(list))) && (sees || !has(render(with(json::Value(kMark))), kMark));
  };
  form.user_lists = wants([](json::Value v) { return json::Array{message("user", std::move(v))}; });
  const json::Value question = form.user_lists ? json::Value(json::Array{text_part("x")}) : json::Value("x");
  const json::Object user = message("user", question);
  form.system_lists = wants([&](json::Value v) { return json::Array{message("system", std::move(v)), user}; });
  form.assistant_lists = wants([&](json::Value v) {
    return json::Array{user, message("assistant", std::move(v)), user};
  });
}

std::string Probe::find_type(const content::Placeholder& placeholder,
                             std::initializer_list<std::string_view> types) const {
  for (const auto type : types) {
    TemplateForm as = form;
    as.image_type = as.video_type = std::string(type);
    const json::Array parts{json::Object{{"type", "image"}}, text_part(kMark)};
    const json::Array messages = shape_messages({message("user", parts)}, as);
    if (!reads_list(messages)) continue;
    const auto text = render(messages);
    for (const auto& spelling : placeholder.texts) {
      if (count(*text, spelling) == 1) return std::string(type);
    }
  }
  return {};
}

void Probe::read_media(const content::VisionProfile& profile) {
  form.image_type = find_type(profile.image, {"image", "image_url"});
  if (profile.takes_video) form.video_type = find_type(profile.video, {"video", "video_url"});
}

// The first way that renders, writes the call if any way does, and does not write the word None where another does not.
NoContent Probe::find_no_content(NoContent TemplateForm::*which, const json::Array& messages) const {
  constexpr NoContent kWays[] = {NoContent::kNull, NoContent::kEmpty, NoContent::kAbsent};
  std::optional<NoContent> best;
  bool best_call = false;
  size_t best_none = 0;
  for (const NoContent way : kWays) {
    TemplateForm as = form;
    as.*which = way;
    for (const auto arguments : {ArgumentsForm::kText, ArgumentsForm::kObject}) {
      as.arguments = arguments;
      const auto text = render_shaped(messages, as);
      if (!text) continue;
      const bool call = has(text, kMark);
      const size_t none = count(*text, "None");
      if (best && (call < best_call || (call == best_call && none >= best_none))) continue;
      best = way;
      best_call = call;
      best_none = none;
    }
  }
  return best.value_or(NoContent::kEmpty);
}

void Probe::read_no_content() {
  const json::Object user = message("user", "x");
  form.user = find_no_content(&TemplateForm::user, {message("user", nullptr)});
  form.system = find_no_content(&TemplateForm::system, {message("system", nullptr), user});
  form.assistant = find_no_content(&TemplateForm::assistant, {user, message("assistant", nullptr), user});
  form.calling = find_no_content(&TemplateForm::calling, {user, calling(kArguments), tool_result("x")});
  form.tool = find_no_content(&TemplateForm::tool, {user, calling(kArguments), tool_result(nullptr)});
}

void Probe::read_arguments() {
  const json::Array with_text{message("user", "x"), calling(kArguments), tool_result("x")};
  const auto as = [&](ArgumentsForm arguments) {
    TemplateForm out = form;
    out.arguments = arguments;
    return out;
  };
  const TemplateForm as_text = as(ArgumentsForm::kText), as_object = as(ArgumentsForm::kObject);
  const auto text = render_shaped(with_text, as_text), object = render_shaped(with_text, as_object);
  // Python's spelling of a mapping, or one that was escaped for HTML, is not what the model was trained on.
  const bool text_fits = has(text, kArguments);
  const bool object_fits =
      has(object, "tern-key") && has(object, "tern-value") && !has(object, "'tern-key'") && !has(object, "&#34;");
  if (text_fits != object_fits) {
    form.arguments = text_fits ? ArgumentsForm::kText : ArgumentsForm::kObject;
  } else if (text.has_value() != object.has_value()) {
    form.arguments = text ? ArgumentsForm::kText : ArgumentsForm::kObject;
  }
  form.takes_any_text = render_shaped({message("user", "x"), calling(kBroken), tool_result("x")}, form).has_value();
  const json::Array with_content{message("user", "x"), calling(kArguments, ""), tool_result("x")};
  const json::Array without{message("user", "x"), calling(kArguments), tool_result("x")};
  form.calls_need_null = form.calling == NoContent::kNull && has(render_shaped(without, form), kMark) &&
                         !has(render_shaped(with_content, form), kMark);
}

}  // namespace

TemplateForm probe_template(const content::ChatTemplate& chat_template, const content::SpecialText& special,
                            const content::VisionProfile* profile) {
  Probe probe(chat_template, special);
  probe.read_lists(profile != nullptr);
  if (profile != nullptr) probe.read_media(*profile);
  probe.read_no_content();
  probe.read_arguments();
  return probe.form;
}

}  // namespace tern::serve::prepare
