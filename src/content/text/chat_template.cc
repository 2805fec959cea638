#include "content/text/chat_template.h"

#include <ctime>

#include "base/memory/memory_ahead.h"
#include "content/text/files.h"
#include "content/text/textkit_handle.h"

namespace tern::content {

namespace {
constexpr size_t kBytesPerByte = 8;  // memory that rendering takes for one byte of variables, more or less
}

struct ChatTemplate::Handle {
  tk_template* raw = nullptr;
  TemplateLimits limits;
  ~Handle() { tk_template_free(raw); }
};

ChatTemplate::~ChatTemplate() = default;

Expected<std::unique_ptr<ChatTemplate>> ChatTemplate::compile(std::string_view source, const TemplateLimits& limits) {
  if (source.size() > limits.max_template_bytes) {
    return make_error(ErrorCode::kTooLarge,
                      "the chat template has more than " + std::to_string(limits.max_template_bytes) + " bytes");
  }
  std::unique_ptr<ChatTemplate> made(new ChatTemplate);
  made->handle_ = std::make_unique<Handle>();
  made->handle_->limits = limits;
  made->source_.assign(source);
  TkBytes error;
  const tk_code code = tk_template_new(source.data(), source.size(), &made->handle_->raw, &error.raw);
  if (code != TK_OK) return tk_error(code, error, "chat template");
  return made;
}

Expected<std::string> ChatTemplate::render(std::string_view variables, int64_t unix_seconds) const {
  const TemplateLimits& limits = handle_->limits;
  if (variables.size() > limits.max_variables_bytes) {
    return make_error(ErrorCode::kTooLarge,
                      "the messages are longer than " + std::to_string(limits.max_variables_bytes) + " bytes");
  }
  const MemoryAhead ahead(variables.size() * kBytesPerByte);
  tk_template_limits raw_limits{};
  raw_limits.steps = limits.max_steps + variables.size() / limits.variable_bytes_per_step;
  raw_limits.depth = limits.max_depth;
  raw_limits.output_bytes = limits.max_output_bytes;
  raw_limits.memory_bytes = limits.max_memory_bytes;
  TkBytes out;
  TkBytes error;
  const tk_code code = tk_template_render(handle_->raw, variables.data(), variables.size(), unix_seconds, &raw_limits,
                                          &out.raw, &error.raw);
  if (code != TK_OK) return tk_error(code, error, "chat template");
  return std::string(out.view());
}

const std::string& TemplateSet::choose(bool has_tools) const {
  if (has_tools) {
    for (const auto& [name, text] : by_name) {
      if (name == "tool_use") return text;
    }
  }
  return default_template;
}

namespace {

// A template is a string, or a list of {"name": ..., "template": ...}.
Status take_templates(const json::Value& value, const std::string& path, TemplateSet& set) {
  if (value.is_string()) {
    set.default_template = std::string(value.get_string());
    return {};
  }
  const auto wrong = [&] {
    return make_error(ErrorCode::kCorrupt,
                      path + ": chat_template must be a string or a list of {\"name\", \"template\"}", path);
  };
  if (!value.is_array()) return wrong();
  for (const json::Value& item : value.get_array()) {
    if (!item.is_object()) return wrong();
    const json::Value* name = json::find(item.get_object(), "name");
    const json::Value* text = json::find(item.get_object(), "template");
    if (!name || !text || !name->is_string() || !text->is_string()) return wrong();
    if (name->get_string() == "default") {
      set.default_template = std::string(text->get_string());
    } else {
      set.by_name.emplace_back(std::string(name->get_string()), std::string(text->get_string()));
    }
  }
  return {};
}

}  // namespace

Expected<TemplateSet> find_templates(const std::string& dir, const TemplateLimits& limits) {
  TemplateSet set;
  const std::string own_file = dir + "/chat_template.jinja";
  if (is_file(own_file)) {
    TERN_ASSIGN_OR_RETURN(set.default_template, read_file(own_file, limits.max_template_bytes));
    return set;
  }
  for (const char* name : {"/chat_template.json", "/tokenizer_config.json"}) {
    const std::string path = dir + name;
    if (!is_file(path)) continue;
    TERN_ASSIGN_OR_RETURN(const json::Value config, json::parse_file(path));
    if (!config.is_object()) return make_error(ErrorCode::kCorrupt, path + ": an object is expected", path);
    const json::Value* value = json::find(config.get_object(), "chat_template");
    if (!value) continue;
    TERN_RETURN_IF_ERROR(take_templates(*value, path, set));
    return set;
  }
  return set;
}

Expected<std::string> read_template(const std::string& path_or_text, const TemplateLimits& limits) {
  if (is_file(path_or_text)) return read_file(path_or_text, limits.max_template_bytes);
  if (path_or_text.find("{{") == std::string::npos && path_or_text.find("{%") == std::string::npos) {
    return make_error(ErrorCode::kNotFound,
                      "the chat template '" + path_or_text + "' is neither a file nor a template");
  }
  return path_or_text;
}

Expected<std::string> render_variables(const RenderInput& input, const SpecialText& special) {
  if (!input.messages || !input.messages->is_array()) {
    return make_error(ErrorCode::kInvalidArgument, "messages must be a list", "messages");
  }
  json::Object root;
  root["tools"] = input.tools ? *input.tools : json::Value(nullptr);
  root["documents"] = input.documents ? *input.documents : json::Value(nullptr);
  root["add_generation_prompt"] = input.add_generation_prompt;
  for (const auto& [name, text] : special.named) root[name] = text;
  if (input.kwargs) {
    for (const auto& [name, value] : *input.kwargs) {
      for (const char* reserved : {"messages", "tools", "documents", "chat_template"}) {
        if (name == reserved) {
          return make_error(ErrorCode::kInvalidArgument, "chat_template_kwargs may not set '" + std::string(name) + "'",
                            "chat_template_kwargs");
        }
      }
      root[name] = value;
    }
  }
  const std::string rest = json::dump(json::Value(std::move(root)));
  // The messages may be most of a request's body: they are written without a copy of the tree.
  return "{\"messages\":" + json::dump(*input.messages) + "," + rest.substr(1);
}

int64_t local_unix_seconds() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return static_cast<int64_t>(now) + local.tm_gmtoff;
}

}  // namespace tern::content
