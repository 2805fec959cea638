#include "serve/page/page.h"

#include <fmt/format.h>

#include "serve/http/negotiate.h"

namespace tern::serve::page {
namespace {

// A Content-Security-Policy that lets nothing run or be asked for but what `file` holds and this server's own routes.
// No request leaves for elsewhere (connect-src), no frame shows the page, no text can become markup or script:
// `trusted-types` without a name forbids every innerHTML and its like. Pictures are those that the user chose (blob:)
// and the icon (data:).
std::string policy(const File& file) {
  return fmt::format(
      "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src blob: data:; base-uri 'none'; "
      "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
      file.script, file.style);
}

}  // namespace

http::Response answer(const http::Head& head) {
  const File& page = file();
  const bool zipped = http::accepts_gzip(head.accept_encoding);
  const std::string etag = fmt::format("\"{}{}\"", page.digest, zipped ? "-gzip" : "");
  http::Response out;
  out.content_type = "text/html; charset=utf-8";
  out.extra_headers = fmt::format(
      "etag: {}\r\ncache-control: no-cache\r\nvary: Accept-Encoding\r\ncontent-security-policy: {}\r\n"
      "x-content-type-options: nosniff\r\nx-frame-options: DENY\r\nreferrer-policy: no-referrer\r\n"
      "cross-origin-opener-policy: same-origin\r\ncross-origin-resource-policy: same-origin\r\n",
      etag, policy(page));
  if (http::names_tag(head.if_none_match, etag)) {
    out.status = 304;
    return out;
  }
  if (zipped) out.extra_headers += "content-encoding: gzip\r\n";
  out.body = zipped ? page.gzip : page.html;
  return out;
}

}  // namespace tern::serve::page
