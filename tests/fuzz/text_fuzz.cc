// Texts for every kind of tokenizer: the first byte picks the tokenizer and whether special tokens are added, the
// second the bound. Within the bound the ids are those without one; a text that fits is never refused; ids give valid
// text.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "content/text/tokenizer.h"

namespace {

using tern::content::Tokenizer;

const std::vector<std::unique_ptr<Tokenizer>>& tokenizers() {
  static const auto all = [] {
    std::vector<std::unique_ptr<Tokenizer>> out;
    for (const char* name : {"byte_level", "custom_split", "byte_fallback", "vocab_merges", "tiktoken",
                             "sentencepiece_ernie", "sentencepiece_llama", "sentencepiece_unigram"}) {
      auto loaded = Tokenizer::load(std::string(TERN_SOURCE_DIR) + "/tests/data/tokenizers/" + name);
      if (!loaded.ok()) abort();
      out.push_back(std::move(loaded).value());
    }
    return out;
  }();
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const Tokenizer& tokenizer = *tokenizers()[data[0] % tokenizers().size()];
  const bool special = (data[0] & 0x80) != 0;
  const size_t most = data[1];
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto whole = tokenizer.encode(text, special);
  const auto bounded = tokenizer.encode(text, special, {most, nullptr});
  if (!whole.ok()) {  // no UTF-8
    if (bounded.ok()) abort();
    return 0;
  }
  if (bounded.ok() != (whole->size() <= most)) abort();
  if (bounded.ok() && *bounded != *whole) abort();
  const std::string back = tokenizer.decode(*whole, false);
  const auto again = tokenizer.encode(back, false);
  if (!again.ok()) abort();
  return 0;
}
