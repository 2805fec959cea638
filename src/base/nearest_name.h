// Spelling help for error messages: flags, commands, keys of files, tensors.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string_view>

namespace tern {

// The first candidate with the least distance to `name` (insertions, deletions and replacements: Levenshtein's), when
// that is `at_most`; else "". Looks at the first 200 bytes
// of the name and at the first few thousand candidates only: hostile files name many.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates,
                              size_t at_most = std::numeric_limits<size_t>::max());

}  // namespace tern
