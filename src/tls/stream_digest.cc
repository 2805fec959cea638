#include "tls/stream_digest.h"

#include <cstdint>

#include "base/check.h"

namespace tern::tls {

Expected<StreamDigest> StreamDigest::begin(Kind kind) {
  TERN_ASSIGN_OR_RETURN(const OpenSsl* const ssl, load_openssl());
  StreamDigest digest;
  digest.state_.reset(ssl->EVP_MD_CTX_new());
  if (digest.state_ == nullptr ||
      ssl->EVP_DigestInit_ex(digest.state_.get(), kind == Kind::kSha1 ? ssl->EVP_sha1() : ssl->EVP_sha256(), nullptr) !=
          1) {
    return make_error(ErrorCode::kUnavailable, "OpenSSL makes no digest");
  }
  return digest;
}

void StreamDigest::add(const void* data, size_t size) {
  TERN_CHECK(openssl().EVP_DigestUpdate(state_.get(), data, size) == 1);
}

std::string StreamDigest::hex() {
  uint8_t bytes[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  TERN_CHECK(openssl().EVP_DigestFinal_ex(state_.get(), bytes, &size) == 1);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text.push_back(kDigits[bytes[i] >> 4]);
    text.push_back(kDigits[bytes[i] & 15]);
  }
  return text;
}

}  // namespace tern::tls
