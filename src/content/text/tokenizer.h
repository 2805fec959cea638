// Text to token ids and back. One immutable object per model folder; every const method may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

struct tk_tokenizer;

namespace tern::content {

class TokenTable;     // token_table.h: the bytes of every id and the rules that join them
class TokenizerImpl;  // the encoder behind the textkit library

struct TokenizerOptions {
  size_t max_file_bytes = 256u << 20;  // any one tokenizer file
  size_t max_vocab = 2'000'000;        // highest id + 1
  size_t max_token_bytes = 64u << 10;  // text of one token
  size_t max_text_bytes = 64u << 20;   // one encode call
  std::string only_kind;               // "" takes the first kind found; else as kind() names it
};

// Special token strings as the folder's tokenizer_config.json / special_tokens_map.json give them ("" when absent).
// `named` holds all "*_token" strings (bos_token, eos_token, cls_token, sep_token, ...) in file order: chat templates
// see them as variables.
struct SpecialText {
  std::string bos_token;
  std::string eos_token;
  std::string pad_token;
  std::string unk_token;
  std::vector<std::pair<std::string, std::string>> named;
};

struct EncodeBounds {
  size_t most = SIZE_MAX;                        // ids that are of use; kResourceExhausted when there are more
  const std::atomic<bool>* cancelled = nullptr;  // kCancelled soon after it is set
};

class Tokenizer {
 public:
  // Reads the tokenizer of a model folder: tokenizer.json; vocab.json + merges.txt; a tiktoken-form or SentencePiece
  // .model (tokenizer.model, spm.model, ernie_token_100k.model, tokenizer.model.v*). kNotFound when there is none,
  // kCorrupt / kTooLarge / kUnsupported with the file's name otherwise.
  static Expected<std::unique_ptr<Tokenizer>> load(const std::string& dir, const TokenizerOptions& options = {});
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Chat prompts (rendered templates) are encoded without special tokens, plain completion texts with them
  // (models-other.md 12.1). Added tokens inside the text are recognised either way. Invalid UTF-8 is kInvalidArgument.
  Expected<std::vector<int32_t>> encode(std::string_view text, bool add_special_tokens,
                                        const EncodeBounds& bounds = {}) const;

  // The whole text of `ids`; unknown ids give nothing. Always valid UTF-8: bytes that form no character become U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  std::optional<int32_t> token_to_id(std::string_view token) const;
  // The token as its vocabulary spells it (for byte-level kinds with the byte alphabet); "" when there is no such id.
  std::string id_to_token(int32_t id) const;
  // The bytes the token stands for in running text (" the", or one raw byte); may be no valid UTF-8 on its own.
  std::string_view id_to_bytes(int32_t id) const;
  // Text of one token as log-prob lists show it: its bytes when valid UTF-8, else "bytes:\\xE4\\xBD".
  std::string token_text(int32_t id) const;

  // Some ids stand for the same bytes (a byte token and the letter), so that token_text cannot tell them apart.
  bool has_equal_tokens() const;

  int32_t vocab_size() const;     // highest id + 1, added tokens included
  bool has_id(int32_t id) const;  // some ids below vocab_size may be unused
  bool is_special(int32_t id) const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  bool adds_bos() const;  // encode(..., true) puts BOS first

  const SpecialText& special_text() const;
  std::optional<int64_t> model_max_length() const;  // nothing when absent or "unlimited" (1e30)
  const std::string& kind() const;                  // "tokenizer.json", "bpe", "tiktoken" or "sentencepiece"
  const TokenTable& table() const;
  const tk_tokenizer* handle() const;  // of the textkit library, for grammars over these tokens

 private:
  explicit Tokenizer(std::unique_ptr<TokenizerImpl> impl);
  std::unique_ptr<TokenizerImpl> impl_;
};

// True when the folder has files of any known tokenizer kind.
bool has_tokenizer(const std::string& dir);

}  // namespace tern::content
