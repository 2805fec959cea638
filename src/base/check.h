// Checks of invariants. A failed check is a fault of this program: it prints its context and ends the process.
#pragma once

#include <string>

namespace tern {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& context);
}

#define TERN_CHECK(condition)                                                   \
  do {                                                                          \
    if (!(condition)) ::tern::check_failed(__FILE__, __LINE__, #condition, {}); \
  } while (false)
// TERN_CHECK_MSG(n > 0, fmt::format("n={}", n)): the context is only evaluated when the check fails.
#define TERN_CHECK_MSG(condition, context)                                             \
  do {                                                                                 \
    if (!(condition)) ::tern::check_failed(__FILE__, __LINE__, #condition, (context)); \
  } while (false)
