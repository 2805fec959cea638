// Sums of weights files.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/error.h"

namespace tern::model {

// Name to sum (64 lower-case digits) of lines as `sha256sum` writes them.
// Hostile input.
Expected<std::map<std::string, std::string>> parse_sums(std::string_view text);
// Every weights file of the folder has the sum that its file SHA256SUMS names.
Status verify_sums(const std::string& folder);

}  // namespace tern::model
