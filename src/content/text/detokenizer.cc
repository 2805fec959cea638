#include "content/text/detokenizer.h"

namespace tern::content {

StreamDetokenizer::StreamDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : table_(&tokenizer.table()), skip_special_tokens_(skip_special_tokens) {}

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
