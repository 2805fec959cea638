#include "fetch/curl_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <optional>

namespace tern::fetch {
namespace {

constexpr long kConnectSeconds = 20;
constexpr long kSlowBytes = 1024, kSlowSeconds = 30;  // slower for so long: cut, and tried again
constexpr long kReadBytes = 512 << 10;

std::optional<CurlLibrary> load() {
  void* const handle = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return std::nullopt;
  CurlLibrary out{};
  bool ok = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    ok = ok && function != nullptr;
  };
  find(out.global_init, "curl_global_init");
  find(out.free, "curl_free");
  find(out.url, "curl_url");
  find(out.url_cleanup, "curl_url_cleanup");
  find(out.url_get, "curl_url_get");
  find(out.url_set, "curl_url_set");
  find(out.slist_append, "curl_slist_append");
  find(out.slist_free_all, "curl_slist_free_all");
  find(out.easy_init, "curl_easy_init");
  find(out.easy_cleanup, "curl_easy_cleanup");
  find(out.easy_setopt, "curl_easy_setopt");
  find(out.easy_getinfo, "curl_easy_getinfo");
  find(out.easy_perform, "curl_easy_perform");
  if (!ok || out.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return std::nullopt;
  return out;
}

}  // namespace

const CurlLibrary* curl_library() {
  static const std::optional<CurlLibrary> library = load();
  return library ? &*library : nullptr;
}

// A library that was brought along looks where its own distribution keeps certificates, which may not be this one.
std::string system_certificates() {
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (access(path, R_OK) == 0) return path;
  }
  return {};
}

void set_download_options(CURL* easy, const std::string& url, const char* protocols, char* why) {
  const auto set = [&](CURLoption option, auto value) { curl_library()->easy_setopt(easy, option, value); };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, protocols);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_HTTP09_ALLOWED, 0L);
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_LOW_SPEED_LIMIT, kSlowBytes);
  set(CURLOPT_LOW_SPEED_TIME, kSlowSeconds);
  set(CURLOPT_BUFFERSIZE, kReadBytes);
  set(CURLOPT_ERRORBUFFER, why);
  const std::string certificates = system_certificates();
  if (!certificates.empty()) set(CURLOPT_CAINFO, certificates.c_str());  // libcurl keeps a copy
}

}  // namespace tern::fetch
