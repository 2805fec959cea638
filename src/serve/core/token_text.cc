#include "serve/core/token_text.h"

#include <algorithm>

namespace tern::serve {

TokenText::TokenText(const Rules& rules) : count_(rules.count) {
  if (rules.tokenizer != nullptr) detokenizer_.emplace(*rules.tokenizer, rules.skip_special_tokens);
  if (rules.stop != nullptr && !rules.stop->empty()) {
    stop_ = std::make_unique<content::StopMatcher>(*rules.stop, rules.include_stop);
  }
}

void TokenText::continue_after(std::span<const int32_t> ids) {
  if (detokenizer_) detokenizer_->continue_after(ids);
}

TokenText::Piece TokenText::push(int32_t id, bool shown, bool last) {
  Piece piece;
  piece.offset = characters_;
  if (detokenizer_) {
    if (shown) {
      const bool drops = detokenizer_->drops_space();
      piece.raw = detokenizer_->push(id);
      piece.spaceless = drops && !detokenizer_->drops_space();
      piece.offset += detokenizer_->earlier();
    }
    if (last) piece.raw += detokenizer_->finish();
    if (!shown) piece.offset += count_characters(piece.raw);  // all of it belongs to the tokens before
  }
  match(piece, last);
  return piece;
}

TokenText::Piece TokenText::finish() {
  Piece piece;
  piece.offset = characters_;
  if (detokenizer_) piece.raw = detokenizer_->finish();
  match(piece, true);
  return piece;
}

void TokenText::match(Piece& piece, bool last) {
  if (count_) characters_ += count_characters(piece.raw);
  if (!stop_) {
    piece.text = piece.raw;
    return;
  }
  auto result = stop_->push(piece.raw);
  piece.text = std::move(result.text);
  piece.stopped = result.stopped;
  piece.stop = result.stop_index;
  if (last && !piece.stopped) piece.text += stop_->finish();
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace tern::serve
