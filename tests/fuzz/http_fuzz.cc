// The HTTP parser: any bytes, read in any pieces, give the same requests and the same end.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "serve/http/negotiate.h"
#include "serve/http/request.h"

namespace {

using tern::serve::http::RequestParser;

// What a connection would hand on: one line per request, then how it ended.
std::string read_all(std::string_view bytes, size_t step) {
  RequestParser parser({2048, 8192});
  std::string buffer, seen;
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = std::min(step, bytes.size() - at);
    buffer.append(bytes.substr(at, n));
    at += n;
    for (bool more = true; more;) {
      size_t used = 0;
      const auto progress = parser.advance(buffer, used);
      if (used > buffer.size()) std::abort();
      buffer.erase(0, used);
      switch (progress) {
        case RequestParser::Progress::kMore:
          more = false;
          break;
        case RequestParser::Progress::kHead: {
          const auto& head = parser.head();
          if (head.path.find("..") != std::string::npos && head.path.find("/../") != std::string::npos) std::abort();
          if (head.chunked && head.content_length) std::abort();
          break;
        }
        case RequestParser::Progress::kDone:
          if (parser.body().size() > 8192) std::abort();
          seen += parser.head().path + "|" + parser.head().query + "|" + parser.head().authorization + "|" +
                  parser.body() + "|" + parser.head().accept_encoding + "|" + parser.head().if_none_match + "\n";
          seen += tern::serve::http::accepts_gzip(parser.head().accept_encoding) ? 'z' : '-';
          seen += tern::serve::http::names_tag(parser.head().if_none_match, "\"a\"") ? 't' : '-';
          parser.reset();
          break;
        case RequestParser::Progress::kError:
          return seen + "error";
      }
    }
  }
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string whole = read_all(bytes, size);
  // A limit may be met earlier in small pieces, never the other way round; without an error both must agree.
  const std::string pieces = read_all(bytes, 1 + data[0] % 7);
  if (!whole.ends_with("error") && !pieces.ends_with("error") && whole != pieces) std::abort();
  return 0;
}
