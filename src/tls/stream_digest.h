// Digests of streams at the machine's best speed (OpenSSL uses its SHA instructions).
#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"
#include "tls/openssl.h"

namespace tern::tls {

class StreamDigest {
 public:
  enum class Kind { kSha1, kSha256 };
  // Errors: OpenSSL 3 is not there.
  static Expected<StreamDigest> begin(Kind kind);
  void add(const void* data, size_t size);
  std::string hex();  // lower case; once, at the end

 private:
  DigestHandle state_;
};

}  // namespace tern::tls
