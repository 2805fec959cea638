// Spelling help for flags, keys and commands.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tern::app {

// Insertions, deletions and replacements that turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b);
// The candidate with the least distance to `name`, when it is below half of the name's length; else "".
std::string nearest(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace tern::app
