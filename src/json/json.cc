#include "json/json.h"

#include <fmt/format.h>

#include <boost/json/src.hpp>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

namespace tern::json {

Expected<Value> parse_file(const std::string& path, const Limits& limits) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return make_error(ErrorCode::kNotFound, fmt::format("cannot open {}", path));
  in.seekg(0, std::ios::end);
  const std::streamoff size = in.tellg();
  if (size < 0) return make_error(ErrorCode::kIo, fmt::format("cannot read {}", path));
  if (static_cast<uint64_t>(size) > limits.max_bytes) {
    return make_error(ErrorCode::kTooLarge,
                      fmt::format("{} has {} bytes; the limit is {}", path, size, limits.max_bytes));
  }
  in.seekg(0);
  std::string text(static_cast<size_t>(size), '\0');
  in.read(text.data(), size);
  if (in.gcount() != size) return make_error(ErrorCode::kIo, fmt::format("cannot read {}", path));
  auto value = parse(text, limits);
  if (!value.ok()) return make_error(value.error().code, fmt::format("{}: {}", path, value.error().message));
  return value;
}

std::string dump(const Value& value) { return boost::json::serialize(value); }

const Value* find(const Object& object, std::string_view key) {
  const Value* v = object.if_contains(key);
  return v != nullptr && !v->is_null() ? v : nullptr;
}

namespace {
Error wrong_type(std::string_view key, const char* wanted) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("`{}` must be {}", key, wanted), std::string(key));
}
}  // namespace

Expected<std::optional<int64_t>> get_int(const Object& object, std::string_view key) {
  const Value* v = find(object, key);
  if (v == nullptr) return std::optional<int64_t>{};
  if (v->is_int64()) return std::optional<int64_t>(v->get_int64());
  if (v->is_double()) {
    const double d = v->get_double();
    if (d == std::floor(d) && std::fabs(d) < 9.0e15) return std::optional<int64_t>(static_cast<int64_t>(d));
  }
  return wrong_type(key, "an integer");
}

Expected<std::optional<double>> get_double(const Object& object, std::string_view key) {
  const Value* v = find(object, key);
  if (v == nullptr) return std::optional<double>{};
  if (v->is_double()) return std::optional<double>(v->get_double());
  if (v->is_int64()) return std::optional<double>(static_cast<double>(v->get_int64()));
  if (v->is_uint64()) return std::optional<double>(static_cast<double>(v->get_uint64()));
  return wrong_type(key, "a number");
}

Expected<std::optional<bool>> get_bool(const Object& object, std::string_view key) {
  const Value* v = find(object, key);
  if (v == nullptr) return std::optional<bool>{};
  if (v->is_bool()) return std::optional<bool>(v->get_bool());
  return wrong_type(key, "true or false");
}

Expected<std::optional<std::string>> get_string(const Object& object, std::string_view key) {
  const Value* v = find(object, key);
  if (v == nullptr) return std::optional<std::string>{};
  if (v->is_string()) return std::optional<std::string>(std::string(v->get_string()));
  return wrong_type(key, "a string");
}

namespace {

// Length of the valid UTF-8 sequence at p (1 to 4), or 0.
size_t utf8_length(const unsigned char* p, size_t left) {
  const unsigned char c = p[0];
  if (c < 0x80) return 1;
  const size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;
  if (n == 0 || c > 0xf4 || n > left) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((p[i] & 0xc0) != 0x80) return 0;
  }
  if (c == 0xe0 && p[1] < 0xa0) return 0;  // overlong
  if (c == 0xed && p[1] > 0x9f) return 0;  // surrogates
  if (c == 0xf0 && p[1] < 0x90) return 0;  // overlong
  if (c == 0xf4 && p[1] > 0x8f) return 0;  // above U+10FFFF
  return n;
}

}  // namespace

void append_quoted(std::string& out, std::string_view text) {
  out.push_back('"');
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  for (size_t i = 0; i < text.size();) {
    const unsigned char c = p[i];
    if (c >= 0x80) {
      const size_t n = utf8_length(p + i, text.size() - i);
      if (n == 0) {
        out += "\xef\xbf\xbd";
        ++i;
      } else {
        out.append(text, i, n);
        i += n;
      }
      continue;
    }
    ++i;
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (c < 0x20)
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
        else
          out.push_back(static_cast<char>(c));
    }
  }
  out.push_back('"');
}

void append_double(std::string& out, double value) {
  if (!std::isfinite(value)) {  // JSON has no infinities
    out += "null";
    return;
  }
  char buffer[32];
  const auto r = std::to_chars(buffer, buffer + sizeof buffer, value);
  const std::string_view text(buffer, static_cast<size_t>(r.ptr - buffer));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

}  // namespace tern::json
