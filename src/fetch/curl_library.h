// libcurl, loaded when the first URL is looked at: with its thirty libraries it would cost every start of the program
// some 8 ms.
#pragma once

#include <curl/curl.h>

#include <memory>
#include <string>

namespace tern::fetch {

struct CurlLibrary {
  decltype(&::curl_global_init) global_init;
  decltype(&::curl_free) free;
  decltype(&::curl_url) url;
  decltype(&::curl_url_cleanup) url_cleanup;
  decltype(&::curl_url_get) url_get;
  decltype(&::curl_url_set) url_set;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_easy_setopt) easy_setopt;
  decltype(&::curl_easy_getinfo) easy_getinfo;
  decltype(&::curl_easy_perform) easy_perform;
};

// Loaded and initialised once, from any thread; null when libcurl.so.4 is not there or too old.
const CurlLibrary* curl_library();
// The file of certificates that the system trusts; "" when none of the usual places has one.
std::string system_certificates();

template <auto Member>
struct CurlFree {
  template <class T>
  void operator()(T* object) const {
    (curl_library()->*Member)(object);
  }
};
using UrlHandle = std::unique_ptr<CURLU, CurlFree<&CurlLibrary::url_cleanup>>;
using EasyHandle = std::unique_ptr<CURL, CurlFree<&CurlLibrary::easy_cleanup>>;
using ListHandle = std::unique_ptr<curl_slist, CurlFree<&CurlLibrary::slist_free_all>>;

// What every download of models sets: the URL and the protocols that it may have ("http,https"), the longest waits,
// large reads, the system's certificates, and where curl says why it failed (CURL_ERROR_SIZE bytes).
void set_download_options(CURL* easy, const std::string& url, const char* protocols, char* why);

}  // namespace tern::fetch
