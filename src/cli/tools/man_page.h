// The manual page of tern (section 1), made from the tables that --help is made from.
#pragma once

#include <string>

namespace tern::cli {

std::string man_page();

}  // namespace tern::cli
