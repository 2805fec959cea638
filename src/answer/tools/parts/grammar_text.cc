#include "answer/tools/parts/grammar_text.h"

#include <algorithm>

namespace tern::answer {
namespace {

constexpr std::string_view kAnyObject = R"({"type":"object"})";

std::string quoted(std::string_view text) {
  std::string out;
  json::append_quoted(out, text);
  return out;
}

std::string join(const std::string& list, std::string_view item) {
  return list.empty() ? std::string(item) : list + " | " + std::string(item);
}

// The definitions that references of a part of `root` need.
void add_definitions(const json::Value& root, json::Object& part) {
  for (const char* key : {"$defs", "definitions"}) {
    const json::Value* found = root.as_object().if_contains(key);
    if (found != nullptr && !part.contains(key)) part[key] = *found;
  }
}

}  // namespace

std::string GrammarText::row(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (const std::string_view part : parts) {
    if (part.empty()) continue;
    if (!out.empty()) out += ' ';
    out += part;
  }
  return out;
}

std::string GrammarText::group(std::string_view body, std::string_view count) {
  std::string out("(");
  out.append(body).append(")").append(count);
  return out;
}

std::string GrammarText::literal(std::string_view text) const {
  std::string out = quoted(text);
  for (size_t at = 0; (at = out.find('\x7f', at)) != std::string::npos;) out.replace(at, 1, "\\u007f");
  return out;
}

std::string GrammarText::mark(std::string_view text) const {
  const auto id = ask_.vocabulary != nullptr ? ask_.vocabulary->mark_id(text) : std::nullopt;
  return id ? "<[" + std::to_string(*id) + "]>" : literal(text);
}

void GrammarText::rule(std::string_view name, std::string_view body) {
  rules_.append(name).append(": ").append(body).append("\n");
}

std::string GrammarText::arguments(size_t tool) {
  const std::string name = "args-" + std::to_string(tool);
  if (tool < with_arguments_) return name;  // rules are made in the order of the tools
  with_arguments_ = tool + 1;
  const json::Value& parameters = ask_.tools[tool].parameters;
  std::string schema(kAnyObject);
  if (parameters.is_object()) {
    json::Object object = parameters.as_object();
    if (!object.contains("type")) object["type"] = "object";
    schema = json::dump(object);
  }
  rule(name, "%json " + schema);
  return name;
}

std::string GrammarText::json_calls(std::string_view arguments_key) {
  std::string any;
  for (size_t i = 0; i < ask_.tools.size(); ++i) {
    std::string head = R"({"name": )";
    head.append(quoted(ask_.tools[i].name)).append(", ").append(quoted(arguments_key)).append(": ");
    const std::string name = "call-" + std::to_string(i);
    const std::string body = arguments(i);
    rule(name, row({literal(head), body, literal("}")}));
    any = join(any, name);
  }
  rule("call", any);
  return "call";
}

std::string GrammarText::named_calls(std::string_view between) {
  std::string any;
  for (size_t i = 0; i < ask_.tools.size(); ++i) {
    const std::string name = "named-" + std::to_string(i);
    const std::string body = arguments(i);
    rule(name, row({literal(ask_.tools[i].name), between, body}));
    any = join(any, name);
  }
  rule("named-call", any);
  return "named-call";
}

std::string GrammarText::any_text(std::string_view close) {
  const std::string end = mark(close);
  if (end.starts_with('<')) return row({"any-text", end});
  if (!has_text_) rule("closed-text[suffix=" + end + "]", "/(?s:.*)/");
  has_text_ = true;
  return "closed-text";
}

std::string GrammarText::xml_value(size_t tool, size_t member, const json::Value& schema, std::string_view key,
                                   const XmlShape& shape) {
  const json::Value& property = schema.as_object().at("properties").as_object().at(key);
  const ValueKind kind = value_kind(schema, key, shape.unknown);
  const json::Value* choices = property.is_object() ? property.as_object().if_contains("enum") : nullptr;
  if (kind == ValueKind::kText && choices != nullptr && choices->is_array()) {
    std::string any;
    for (const json::Value& choice : choices->as_array()) {
      if (choice.is_string()) any = join(any, literal(choice.as_string()));
    }
    if (!any.empty()) return row({group(any, ""), mark(shape.value_end)});
  }
  if (kind == ValueKind::kJson && property.is_object()) {
    json::Object part = property.as_object();
    add_definitions(schema, part);
    const std::string name = "value-" + std::to_string(tool) + "-" + std::to_string(member);
    rule(name, "%json " + json::dump(part));
    return row({name, mark(shape.value_end)});
  }
  return any_text(shape.value_end);
}

std::string GrammarText::xml_arguments(size_t tool, const XmlShape& shape) {
  const json::Value& schema = ask_.tools[tool].parameters;
  const json::Object* object = schema.is_object() ? &schema.as_object() : nullptr;
  const json::Value* properties = object != nullptr ? object->if_contains("properties") : nullptr;
  if (properties == nullptr || !properties->is_object()) {
    return group(row({shape.before_key, "/[a-zA-Z0-9_.-]+/", shape.after_key, shape.before_value,
                      any_text(shape.value_end), shape.after_value}),
                 "*");
  }
  const json::Value* required = object->if_contains("required");
  std::string out;
  size_t member = 0;
  for (const auto& property : properties->as_object()) {
    const std::string_view key = property.key();
    const bool must = required != nullptr && required->is_array() &&
                      std::ranges::any_of(required->as_array(), [&](const json::Value& name) {
                        return name.is_string() && std::string_view(name.as_string()) == key;
                      });
    const std::string value = xml_value(tool, member++, schema, key, shape);
    const std::string pair =
        row({shape.before_key, literal(key), shape.after_key, shape.before_value, value, shape.after_value});
    out = row({out, group(pair, must ? "" : "?")});
  }
  return out;
}

std::string GrammarText::xml_calls(const XmlShape& shape) {
  if (mark(shape.value_end).starts_with('<')) rule("any-text", "/(?s:.*)/");
  std::string any;
  for (size_t i = 0; i < ask_.tools.size(); ++i) {
    const std::string name = "call-" + std::to_string(i);
    const std::string body = xml_arguments(i, shape);
    rule(name, row({shape.before_name, literal(ask_.tools[i].name), shape.after_name, body, shape.call_end}));
    any = join(any, name);
  }
  rule("call", any);
  return "call";
}

std::string GrammarText::calls(const Calls& calls) {
  const std::string next = row({calls.between, calls.begin_once ? "" : calls.begin, calls.body});
  const std::string start =
      row({ask_.after_trigger ? "" : calls.begin, calls.body, ask_.parallel && !calls.once ? group(next, "*") : ""});
  std::string out("start: ");
  return out.append(start).append("\n").append(rules_);
}

}  // namespace tern::answer
