#include "answer/vocabulary.h"

#include "content/text/token_table.h"
#include "content/text/tokenizer.h"

namespace tern::answer {

Vocabulary vocabulary_of(const content::Tokenizer& tokenizer) {
  const content::Tokenizer* t = &tokenizer;
  Vocabulary out;
  out.mark_id = [t](std::string_view text) -> std::optional<int32_t> {
    const std::optional<int32_t> id = t->token_to_id(text);
    if (!id || (t->table().flags(*id) & (content::kTokenAdded | content::kTokenSpecial)) == 0) return std::nullopt;
    return id;
  };
  out.bytes = [t](int32_t id) { return t->id_to_bytes(id); };
  out.special = [t](int32_t id) { return t->is_special(id); };
  return out;
}

}  // namespace tern::answer
