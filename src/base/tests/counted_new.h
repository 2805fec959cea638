// Replaces operator new and delete of a test program in all their forms but the over-aligned ones; each new calls
// count_new(), which the including source defines first. The forms without exceptions belong to it, too: buffers of
// std::stable_sort come from them and go to plain delete. One source of a program includes it: replacements are no
// inline functions.
#pragma once

#include <cstdlib>
#include <new>

#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // both sides are replaced

void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  count_new();
  return std::malloc(n > 0 ? n : 1);
}
void* operator new(std::size_t n) {
  if (void* p = operator new(n, std::nothrow)) return p;
  throw std::bad_alloc();
}
void* operator new[](std::size_t n) { return operator new(n); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return operator new(n, std::nothrow); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
