// Tokenizer files: the first byte picks the kind, the rest is the file (two files are separated by a zero byte).
// Loading ends with a tokenizer that encodes and decodes, or with an error.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "content/text/token_table.h"
#include "textkit.h"

namespace {

// The stream and the whole must agree, and ids must lie in the table.
void use(const tk_tokenizer* tokenizer) {
  tk_table raw{};
  tk_tokenizer_table(tokenizer, &raw);
  const tern::content::DecodeRules rules{
      raw.sentencepiece ? tern::content::Join::kSentencePiece : tern::content::Join::kByteLevel,
      raw.strip_first_space != 0};
  const tern::content::TokenTable table(std::string(reinterpret_cast<const char*>(raw.blob), raw.blob_size),
                                        std::vector<uint32_t>(raw.offsets, raw.offsets + raw.ids + 1),
                                        std::vector<uint8_t>(raw.flags, raw.flags + raw.ids), rules);
  const std::string_view text = "The 3 kettles \xE4\xBD\xA0\xE5\xA5\xBD <|end|>\n  x";
  tk_ids ids{};
  if (tk_tokenizer_encode(tokenizer, text.data(), text.size(), 1, SIZE_MAX, nullptr, &ids, nullptr) != TK_OK) return;
  tern::content::TokenJoiner joiner;
  std::string out;
  for (size_t i = 0; i < ids.size; ++i) joiner.append(table, static_cast<int32_t>(ids.data[i]), false, out);
  joiner.finish(out);
  tk_ids_free(&ids);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto kind = static_cast<tk_kind>(data[0] % 4);
  const std::string_view file(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t cut = kind == TK_VOCAB_MERGES ? file.find('\0') : std::string_view::npos;
  const std::string_view first = file.substr(0, cut);
  const std::string_view second = cut == std::string_view::npos ? std::string_view() : file.substr(cut + 1);
  const std::string options =
      R"({"pattern":"llama3","added_tokens":[{"id":3,"content":"<|end|>","special":true}],"special_texts":["<s>"],)"
      R"("max_vocab":20000,"max_token_bytes":1000,"max_text_bytes":1000})";
  tk_tokenizer* tokenizer = nullptr;
  const tk_code code = tk_tokenizer_new(kind, reinterpret_cast<const uint8_t*>(first.data()), first.size(),
                                        reinterpret_cast<const uint8_t*>(second.data()), second.size(), options.data(),
                                        options.size(), &tokenizer, nullptr);
  if (code == TK_INTERNAL) __builtin_trap();
  if (code == TK_OK) use(tokenizer);
  tk_tokenizer_free(tokenizer);
  return 0;
}
