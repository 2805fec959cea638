#include "content/text/text_tools.h"

#include <istream>
#include <limits>
#include <ostream>

#include "content/text/chat_template.h"
#include "content/text/tokenizer.h"
#include "content/text/tokenizer_config.h"
#include "json/json.h"

namespace tern::content {
namespace {

std::string error_line(const Error& error) {
  std::string out = "{\"error\":";
  json::append_quoted(out, error.message);
  return out + "}";
}

Expected<json::Object> parse_line(const std::string& line) {
  TERN_ASSIGN_OR_RETURN(json::Value value, json::parse(line));
  if (!value.is_object()) return make_error(ErrorCode::kInvalidArgument, "a line must be one JSON object");
  return std::move(value.get_object());
}

Expected<std::string> ids_line(const Tokenizer& tokenizer, const std::string& text, bool add_special) {
  TERN_ASSIGN_OR_RETURN(const auto ids, tokenizer.encode(text, add_special));
  std::string out = "{\"ids\":[";
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out.push_back(',');
    out.append(std::to_string(ids[i]));
  }
  return out + "]}";
}

Expected<std::string> text_line(const Tokenizer& tokenizer, const json::Value& list, bool skip_special) {
  if (!list.is_array()) return make_error(ErrorCode::kInvalidArgument, "ids must be a list of integers");
  std::vector<int32_t> ids;
  for (const json::Value& v : list.get_array()) {
    if (!v.is_int64() || v.get_int64() < 0 || v.get_int64() > std::numeric_limits<int32_t>::max() ||
        !tokenizer.has_id(static_cast<int32_t>(v.get_int64()))) {
      return make_error(ErrorCode::kInvalidArgument, "the vocabulary has no id " + json::dump(v));
    }
    ids.push_back(static_cast<int32_t>(v.get_int64()));
  }
  std::string out = "{\"text\":";
  json::append_quoted(out, tokenizer.decode(ids, skip_special));
  return out + "}";
}

Expected<std::string> tokenize_line(const Tokenizer& tokenizer, const std::string& line) {
  TERN_ASSIGN_OR_RETURN(const json::Object object, parse_line(line));
  TERN_ASSIGN_OR_RETURN(const auto text, json::get_string(object, "text"));
  if (text) {
    TERN_ASSIGN_OR_RETURN(const auto add_special, json::get_bool(object, "add_special_tokens"));
    return ids_line(tokenizer, *text, add_special.value_or(false));
  }
  if (const json::Value* ids = json::find(object, "ids")) {
    TERN_ASSIGN_OR_RETURN(const auto skip_special, json::get_bool(object, "skip_special_tokens"));
    return text_line(tokenizer, *ids, skip_special.value_or(false));
  }
  return make_error(ErrorCode::kInvalidArgument, "a line needs \"text\" or \"ids\"");
}

struct Templates {
  std::unique_ptr<ChatTemplate> plain;
  std::unique_ptr<ChatTemplate> with_tools;  // null: the plain one serves both
};

Expected<std::string> render_line(const Templates& templates, const SpecialText& special, const std::string& line) {
  TERN_ASSIGN_OR_RETURN(const json::Object object, parse_line(line));
  RenderInput input;
  input.messages = json::find(object, "messages");
  input.tools = json::find(object, "tools");
  input.documents = json::find(object, "documents");
  TERN_ASSIGN_OR_RETURN(const auto generation, json::get_bool(object, "add_generation_prompt"));
  input.add_generation_prompt = generation.value_or(true);
  if (const json::Value* kwargs = json::find(object, "chat_template_kwargs")) {
    if (!kwargs->is_object()) return make_error(ErrorCode::kInvalidArgument, "chat_template_kwargs must be an object");
    input.kwargs = &kwargs->get_object();
  }
  TERN_ASSIGN_OR_RETURN(const std::string variables, render_variables(input, special));
  const bool tools = input.tools && templates.with_tools;
  const ChatTemplate& chosen = tools ? *templates.with_tools : *templates.plain;
  TERN_ASSIGN_OR_RETURN(const std::string prompt, chosen.render(variables, local_unix_seconds()));
  std::string out = "{\"prompt\":";
  json::append_quoted(out, prompt);
  return out + "}";
}

}  // namespace

Status run_tokenize(const std::string& dir, std::istream& in, std::ostream& out, bool as_json) {
  TERN_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::load(dir));
  std::string line;
  while (std::getline(in, line)) {
    if (as_json) {
      const auto result = tokenize_line(*tokenizer, line);
      out << (result.ok() ? *result : error_line(result.error())) << '\n' << std::flush;
      continue;
    }
    const auto ids = tokenizer->encode(line, false);
    if (!ids.ok()) {
      out << "error: " << ids.error().message << '\n' << std::flush;
      continue;
    }
    for (size_t i = 0; i < ids->size(); ++i) out << (i ? " " : "") << (*ids)[i];
    out << '\n' << std::flush;
  }
  return {};
}

Status run_render(const std::string& dir, const std::string& chat_template, std::istream& in, std::ostream& out) {
  TERN_ASSIGN_OR_RETURN(const TokenizerConfig config, read_tokenizer_config(dir, {}));
  Templates templates;
  TemplateSet set;
  if (chat_template.empty()) {
    TERN_ASSIGN_OR_RETURN(set, find_templates(dir));
    if (set.default_template.empty()) {
      return make_error(ErrorCode::kNotFound,
                        "the folder " + dir + " has no chat template; give one with --chat-template");
    }
  } else {
    TERN_ASSIGN_OR_RETURN(set.default_template, read_template(chat_template));
  }
  TERN_ASSIGN_OR_RETURN(templates.plain, ChatTemplate::compile(set.default_template));
  if (&set.choose(true) != &set.default_template) {
    TERN_ASSIGN_OR_RETURN(templates.with_tools, ChatTemplate::compile(set.choose(true)));
  }
  std::string line;
  while (std::getline(in, line)) {
    const auto result = render_line(templates, config.special, line);
    out << (result.ok() ? *result : error_line(result.error())) << '\n' << std::flush;
  }
  return {};
}

}  // namespace tern::content
