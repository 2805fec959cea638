#include "serve/openai/text_api.h"

#include "serve/openai/ask.h"
#include "serve/openai/json/error.h"
#include "serve/openai/json/fields.h"
#include "serve/openai/json/writers.h"

namespace tern::serve {
namespace {

// Uses up the body.
Expected<std::string> text_of(json::Value& body, openai::Fields& f, bool& special, const prepare::PrepareInput& input) {
  f.boolean("add_special_tokens", special);
  if (!f.ok()) return f.take_error();
  if (f.find("messages") != nullptr) {
    if (f.find("add_special_tokens") == nullptr) special = false;
    TERN_ASSIGN_OR_RETURN(auto ask, openai::parse_chat(std::move(body), *input.config, openai::Purpose::kTokens));
    if (!ask.prompts.empty()) return openai::invalid_value("Input should be a list of messages", "messages");
    return prepare::render_chat(ask, input);
  }
  const json::Value* prompt = f.find("prompt");
  if (prompt == nullptr) return openai::invalid_value("Field required", "prompt");
  if (!prompt->is_string()) return openai::invalid_value("Input should be a valid string", "prompt");
  return std::string(prompt->get_string());
}

std::string tokens_body(const std::vector<int32_t>& ids, bool strs, const prepare::PrepareInput& input) {
  std::string out = "{\"count\":";
  openai::append_int(out, static_cast<int64_t>(ids.size()));
  out += ",\"max_model_len\":";
  openai::append_int(out, input.config->max_model_len);
  out += ",\"tokens\":";
  openai::append_ids(out, ids);
  out += ",\"token_strs\":";
  if (!strs || input.content.tokenizer == nullptr) return out + "null}";
  out += '[';
  for (const int32_t id : ids) {
    if (out.back() != '[') out += ',';
    json::append_quoted(out, input.content.tokenizer->id_to_token(id));
  }
  return out + "]}";
}

Expected<std::string> tokenize_body(json::Value body, const prepare::PrepareInput& input) {
  if (!body.is_object()) return openai::invalid_value("Input should be a valid dictionary", "body");
  if (input.content.tokenizer == nullptr) return openai::invalid_value("this model has no tokenizer", "prompt");
  openai::Fields f(body.get_object());
  bool special = true;
  TERN_ASSIGN_OR_RETURN(const bool strs, wants_token_strs(body));
  TERN_ASSIGN_OR_RETURN(const auto text, text_of(body, f, special, input));
  // Texts may be counted that do not fit the context, but not without end.
  const size_t most = static_cast<size_t>(input.contexts) * static_cast<size_t>(input.config->max_model_len);
  auto ids = input.content.tokenizer->encode(text, special, {most, input.cancelled.get()});
  if (!ids.ok() && ids.error().code == ErrorCode::kResourceExhausted) {
    return make_error(ErrorCode::kTooLarge, "the text has more than " + std::to_string(most) + " tokens", "prompt");
  }
  if (!ids.ok()) return openai::invalid_value(ids.error().message, "prompt");
  return tokens_body(*ids, strs, input);
}

Expected<std::string> detokenize_body(const json::Value& body, const prepare::PrepareInput& input) {
  if (!body.is_object()) return openai::invalid_value("Input should be a valid dictionary", "body");
  if (input.content.tokenizer == nullptr) return openai::invalid_value("this model has no tokenizer", "tokens");
  openai::Fields f(body.get_object());
  if (f.find("tokens") == nullptr) return openai::invalid_value("Field required", "tokens");
  std::vector<int32_t> ids;
  f.ids("tokens", ids, std::max(input.content.tokenizer->vocab_size(), input.config->vocab_size),
        input.config->http.body_bytes);
  bool skip = false;
  f.boolean("skip_special_tokens", skip);
  if (!f.ok()) return f.take_error();
  std::string out = "{\"prompt\":";
  json::append_quoted(out, input.content.tokenizer->decode(ids, skip));
  return out + "}";
}

http::Response reply(Expected<std::string> body) {
  return body.ok() ? http::json_response(200, *std::move(body)) : openai::error_response(body.error());
}

}  // namespace

http::Response tokenize(json::Value body, const prepare::PrepareInput& input) {
  return reply(tokenize_body(std::move(body), input));
}
Expected<bool> wants_token_strs(const json::Value& body) {
  if (!body.is_object()) return openai::invalid_value("Input should be a valid dictionary", "body");
  openai::Fields f(body.get_object());
  bool strs = false;
  f.boolean("return_token_strs", strs);
  if (!f.ok()) return f.take_error();
  return strs;
}
http::Response tokens_response(const std::vector<int32_t>& ids, bool strs, const prepare::PrepareInput& input) {
  return http::json_response(200, tokens_body(ids, strs, input));
}
http::Response detokenize(const json::Value& body, const prepare::PrepareInput& input) {
  return reply(detokenize_body(body, input));
}

}  // namespace tern::serve
