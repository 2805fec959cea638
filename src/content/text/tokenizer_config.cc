#include "content/text/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "content/text/files.h"
#include "json/json.h"

namespace tern::content {
namespace {

constexpr double kUnlimitedLength = 1e12;  // model_max_length above it means "none" (1e30 in practice)

Error wrong(const std::string& path, const std::string& what) {
  return make_error(ErrorCode::kCorrupt, path + ": " + what, path);
}

// A special token is written as its text, or as an object with "content"; null means none.
Expected<std::optional<std::string>> token_text(const json::Value& value, const std::string& path,
                                                std::string_view key) {
  if (value.is_null()) return std::optional<std::string>();
  if (value.is_string()) return std::optional<std::string>(std::string(value.get_string()));
  if (value.is_object()) {
    const json::Value* content = json::find(value.get_object(), "content");
    if (content && content->is_string()) return std::optional<std::string>(std::string(content->get_string()));
  }
  return wrong(path, std::string(key) + " must be a string or an object with \"content\"");
}

void add_special(TokenizerConfig& config, const std::string& text) {
  auto& list = config.special_texts;
  if (!text.empty() && std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

void set_named(TokenizerConfig& config, const std::string& name, const std::string& text) {
  for (const auto& entry : config.special.named) {
    if (entry.first == name) return;  // tokenizer_config.json is read first and wins
  }
  config.special.named.emplace_back(name, text);
  add_special(config, text);
}

// All "*_token" keys, additional_special_tokens and extra_special_tokens.
Status take_specials(const json::Object& object, const std::string& path, TokenizerConfig& config) {
  for (const auto& [key, value] : object) {
    const std::string name(key);
    if (name.ends_with("_token") && !value.is_bool()) {
      TERN_ASSIGN_OR_RETURN(const auto text, token_text(value, path, name));
      if (text) set_named(config, name, *text);
    } else if ((name == "additional_special_tokens" || name == "extra_special_tokens") && value.is_array()) {
      for (const json::Value& item : value.get_array()) {
        TERN_ASSIGN_OR_RETURN(const auto text, token_text(item, path, name));
        if (text) add_special(config, *text);
      }
    } else if (name == "extra_special_tokens" && value.is_object()) {
      for (const auto& [role, item] : value.get_object()) {
        TERN_ASSIGN_OR_RETURN(const auto text, token_text(item, path, role));
        if (text) set_named(config, std::string(role), *text);
      }
    }
  }
  return {};
}

Status take_decoder(const json::Object& decoder, const std::string& path, TokenizerConfig& config) {
  for (const auto& [key, value] : decoder) {
    AddedToken token;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || token.id < 0 || !value.is_object()) {
      return wrong(path, "added_tokens_decoder must map ids to objects");
    }
    const json::Object& object = value.get_object();
    TERN_ASSIGN_OR_RETURN(const auto content, json::get_string(object, "content"));
    if (!content || content->empty()) return wrong(path, "an added token has no content");
    token.content = *content;
    for (const auto& [name, field] : {std::pair<const char*, bool*>{"special", &token.special},
                                      {"lstrip", &token.lstrip},
                                      {"rstrip", &token.rstrip},
                                      {"single_word", &token.single_word},
                                      {"normalized", &token.normalized}}) {
      TERN_ASSIGN_OR_RETURN(const auto flag, json::get_bool(object, name));
      *field = flag.value_or(false);
    }
    config.added.push_back(std::move(token));
  }
  return {};
}

Status take_config(const json::Object& object, const std::string& path, TokenizerConfig& config) {
  TERN_RETURN_IF_ERROR(take_specials(object, path, config));
  TERN_ASSIGN_OR_RETURN(const auto name, json::get_string(object, "tokenizer_class"));
  config.tokenizer_class = name.value_or("");
  TERN_ASSIGN_OR_RETURN(config.add_bos, json::get_bool(object, "add_bos_token"));
  TERN_ASSIGN_OR_RETURN(config.add_eos, json::get_bool(object, "add_eos_token"));
  TERN_ASSIGN_OR_RETURN(config.legacy, json::get_bool(object, "legacy"));
  if (const json::Value* length = json::find(object, "model_max_length"); length && length->is_number()) {
    const double value = length->to_number<double>();
    if (value >= 1 && value < kUnlimitedLength) config.model_max_length = static_cast<int64_t>(value);
  }
  if (const json::Value* decoder = json::find(object, "added_tokens_decoder")) {
    if (!decoder->is_object()) return wrong(path, "added_tokens_decoder must be an object");
    TERN_RETURN_IF_ERROR(take_decoder(decoder->get_object(), path, config));
  }
  return {};
}

Status take_added(const json::Object& object, const std::string& path, TokenizerConfig& config) {
  std::unordered_set<int64_t> ids;
  std::unordered_set<std::string> texts;
  for (const AddedToken& t : config.added) {
    ids.insert(t.id);
    texts.insert(t.content);
  }
  for (const auto& [text, value] : object) {
    if (!value.is_int64() || value.get_int64() < 0 || text.empty()) return wrong(path, "it must map texts to ids");
    AddedToken token;
    token.id = value.get_int64();
    token.content = std::string(text);
    // The decoder in tokenizer_config.json is read first and wins.
    if (!ids.insert(token.id).second || !texts.insert(token.content).second) continue;
    config.added.push_back(std::move(token));
  }
  return {};
}

using Taker = Status (*)(const json::Object&, const std::string&, TokenizerConfig&);

}  // namespace

Expected<TokenizerConfig> read_tokenizer_config(const std::string& dir, const TokenizerOptions& options) {
  TokenizerConfig config;
  const std::pair<const char*, Taker> files[] = {{"/tokenizer_config.json", take_config},
                                                 {"/special_tokens_map.json", take_specials},
                                                 {"/added_tokens.json", take_added}};
  for (const auto& [name, take] : files) {
    const std::string path = dir + name;
    if (!is_file(path)) continue;
    json::Limits limits;
    limits.max_bytes = options.max_file_bytes;
    TERN_ASSIGN_OR_RETURN(const json::Value value, json::parse_file(path, limits));
    if (!value.is_object()) return wrong(path, "an object is expected");
    TERN_RETURN_IF_ERROR(take(value.get_object(), path, config));
    config.present = true;
  }
  const auto& texts = config.special_texts;
  for (AddedToken& t : config.added) {
    t.special = t.special || std::find(texts.begin(), texts.end(), t.content) != texts.end();
  }
  std::sort(config.added.begin(), config.added.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (size_t i = 1; i < config.added.size(); ++i) {
    if (config.added[i].id == config.added[i - 1].id) {
      return wrong(dir, "the added token id " + std::to_string(config.added[i].id) + " is given twice");
    }
  }
  for (const auto& [name, text] : config.special.named) {
    if (name == "bos_token") config.special.bos_token = text;
    if (name == "eos_token") config.special.eos_token = text;
    if (name == "pad_token") config.special.pad_token = text;
    if (name == "unk_token") config.special.unk_token = text;
  }
  return config;
}

}  // namespace tern::content
