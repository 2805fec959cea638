#include "content/text/tokenizer.h"

#include <cstdio>
#include <unordered_set>
#include <utility>

#include "base/memory/memory_ahead.h"
#include "content/text/textkit_handle.h"
#include "content/text/token_table.h"
#include "content/text/tokenizer_config.h"
#include "content/text/tokenizer_files.h"

namespace tern::content {

class TokenizerImpl {
 public:
  TkTokenizer handle;
  TokenTable table;
  TokenizerConfig config;
  std::string kind;
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  bool adds_bos = false;
  bool equal_tokens = false;
};

namespace {

// Memory that encoding takes for one byte of text; a single word of megabytes takes up to 28.
constexpr size_t kBytesPerByte = 16;

TokenTable copy_table(const tk_tokenizer* tokenizer) {
  tk_table raw{};
  tk_tokenizer_table(tokenizer, &raw);
  DecodeRules rules;
  rules.join = raw.sentencepiece ? Join::kSentencePiece : Join::kByteLevel;
  rules.strip_first_space = raw.strip_first_space != 0;
  return TokenTable(std::string(reinterpret_cast<const char*>(raw.blob), raw.blob_size),
                    std::vector<uint32_t>(raw.offsets, raw.offsets + raw.ids + 1),
                    std::vector<uint8_t>(raw.flags, raw.flags + raw.ids), rules);
}

bool any_equal(const TokenTable& table) {
  std::unordered_set<std::string_view> seen;
  seen.reserve(static_cast<size_t>(table.size()));
  for (int32_t id = 0; id < table.size(); ++id) {
    if (table.present(id) && !seen.insert(table.bytes(id)).second) return true;
  }
  return false;
}

bool is_utf8(std::string_view text) {
  TokenJoiner joiner;
  std::vector<uint32_t> offsets = {0, static_cast<uint32_t>(text.size())};
  const TokenTable one(std::string(text), std::move(offsets), {kTokenPresent}, {});
  std::string out;
  joiner.append(one, 0, false, out);
  joiner.finish(out);
  return out == text;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<TokenizerImpl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Expected<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& dir, const TokenizerOptions& options) {
  auto impl = std::make_unique<TokenizerImpl>();
  TERN_ASSIGN_OR_RETURN(impl->config, read_tokenizer_config(dir, options));
  TERN_ASSIGN_OR_RETURN(LoadedTokenizer loaded, load_tokenizer_files(dir, options, impl->config));
  impl->handle = std::move(loaded.handle);
  impl->kind = std::move(loaded.kind);
  impl->table = copy_table(impl->handle.get());
  std::unique_ptr<Tokenizer> made(new Tokenizer(std::move(impl)));
  TokenizerImpl& t = *made->impl_;
  const SpecialText& special = t.config.special;
  if (!special.bos_token.empty()) t.bos = made->token_to_id(special.bos_token);
  if (!special.eos_token.empty()) t.eos = made->token_to_id(special.eos_token);
  t.equal_tokens = any_equal(t.table);
  if (t.bos) {
    TERN_ASSIGN_OR_RETURN(const auto ids, made->encode("a", true));
    t.adds_bos = !ids.empty() && ids.front() == *t.bos;
  }
  return made;
}

Expected<std::vector<int32_t>> Tokenizer::encode(std::string_view text, bool add_special_tokens,
                                                 const EncodeBounds& bounds) const {
  static_assert(sizeof(std::atomic<bool>) == 1 && std::atomic<bool>::is_always_lock_free);
  const MemoryAhead ahead(text.size() * kBytesPerByte);
  TkIds ids;
  TkBytes error;
  const tk_code code =
      tk_tokenizer_encode(impl_->handle.get(), text.data(), text.size(), add_special_tokens ? 1 : 0, bounds.most,
                          reinterpret_cast<const uint8_t*>(bounds.cancelled), &ids.raw, &error.raw);
  if (code != TK_OK) return tk_error(code, error, {});
  return std::vector<int32_t>(ids.raw.data, ids.raw.data + ids.raw.size);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  TokenJoiner joiner;
  std::string out;
  for (int32_t id : ids) joiner.append(impl_->table, id, skip_special_tokens, out);
  joiner.finish(out);
  return out;
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const int64_t id = tk_tokenizer_id(impl_->handle.get(), token.data(), token.size());
  if (id < 0 || id >= vocab_size()) return std::nullopt;
  return static_cast<int32_t>(id);
}

std::string Tokenizer::id_to_token(int32_t id) const {
  if (!has_id(id)) return {};
  TkBytes out;
  if (tk_tokenizer_token(impl_->handle.get(), static_cast<uint32_t>(id), &out.raw) != TK_OK) return {};
  return std::string(out.view());
}

std::string_view Tokenizer::id_to_bytes(int32_t id) const { return impl_->table.bytes(id); }

std::string Tokenizer::token_text(int32_t id) const {
  const std::string_view bytes = id_to_bytes(id);
  if (is_utf8(bytes)) return std::string(bytes);
  std::string out = "bytes:";
  for (const char c : bytes) {
    char hex[8];
    std::snprintf(hex, sizeof(hex), "\\x%02x", static_cast<unsigned>(static_cast<uint8_t>(c)));
    out += hex;
  }
  return out;
}

int32_t Tokenizer::vocab_size() const { return impl_->table.size(); }
bool Tokenizer::has_id(int32_t id) const { return impl_->table.present(id); }
bool Tokenizer::is_special(int32_t id) const { return impl_->table.special(id); }
std::optional<int32_t> Tokenizer::bos_id() const { return impl_->bos; }
std::optional<int32_t> Tokenizer::eos_id() const { return impl_->eos; }
bool Tokenizer::has_equal_tokens() const { return impl_->equal_tokens; }
bool Tokenizer::adds_bos() const { return impl_->adds_bos; }
const SpecialText& Tokenizer::special_text() const { return impl_->config.special; }
std::optional<int64_t> Tokenizer::model_max_length() const { return impl_->config.model_max_length; }
const std::string& Tokenizer::kind() const { return impl_->kind; }
const tk_tokenizer* Tokenizer::handle() const { return impl_->handle.get(); }
const TokenTable& Tokenizer::table() const { return impl_->table; }

}  // namespace tern::content
