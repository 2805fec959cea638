// Arithmetic on numbers that came from outside: overflow is a value, never a wrap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

namespace tern {

template <class T>
std::optional<T> checked_add(T a, T b) {
  T r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

template <class T>
std::optional<T> checked_mul(T a, T b) {
  T r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// The value as another integer type, or nothing when it does not fit.
template <class To, class From>
std::optional<To> checked_cast(From v) {
  To r;
  if (__builtin_add_overflow(v, From{0}, &r)) return std::nullopt;
  return r;
}

template <class T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

template <class T>
constexpr T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}

}  // namespace tern
