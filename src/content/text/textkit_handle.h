// Ownership and errors of the textkit C library. Included by sources of this folder only.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <textkit.h>
#include "base/error.h"

namespace tern::content {

struct TkBytes {
  tk_bytes raw{};
  TkBytes() = default;
  TkBytes(const TkBytes&) = delete;
  TkBytes& operator=(const TkBytes&) = delete;
  ~TkBytes() { tk_bytes_free(&raw); }
  std::string_view view() const { return {reinterpret_cast<const char*>(raw.data), raw.size}; }
};

struct TkIds {
  tk_ids raw{};
  TkIds() = default;
  TkIds(const TkIds&) = delete;
  TkIds& operator=(const TkIds&) = delete;
  ~TkIds() { tk_ids_free(&raw); }
};

struct TkTokenizerFree {
  void operator()(tk_tokenizer* t) const { tk_tokenizer_free(t); }
};
using TkTokenizer = std::unique_ptr<tk_tokenizer, TkTokenizerFree>;

inline const uint8_t* tk_data(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

// The error of a failed call; `what` leads the message ("path: ...").
inline Error tk_error(tk_code code, const TkBytes& message, const std::string& what) {
  const auto kind = [&] {
    switch (code) {
      case TK_CORRUPT:
        return ErrorCode::kCorrupt;
      case TK_TOO_LARGE:
        return ErrorCode::kTooLarge;
      case TK_UNSUPPORTED:
        return ErrorCode::kUnsupported;
      case TK_INVALID:
        return ErrorCode::kInvalidArgument;
      case TK_TOO_MANY:
        return ErrorCode::kResourceExhausted;
      case TK_CANCELLED:
        return ErrorCode::kCancelled;
      default:
        return ErrorCode::kInternal;
    }
  }();
  const std::string text(message.view());
  return make_error(kind, what.empty() ? text : what + ": " + text);
}

}  // namespace tern::content
