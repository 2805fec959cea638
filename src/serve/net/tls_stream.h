// A connection that speaks TLS.
#pragma once

#include <memory>
#include <mutex>

#include "serve/net/stream.h"
#include "tls/context.h"

namespace tern::serve::net {

// Null: no memory.
std::unique_ptr<Stream> tls_stream(Fd fd, const tls::Context& context);

// The certificates that new connections get; any thread may change them. Connections live on with what they began with.
class Certificates {
 public:
  explicit Certificates(std::shared_ptr<const tls::Context> first) : context_(std::move(first)) {}
  std::shared_ptr<const tls::Context> get() const {
    const std::lock_guard lock(mutex_);
    return context_;
  }
  void replace(std::shared_ptr<const tls::Context> next) {
    const std::lock_guard lock(mutex_);
    context_.swap(next);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const tls::Context> context_;  // null: no TLS
};

}  // namespace tern::serve::net
