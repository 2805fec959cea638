#include "serve/http/target.h"

#include <algorithm>

#include "serve/http/chars.h"

namespace tern::serve::http {
namespace {

// The byte that the escape at raw[i] ('%') stands for, or -1.
int escaped_byte(std::string_view raw, size_t i) {
  if (i + 2 >= raw.size()) return -1;
  const int high = hex_digit(raw[i + 1]), low = hex_digit(raw[i + 2]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

bool decode_path(std::string_view raw, std::string& path) {
  path.clear();
  for (size_t i = 0; i < raw.size(); ++i) {
    char c = raw[i];
    if (c == '%') {
      const int byte = escaped_byte(raw, i);
      if (byte < 0) return false;
      c = static_cast<char>(byte);
      i += 2;
      if (c == '/' || c == '.' || c == '%') return false;
    }
    if (c <= 0x20 || c == 0x7f || c == '\\') return false;  // char is signed: bytes above 0x7f fall here too
    path.push_back(c);
  }
  return true;
}

}  // namespace

bool parse_target(std::string_view target, std::string& path, std::string& query) {
  path.clear();
  query.clear();
  if (target.empty() || target[0] != '/' || target.find('#') != std::string_view::npos) return false;
  const size_t mark = target.find('?');
  if (mark != std::string_view::npos) query = target.substr(mark + 1);
  if (!decode_path(target.substr(0, mark), path)) return path.clear(), false;
  for (size_t begin = 1; begin <= path.size();) {  // segments between slashes
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view segment = std::string_view(path).substr(begin, end - begin);
    const bool last = end == path.size();
    if (segment == "." || segment == ".." || (segment.empty() && !last)) return path.clear(), false;
    begin = end + 1;
  }
  return true;
}

bool is_authority(std::string_view text) {
  const auto allowed = [](char c) {
    return is_alnum(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '[' || c == ']';
  };
  return !text.empty() && text.size() <= 262 && text[0] != ':' && std::all_of(text.begin(), text.end(), allowed);
}

bool split_absolute(std::string_view target, std::string& origin, std::string& authority) {
  const size_t scheme = starts_lower(target, "http://") ? 7 : starts_lower(target, "https://") ? 8 : 0;
  if (scheme == 0) return false;
  target.remove_prefix(scheme);
  const size_t end = std::min(target.find_first_of("/?#"), target.size());
  origin.clear();
  if (!is_authority(target.substr(0, end))) return true;
  authority = target.substr(0, end);
  target.remove_prefix(end);
  if (!target.starts_with('/')) origin = '/';
  origin += target;
  return true;
}

bool decode_name(std::string_view raw, std::string& name) {
  name.clear();
  for (size_t i = 0; i < raw.size(); ++i) {
    int byte = static_cast<unsigned char>(raw[i]);
    if (byte == '%') {
      byte = escaped_byte(raw, i);
      i += 2;
    }
    if (byte < 0x20 || byte == 0x7f) return name.clear(), false;
    name.push_back(static_cast<char>(byte));
  }
  return true;
}

}  // namespace tern::serve::http
