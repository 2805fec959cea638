// What the JSON files beside a tokenizer say about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "content/text/tokenizer.h"

namespace tern::content {

struct AddedToken {
  int64_t id = -1;
  std::string content;
  bool special = false;
  bool lstrip = false;
  bool rstrip = false;
  bool single_word = false;
  bool normalized = false;
};

// tokenizer_config.json, special_tokens_map.json, added_tokens.json of a folder; all optional.
struct TokenizerConfig {
  bool present = false;         // any of the files is there
  std::string tokenizer_class;  // "LlamaTokenizer", "Ernie4_5_Tokenizer", ...; "" when not named
  SpecialText special;
  std::vector<std::string> special_texts;  // every special token's text, additional ones included
  std::vector<AddedToken> added;           // by id
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> legacy;
  std::optional<int64_t> model_max_length;
};

Expected<TokenizerConfig> read_tokenizer_config(const std::string& dir, const TokenizerOptions& options);

}  // namespace tern::content
