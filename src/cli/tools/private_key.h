// The key of a server that only this process talks to.
#pragma once

#include <string>

namespace tern::cli {

// 32 hexadecimal digits that nobody else knows.
std::string private_key();

}  // namespace tern::cli
