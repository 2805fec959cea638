#pragma once

#include <utility>

#include "serve/kserve/transport.h"

namespace tern::serve::kserve {

// A pointer to a stream that keeps it allocated.
class StreamRef {
 public:
  explicit StreamRef(Stream& stream) : stream_(&stream) { stream_->retain(); }
  ~StreamRef() { reset(); }
  StreamRef(StreamRef&& other) noexcept : stream_(other.stream_) { other.stream_ = nullptr; }
  StreamRef& operator=(StreamRef&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  Stream* operator->() const { return stream_; }
  Stream& operator*() const { return *stream_; }

 private:
  void reset() {
    if (stream_ != nullptr) stream_->release();
  }
  Stream* stream_;
};

}  // namespace tern::serve::kserve
