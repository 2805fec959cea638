#include "content/text/tokenizer_files.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "content/text/files.h"
#include "json/json.h"

namespace tern::content {
namespace {

// models-ernie-paddleocr.md 7.1: the order in which the names are tried; then Mistral's numbered ones.
std::string find_model_file(const std::string& dir) {
  for (const char* name : {"tokenizer.model", "spm.model", "ernie_token_100k.model"}) {
    const std::string path = dir + "/" + name;
    if (is_file(path)) return path;
  }
  std::string best;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("tokenizer.model.v") && entry.is_regular_file(error)) best = std::max(best, name);
  }
  return best.empty() ? best : dir + "/" + best;
}

bool is_base64(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/' || c == '=';
}

// tiktoken's form: every line is a base64 text, a space and a number. A SentencePiece model starts with a line feed.
bool looks_like_tiktoken(std::string_view data) {
  const std::string_view line = data.substr(0, data.find('\n'));
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 >= line.size() || line.size() > 4096) return false;
  return std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(space), is_base64) &&
         std::all_of(line.begin() + static_cast<std::ptrdiff_t>(space) + 1, line.end(),
                     [](char c) { return (c >= '0' && c <= '9') || c == '\r'; });
}

// What textkit is told; rust/textkit/src/tok/options.rs has the fields.
struct LoaderOptions {
  std::string pattern;
  bool nfc = false;
  bool prefix_once = false;
  std::vector<int64_t> prefix;
  std::vector<int64_t> suffix;

  std::string to_json(const TokenizerConfig& config, const TokenizerOptions& options) const {
    json::Object root;
    root["pattern"] = pattern;
    root["nfc"] = nfc;
    root["prefix_once"] = prefix_once;
    json::Array added;
    for (const AddedToken& t : config.added) {
      json::Object o;
      o["id"] = t.id;
      o["content"] = t.content;
      o["special"] = t.special;
      o["lstrip"] = t.lstrip;
      o["rstrip"] = t.rstrip;
      o["single_word"] = t.single_word;
      o["normalized"] = t.normalized;
      added.emplace_back(std::move(o));
    }
    root["added_tokens"] = std::move(added);
    root["special_texts"] = json::Array(config.special_texts.begin(), config.special_texts.end());
    root["prefix"] = json::Array(prefix.begin(), prefix.end());
    root["suffix"] = json::Array(suffix.begin(), suffix.end());
    root["max_vocab"] = options.max_vocab;
    root["max_token_bytes"] = options.max_token_bytes;
    root["max_text_bytes"] = options.max_text_bytes;
    return json::dump(json::Value(std::move(root)));
  }
};

Expected<TkTokenizer> make(tk_kind kind, const std::string& path, std::string_view first, std::string_view second,
                           const std::string& options) {
  tk_tokenizer* raw = nullptr;
  TkBytes error;
  const tk_code code = tk_tokenizer_new(kind, tk_data(first), first.size(), tk_data(second), second.size(),
                                        options.data(), options.size(), &raw, &error.raw);
  if (code != TK_OK) return tk_error(code, error, path);
  return TkTokenizer(raw);
}

void name_special(TokenizerConfig& config, const char* name, std::string SpecialText::*field, const std::string& text) {
  if (text.empty() || !(config.special.*field).empty()) return;
  config.special.*field = text;
  config.special.named.emplace_back(name, text);
  config.special_texts.push_back(text);
}

int64_t id_in(const TkTokenizer& t, const std::string& text) {
  return text.empty() ? -1 : tk_tokenizer_id(t.get(), text.data(), text.size());
}

Expected<TkTokenizer> load_bpe(const std::string& dir, const TokenizerOptions& options, TokenizerConfig& config) {
  TERN_ASSIGN_OR_RETURN(const std::string vocab, read_file(dir + "/vocab.json", options.max_file_bytes));
  TERN_ASSIGN_OR_RETURN(const std::string merges, read_file(dir + "/merges.txt", options.max_file_bytes));
  LoaderOptions loader;
  const bool qwen = config.tokenizer_class.starts_with("Qwen2");
  loader.pattern = qwen ? "qwen2" : "gpt2";
  loader.nfc = qwen;
  const auto load = [&] {
    return make(TK_VOCAB_MERGES, dir + "/vocab.json", vocab, merges, loader.to_json(config, options));
  };
  TERN_ASSIGN_OR_RETURN(TkTokenizer tokenizer, load());
  // GPT-2's own files say nothing of its one special token; it stands in the vocabulary.
  const std::string end = "<|endoftext|>";
  if (!config.present && id_in(tokenizer, end) >= 0) {
    name_special(config, "bos_token", &SpecialText::bos_token, end);
    name_special(config, "eos_token", &SpecialText::eos_token, end);
    name_special(config, "unk_token", &SpecialText::unk_token, end);
  }
  bool again = false;
  for (const std::string& text : config.special_texts) {
    const auto same = [&](const AddedToken& t) { return t.content == text; };
    const int64_t id = id_in(tokenizer, text);
    if (id < 0 || std::any_of(config.added.begin(), config.added.end(), same)) continue;
    AddedToken token;
    token.id = id;
    token.content = text;
    token.special = true;
    config.added.push_back(std::move(token));
    again = true;
  }
  if (config.add_bos.value_or(false) && id_in(tokenizer, config.special.bos_token) >= 0) {
    loader.prefix = {id_in(tokenizer, config.special.bos_token)};
    again = true;
  }
  if (!again) return tokenizer;
  return load();
}

// The 256 special tokens that follow the ranks of a Llama 3 file, as published with it.
void add_llama3_specials(std::string_view ranks, TokenizerConfig& config) {
  int64_t next = 0;
  for (size_t at = 0; at < ranks.size();) {
    const size_t end = std::min(ranks.find('\n', at), ranks.size());
    if (end > at) ++next;
    at = end + 1;
  }
  const char* const named[] = {"<|begin_of_text|>",
                               "<|end_of_text|>",
                               "<|reserved_special_token_0|>",
                               "<|reserved_special_token_1|>",
                               "<|finetune_right_pad_id|>",
                               "<|step_id|>",
                               "<|start_header_id|>",
                               "<|end_header_id|>",
                               "<|eom_id|>",
                               "<|eot_id|>",
                               "<|python_tag|>",
                               "<|image|>"};
  const int count = static_cast<int>(std::size(named));
  for (int i = 0; i < 256; ++i) {
    AddedToken token;
    token.id = next + i;
    token.special = true;
    token.content = i < count ? named[i] : "<|reserved_special_token_" + std::to_string(2 + i - count) + "|>";
    config.added.push_back(std::move(token));
  }
}

Expected<TkTokenizer> load_tiktoken(const std::string& path, std::string_view data, const TokenizerOptions& options,
                                    TokenizerConfig& config) {
  LoaderOptions loader;
  loader.pattern = config.tokenizer_class.starts_with("Qwen") ? "qwen2" : "llama3";
  if (config.added.empty()) add_llama3_specials(data, config);
  if (!config.present) {
    name_special(config, "bos_token", &SpecialText::bos_token, "<|begin_of_text|>");
    name_special(config, "eos_token", &SpecialText::eos_token, "<|end_of_text|>");
  }
  for (const AddedToken& t : config.added) {
    if (config.add_bos.value_or(true) && t.content == config.special.bos_token) loader.prefix = {t.id};
    if (config.add_eos.value_or(false) && t.content == config.special.eos_token) loader.suffix = {t.id};
  }
  return make(TK_TIKTOKEN, path, data, {}, loader.to_json(config, options));
}

Expected<TkTokenizer> load_sentencepiece(const std::string& path, std::string_view data,
                                         const TokenizerOptions& options, TokenizerConfig& config) {
  LoaderOptions loader;
  loader.prefix_once = !config.legacy.value_or(true);
  TERN_ASSIGN_OR_RETURN(TkTokenizer tokenizer, make(TK_SENTENCEPIECE, path, data, {}, loader.to_json(config, options)));
  if (!config.present) {
    const auto if_there = [&](const char* text) { return id_in(tokenizer, text) >= 0 ? text : ""; };
    name_special(config, "bos_token", &SpecialText::bos_token, if_there("<s>"));
    name_special(config, "eos_token", &SpecialText::eos_token, if_there("</s>"));
    name_special(config, "unk_token", &SpecialText::unk_token, if_there("<unk>"));
  }
  // Llama tokenizers add BOS unless told otherwise; ERNIE's and others do not (models-ernie-paddleocr.md 7.1).
  const bool llama = config.tokenizer_class.empty() || config.tokenizer_class.find("Llama") != std::string::npos;
  const int64_t bos = id_in(tokenizer, config.special.bos_token);
  const int64_t eos = id_in(tokenizer, config.special.eos_token);
  if (config.add_bos.value_or(llama) && bos >= 0) loader.prefix = {bos};
  if (config.add_eos.value_or(false) && eos >= 0) loader.suffix = {eos};
  if (loader.prefix.empty() && loader.suffix.empty()) return tokenizer;
  return make(TK_SENTENCEPIECE, path, data, {}, loader.to_json(config, options));
}

}  // namespace

bool has_tokenizer(const std::string& dir) {
  return is_file(dir + "/tokenizer.json") || !find_model_file(dir).empty() ||
         (is_file(dir + "/vocab.json") && is_file(dir + "/merges.txt"));
}

Expected<LoadedTokenizer> load_tokenizer_files(const std::string& dir, const TokenizerOptions& options,
                                               TokenizerConfig& config) {
  const auto wanted = [&](const char* kind) { return options.only_kind.empty() || options.only_kind == kind; };
  const std::string json_path = dir + "/tokenizer.json";
  if (wanted("tokenizer.json") && is_file(json_path)) {
    TERN_ASSIGN_OR_RETURN(const std::string data, read_file(json_path, options.max_file_bytes));
    TERN_ASSIGN_OR_RETURN(TkTokenizer handle,
                          make(TK_TOKENIZER_JSON, json_path, data, {}, LoaderOptions().to_json(config, options)));
    return LoadedTokenizer{std::move(handle), "tokenizer.json"};
  }
  const std::string model_path = find_model_file(dir);
  if (!model_path.empty() && (wanted("tiktoken") || wanted("sentencepiece"))) {
    TERN_ASSIGN_OR_RETURN(const std::string data, read_file(model_path, options.max_file_bytes));
    const bool ranks = looks_like_tiktoken(data);
    auto handle = ranks ? load_tiktoken(model_path, data, options, config)
                        : load_sentencepiece(model_path, data, options, config);
    if (!handle.ok()) return std::move(handle).error();
    return LoadedTokenizer{std::move(handle).value(), ranks ? "tiktoken" : "sentencepiece"};
  }
  if (wanted("bpe") && is_file(dir + "/vocab.json") && is_file(dir + "/merges.txt")) {
    TERN_ASSIGN_OR_RETURN(TkTokenizer handle, load_bpe(dir, options, config));
    return LoadedTokenizer{std::move(handle), "bpe"};
  }
  return make_error(ErrorCode::kNotFound,
                    "no tokenizer in " + dir + " (looked for tokenizer.json, tokenizer.model, spm.model, " +
                        "ernie_token_100k.model, vocab.json with merges.txt)",
                    dir);
}

}  // namespace tern::content
