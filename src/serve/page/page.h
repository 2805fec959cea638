// The page for people at /: one HTML file that the build puts into the program (cmake/page.cmake, tools/embed_page.py).
// It is the same for everybody and holds nothing of this server; what it shows it asks for as any client does.
#pragma once

#include <string>
#include <string_view>

#include "serve/http/request.h"
#include "serve/http/response.h"

namespace tern::serve::page {

struct File {
  std::string_view html, gzip;     // the same bytes, plain and compressed
  std::string_view digest;         // hexadecimal, of `html`: its version
  std::string_view script, style;  // "'sha256-...'" of what stands between <script> and <style>
};
const File& file();

// The file, compressed where the client takes it so, or 304 where it has it.
http::Response answer(const http::Head& head);

}  // namespace tern::serve::page
