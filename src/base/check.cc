#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tern {

void check_failed(const char* file, int line, const char* condition, const std::string& context) {
  std::fprintf(stderr, "tern: internal check failed at %s:%d: %s%s%s\n", file, line, condition,
               context.empty() ? "" : " | ", context.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace tern
