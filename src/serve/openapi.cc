// The body of /openapi.json.
#include "json/json.h"
#include "serve/router.h"

namespace tern::serve {
namespace {

json::Object reference(std::string_view kind, std::string_view name) {
  json::Object out;
  out["$ref"] = "#/components/" + std::string(kind) + "/" + std::string(name);
  return out;
}

json::Object content_of(std::string_view type, json::Value schema) {
  json::Object media, content;
  media["schema"] = std::move(schema);
  content[type] = std::move(media);
  return content;
}

json::Object response(std::string_view description, std::string_view type, json::Value schema) {
  json::Object out;
  out["description"] = description;
  out["content"] = content_of(type, std::move(schema));
  return out;
}

json::Object schema_of(std::string_view type) {
  json::Object out;
  out["type"] = type == "application/json" ? "object" : "string";
  return out;
}

json::Object operation(const Route& route, std::string_view method, const KeysAsked& keys) {
  json::Object out;
  std::string id(method);
  for (const char c : route.path) {
    if (c != '{' && c != '}') id += c == '/' || c == '.' || c == '-' ? '_' : c;
  }
  out["operationId"] = id;
  out["summary"] = route.summary;
  if (const size_t brace = route.path.find('{'); brace != std::string_view::npos) {
    json::Object parameter;
    parameter["name"] = route.path.substr(brace + 1, route.path.size() - brace - 2);
    parameter["in"] = "path";
    parameter["required"] = true;
    parameter["schema"] = schema_of("text/plain");
    out["parameters"] = json::Array{std::move(parameter)};
  }
  if (method == "post" && !route.body.empty()) {
    json::Object body;
    body["required"] = true;
    body["content"] = content_of("application/json", reference("schemas", route.body));
    out["requestBody"] = std::move(body);
  }
  json::Object responses;
  responses["200"] = response("Success", route.answer, schema_of(route.answer));
  responses["default"] = reference("responses", "Error");
  out["responses"] = std::move(responses);
  if (keys.any()) {
    json::Object bearer;
    bearer["ApiKey"] = json::Array();
    out["security"] = keys.by(route) ? json::Array{std::move(bearer)} : json::Array();
  }
  return out;
}

json::Object components(bool with_keys, bool metrics_on_main) {
  json::Object schemas, responses, out;
  for (const Route& route : routes()) {
    if (route.body.empty() || !serves(route, PortKind::kMain, metrics_on_main)) continue;
    schemas[route.body] = schema_of("application/json");
  }
  responses["Error"] = response("A status of 400 or more", "application/json", schema_of("application/json"));
  out["schemas"] = std::move(schemas);
  out["responses"] = std::move(responses);
  if (with_keys) {
    json::Object scheme, schemes;
    scheme["type"] = "http";
    scheme["scheme"] = "bearer";
    schemes["ApiKey"] = std::move(scheme);
    out["securitySchemes"] = std::move(schemes);
  }
  return out;
}

}  // namespace

std::string openapi_json(std::string_view version, const KeysAsked& keys, bool metrics_on_main) {
  json::Object info, paths, out;
  info["title"] = "Tern";
  info["version"] = version;
  for (const Route& route : routes()) {
    if (route.page || !serves(route, PortKind::kMain, metrics_on_main)) continue;
    json::Object item;
    if ((route.methods & kGetBit) != 0) item["get"] = operation(route, "get", keys);
    if ((route.methods & kPostBit) != 0) item["post"] = operation(route, "post", keys);
    paths[route.path] = std::move(item);
  }
  out["openapi"] = "3.1.0";
  out["info"] = std::move(info);
  out["paths"] = std::move(paths);
  out["components"] = components(keys.any(), metrics_on_main);
  return json::dump(out);
}

}  // namespace tern::serve
