#include "tls/openssl.h"

#include <dlfcn.h>

#include <optional>
#include <type_traits>

#include "base/check.h"

namespace tern::tls {
namespace {

std::optional<OpenSsl> load() {
  // Its own dependency libcrypto.so.3 is searched, too.
  void* const handle = dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return std::nullopt;
  OpenSsl out{};
  bool ok = true;
#define TERN_OPENSSL_FIND(name)                                                                   \
  out.name = reinterpret_cast<std::remove_reference_t<decltype(out.name)>>(dlsym(handle, #name)); \
  ok = ok && out.name != nullptr;
  TERN_OPENSSL_FUNCTIONS(TERN_OPENSSL_FIND)
#undef TERN_OPENSSL_FIND
  // The program ends while threads may still hold sessions: nothing is torn down at its exit.
  if (!ok || out.OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr) != 1) return std::nullopt;
  return out;
}

const std::optional<OpenSsl>& library() {
  static const std::optional<OpenSsl> found = load();
  return found;
}

}  // namespace

Expected<const OpenSsl*> load_openssl() {
  if (library()) return &*library();
  return make_error(ErrorCode::kUnavailable, "OpenSSL 3 (libssl.so.3) is not there or too old, and TLS needs it");
}

const OpenSsl& openssl() {
  TERN_CHECK(library().has_value());
  return *library();
}

std::string last_reason() {
  const unsigned long code = openssl().ERR_peek_error();
  if (code == 0) return {};
  const char* const reason = openssl().ERR_reason_error_string(code);
  return reason != nullptr ? reason : std::to_string(code);
}

}  // namespace tern::tls
