#include "cli/ocr.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <span>

#include "app/flags/flag_set.h"
#include "app/hub/find_folder.h"
#include "image/codecs/decode.h"
#include "json/json.h"

namespace tern::cli {
namespace {

constexpr const char* kShipped = "models/tern-demo-ocr";
constexpr int64_t kLongest = 16384;  // context, where the model's own is longer

bool is_folder(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

std::string_view mime_of(std::string_view file) {
  switch (image::sniff_format({reinterpret_cast<const uint8_t*>(file.data()), file.size()})) {
    case image::Format::kJpeg:
      return "image/jpeg";
    case image::Format::kPng:
      return "image/png";
    case image::Format::kGif:
      return "image/gif";
    case image::Format::kWebp:
      return "image/webp";
    case image::Format::kBmp:
      return "image/bmp";
    case image::Format::kTiff:
      return "image/tiff";
    case image::Format::kUnknown:
      break;
  }
  return "application/octet-stream";
}

int64_t number(const json::Object& object, const char* key) {
  const auto value = json::get_int(object, key);
  return value.ok() ? value->value_or(0) : 0;
}

const json::Object* object_at(const json::Object& from, const char* key) {
  const json::Value* value = json::find(from, key);
  return value != nullptr ? value->if_object() : nullptr;
}

}  // namespace

std::string encode_base64(std::string_view bytes) {
  constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t have = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < have ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) out += k <= have ? kLetters[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::string ocr_body(std::string_view file, const std::string& prompt, const std::string& model, int max_tokens) {
  std::string body = "{\"model\":";
  json::append_quoted(body, model);
  body += fmt::format(
      ",\"temperature\":0,\"messages\":[{{\"role\":\"user\",\"content\":[{{\"type\":\"image_url\","
      "\"image_url\":{{\"url\":\"data:{};base64,",
      mime_of(file));
  body += encode_base64(file);
  body += "\"}},{\"type\":\"text\",\"text\":";
  json::append_quoted(body, prompt);
  body += "}]}],\"skip_special_tokens\":true";
  if (max_tokens > 0) body += fmt::format(",\"max_tokens\":{}", max_tokens);
  return body + "}";
}

Expected<OcrAnswer> parse_ocr_answer(int status, std::string_view body) {
  const auto parsed = json::parse(body);
  const json::Object* object = parsed.ok() ? parsed->if_object() : nullptr;
  if (status != 200 || object == nullptr) {
    std::string words(body.substr(0, 300));
    if (object != nullptr) {
      const json::Object* error = object_at(*object, "error");
      const json::Value* message =
          json::find(error != nullptr ? *error : *object, error != nullptr ? "message" : "detail");
      if (message != nullptr && message->is_string()) words = std::string(message->get_string());
    }
    return make_error(ErrorCode::kUnavailable, fmt::format("status {}: {}", status, words));
  }
  OcrAnswer answer;
  const json::Value* choices = json::find(*object, "choices");
  const json::Array* list = choices != nullptr ? choices->if_array() : nullptr;
  const json::Object* choice = list != nullptr && !list->empty() ? list->front().if_object() : nullptr;
  const json::Object* message = choice != nullptr ? object_at(*choice, "message") : nullptr;
  if (message == nullptr) return make_error(ErrorCode::kUnavailable, "the server's answer has no message");
  if (auto text = json::get_string(*message, "content"); text.ok()) answer.text = text->value_or("");
  if (auto reason = json::get_string(*choice, "finish_reason"); reason.ok())
    answer.finish_reason = reason->value_or("");
  if (const json::Object* usage = object_at(*object, "usage")) {
    answer.prompt_tokens = number(*usage, "prompt_tokens");
    answer.completion_tokens = number(*usage, "completion_tokens");
    if (const json::Object* details = object_at(*usage, "prompt_tokens_details")) {
      answer.image_tokens = number(*details, "image_tokens");
    }
  }
  return answer;
}

std::string shipped_model() {
  char path[4096];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  std::string folder = n > 0 ? std::string(path, static_cast<size_t>(n)) : std::string();
  folder.resize(folder.rfind('/') == std::string::npos ? 0 : folder.rfind('/'));
  for (const char* up : {"/", "/../", "/../share/tern/", "/../../"}) {
    if (const std::string found = folder + up + kShipped; is_folder(found)) return found;
  }
  if (const std::string packed = folder + "/model"; is_folder(packed)) return packed;  // as make dist packs it
  return is_folder(kShipped) ? kShipped : "";
}

Expected<app::Settings> ocr_settings(const std::string& model, const std::string& api_key, int parallel,
                                     const std::string& device) {
  TERN_ASSIGN_OR_RETURN(app::Environment environment, app::Environment::from(app::Environment::of_process()));
  TERN_ASSIGN_OR_RETURN(const std::string folder, app::obtain_folder({.name = model}, environment));
  TERN_ASSIGN_OR_RETURN(const app::ModelFacts facts, app::read_model_facts(folder, "config.json", {}));
  const int64_t length =
      facts.max_position_embeddings > 0 ? std::min(facts.max_position_embeddings, kLongest) : kLongest;
  TERN_ASSIGN_OR_RETURN(
      app::Arguments arguments,
      app::parse_arguments({"--model", model, "--host", "127.0.0.1", "--port", "0", "--api-key", api_key,
                            "--max-num-seqs", std::to_string(parallel), "--max-model-len", std::to_string(length),
                            "--no-enable-prefix-caching", "--max-encoder-cache", "0", "--max-processor-cache", "0",
                            "--device", device}));
  return app::resolve(std::move(arguments.flags), std::move(environment), facts);
}

}  // namespace tern::cli
