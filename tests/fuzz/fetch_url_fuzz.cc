// URLs of media: whatever is let through names a host that is a plain name or a public address.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fetch/local_file.h"
#include "fetch/url.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern::fetch;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto target = check_url(text, {});
  if (target.ok()) {
    for (const char c : target->host) {
      const auto b = static_cast<unsigned char>(c);
      if (b <= 0x20 || b >= 0x7F || c == '@' || c == '%' || c == '/' || c == '\\') std::abort();
    }
    if (target->port != 80 && target->port != 443) std::abort();
    const auto address = parse_address(target->host);
    if (address != target->literal || (address && !is_public(*address))) std::abort();
  }
  FetchPolicy listed;
  listed.allowed_domains = {".example.org", "a:8080", "[::1]:81"};
  const auto among = check_url(text, listed);
  if (among.ok() && among->host != "a" && among->host != "::1" && among->host != "example.org" &&
      !among->host.ends_with(".example.org")) {
    std::abort();
  }
  if (url_scheme(text) == "file") (void)read_local_file(text, "/nonexistent/folder", 16).ok();
  return 0;
}
