#include "content/text/detokenizer.h"

#include <algorithm>

namespace tern::content {

StreamDetokenizer::StreamDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : table_(&tokenizer.table()), skip_special_tokens_(skip_special_tokens) {}

void StreamDetokenizer::continue_after(std::span<const int32_t> before) {
  const auto writes = [&](int32_t id) { return table_->present(id) && !table_->special(id); };
  const auto first = std::find_if(before.begin(), before.end(), writes);
  if (first == before.end()) return;  // still at the start of the text
  // An unfinished character has at most three bytes, so it begins in one of the last three tokens that write anything;
  // the first of them only tells that the text has begun.
  std::string text;
  joiner_.append(*table_, *first, true, text);
  size_t begin = before.size();
  for (int found = 0; begin > 0 && found < 3;) found += writes(before[--begin]) ? 1 : 0;
  TokenJoiner tail = joiner_;
  const auto skip = static_cast<size_t>(first - before.begin()) + 1;
  for (size_t i = std::max(begin, skip); i < before.size(); ++i) tail.append(*table_, before[i], true, text);
  joiner_ = tail;
  if (!joiner_.pending()) return;
  text.clear();
  tail.finish(text);
  unfinished_ = static_cast<int>(text.size() / 3);  // U+FFFD has three bytes
}

std::string StreamDetokenizer::push(std::span<const int32_t> ids) {
  std::string out;
  for (int32_t id : ids) joiner_.append(*table_, id, skip_special_tokens_, out);
  return out;
}

std::string StreamDetokenizer::finish() {
  std::string out;
  joiner_.finish(out);
  return out;
}

}  // namespace tern::content
