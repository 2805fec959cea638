// Errors as values: configuration, loading and request faults travel as Expected<T>; broken invariants use check.h.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace tern {

enum class ErrorCode {
  kInvalidArgument,    // the caller's fault: wrong value, wrong type, out of range
  kNotFound,           // a file, tensor, model or request that is not there
  kCorrupt,            // bytes from outside that do not parse
  kTooLarge,           // a limit was exceeded (length, depth, size, context)
  kUnsupported,        // well-formed, but not something this build does
  kResourceExhausted,  // memory, blocks, queue places, file descriptors
  kUnavailable,        // not now: shutting down, unhealthy
  kCancelled,          // aborted by its owner
  kIo,                 // the operating system said no
  kInternal,           // a fault of this program
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // one clear sentence: what is wrong and what to do
  std::string param;    // the flag, field or tensor at fault; may be empty
};

inline Error make_error(ErrorCode code, std::string message, std::string param = {}) {
  return Error{code, std::move(message), std::move(param)};
}

// A value or an Error. A small stand-in for std::expected, which is C++23 (headers here are also read by CUDA
// compilers).
template <class T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Expected(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Error& error() & { return std::get<1>(state_); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  Error& error() & { return *error_; }
  const Error& error() const& { return *error_; }
  Error&& error() && { return *std::move(error_); }

 private:
  std::optional<Error> error_;
};

}  // namespace tern

#define TERN_CONCAT_(a, b) a##b
#define TERN_CONCAT(a, b) TERN_CONCAT_(a, b)
// Leaves the function with the error when the expression (Status or Expected) failed.
#define TERN_RETURN_IF_ERROR(expr)                                  \
  do {                                                              \
    auto tern_status_ = (expr);                                     \
    if (!tern_status_.ok()) return std::move(tern_status_).error(); \
  } while (false)
// TERN_ASSIGN_OR_RETURN(auto x, f()): x is the value, or the function returns the error.
#define TERN_ASSIGN_OR_RETURN(decl, expr) TERN_ASSIGN_OR_RETURN_(TERN_CONCAT(tern_value_, __LINE__), decl, expr)
#define TERN_ASSIGN_OR_RETURN_(tmp, decl, expr) \
  auto tmp = (expr);                            \
  if (!tmp.ok()) return std::move(tmp).error(); \
  decl = std::move(tmp).value()
