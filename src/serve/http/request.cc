#include "serve/http/request.h"

#include <algorithm>

#include "serve/http/chars.h"
#include "serve/http/target.h"

namespace tern::serve::http {
namespace {

constexpr size_t kMaxChunkLine = 256;
constexpr size_t kMaxRequestId = 128;

// It is sent back and logged: what could end a line, a header's part or a quoted text is not taken.
bool is_request_id(std::string_view text) {
  const auto fits = [](char c) {
    return is_alnum(c) || std::string_view("-_.:;/+=@~|#").find(c) != std::string_view::npos;
  };
  return !text.empty() && text.size() <= kMaxRequestId && std::all_of(text.begin(), text.end(), fits);
}

Method method_of(std::string_view name) {
  if (name == "GET") return Method::kGet;
  if (name == "HEAD") return Method::kHead;
  if (name == "POST") return Method::kPost;
  if (name == "PUT") return Method::kPut;
  if (name == "DELETE") return Method::kDelete;
  if (name == "PATCH") return Method::kPatch;
  if (name == "OPTIONS") return Method::kOptions;
  return Method::kOther;
}

// A list may come in several lines.
void add_items(std::string& list, std::string_view more) {
  if (!list.empty()) list += ',';
  list += more;
}

}  // namespace

std::string_view method_name(Method method) {
  switch (method) {
    case Method::kGet:
      return "GET";
    case Method::kHead:
      return "HEAD";
    case Method::kPost:
      return "POST";
    case Method::kPut:
      return "PUT";
    case Method::kDelete:
      return "DELETE";
    case Method::kPatch:
      return "PATCH";
    case Method::kOptions:
      return "OPTIONS";
    case Method::kOther:
      break;
  }
  return "OTHER";
}

void RequestParser::reset() {
  stage_ = Stage::kHead;
  scanned_ = line_bytes_ = 0;
  left_ = 0;
  hosts_ = lengths_ = encodings_ = keys_ = own_keys_ = origins_ = ids_ = traces_ = 0;
  close_ = keep_ = blank_ = false;
  head_ = Head{};
  body_.clear();
}

RequestParser::Progress RequestParser::fail(int status, const char* text) {
  stage_ = Stage::kError;
  error_status_ = status;
  error_text_ = text;
  return Progress::kError;
}

RequestParser::Progress RequestParser::advance(std::string_view input, size_t& used) {
  used = 0;
  switch (stage_) {
    case Stage::kError:
      return Progress::kError;
    case Stage::kDone:
      return Progress::kDone;
    case Stage::kHead:
      return read_head(input, used);
    case Stage::kHeadGiven:
      if (head_.chunked) {
        stage_ = Stage::kChunkSize;
      } else if (head_.content_length.value_or(0) > 0) {
        left_ = *head_.content_length;
        stage_ = Stage::kLengthBody;
      } else {
        stage_ = Stage::kDone;
        return Progress::kDone;
      }
      break;
    default:
      break;
  }
  return read_body(input, used);
}

RequestParser::Progress RequestParser::read_head(std::string_view input, size_t& used) {
  if (scanned_ == 0 && !blank_ && input.starts_with('\r')) {  // one empty line between requests is common
    if (input.size() == 1) return Progress::kMore;            // its LF may come later
    if (input[1] == '\n') {
      used = 2;
      input.remove_prefix(2);
      blank_ = true;
    }
  }
  const size_t from = scanned_ > 3 ? scanned_ - 3 : 0;
  const size_t end = input.find("\r\n\r\n", from);
  if (end == std::string_view::npos) {
    if (input.size() > limits_.header_bytes) return fail(431, "request header is too large");
    scanned_ = input.size();
    return Progress::kMore;
  }
  if (end + 4 > limits_.header_bytes) return fail(431, "request header is too large");
  used += end + 4;
  if (!parse_head(input.substr(0, end + 2))) return Progress::kError;
  stage_ = Stage::kHeadGiven;
  return Progress::kHead;
}

bool RequestParser::parse_head(std::string_view head) {
  bool first = true;
  while (!head.empty()) {
    const size_t end = head.find("\r\n");  // there is one: read_head() cut after it
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + 2);
    if (first ? !parse_request_line(line) : !parse_header(line)) return false;
    first = false;
  }
  return check_framing();
}

bool RequestParser::parse_request_line(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos) return fail(400, "malformed request line"), false;
  const std::string_view method = line.substr(0, first), target = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  if (method.size() > 32 || !is_token(method)) {
    return fail(400, "malformed method"), false;
  }
  const auto visible = [](char c) { return c > 0x20 && c < 0x7f; };
  if (target.empty() || !std::all_of(target.begin(), target.end(), visible)) {
    return fail(400, "malformed request target"), false;
  }
  if (version.size() != 8 || version.substr(0, 5) != "HTTP/") return fail(400, "malformed request line"), false;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return fail(505, "HTTP version is not supported"), false;
  head_.minor_version = version[7] - '0';
  head_.method = method_of(method);
  take_target(target);
  return true;
}

// A target that is refused leaves the path empty: nothing is found there.
void RequestParser::take_target(std::string_view target) {
  std::string origin;
  if (split_absolute(target, origin, head_.host)) target = origin;
  parse_target(target, head_.path, head_.query);
  head_.raw_path = target.substr(0, target.find('?'));
}

bool RequestParser::parse_header(std::string_view line) {
  const size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  if (colon == std::string_view::npos || !is_token(name)) {
    return fail(400, "malformed header name"), false;  // also a space before the colon, and folded lines
  }
  const std::string_view value = trim(line.substr(colon + 1));
  const auto bad = [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; };
  if (std::any_of(value.begin(), value.end(), bad)) return fail(400, "control character in a header"), false;
  if (equals_lower(name, "host")) {
    ++hosts_;
    if (head_.host.empty()) head_.host = value;  // the absolute form's own host goes first (RFC 9112, 3.2.2)
  } else if (equals_lower(name, "authorization")) {
    ++keys_;
    head_.authorization = value;
  } else if (equals_lower(name, "x-api-key")) {
    ++own_keys_;
    head_.api_key = value;
  } else if (equals_lower(name, "content-type")) {
    head_.content_type = value;
  } else if (equals_lower(name, "expect")) {
    if (!equals_lower(value, "100-continue")) return fail(417, "expectation is not supported"), false;
    head_.expect_continue = true;
  } else if (!parse_about_client(name, value)) {
    return parse_transfer(name, value);
  }
  return true;
}

// Headers that say who asks, and change nothing of what is asked. A second one of a kind makes neither count.
bool RequestParser::parse_about_client(std::string_view name, std::string_view value) {
  if (equals_lower(name, "x-request-id")) {
    head_.request_id = ++ids_ == 1 && is_request_id(value) ? value : std::string_view();
  } else if (equals_lower(name, "traceparent")) {
    head_.traceparent = ++traces_ == 1 ? value : std::string_view();
  } else if (equals_lower(name, "x-forwarded-proto")) {
    head_.forwarded_https = equals_lower(value, "https");
  } else if (equals_lower(name, "origin")) {
    head_.origin = ++origins_ == 1 ? value : std::string_view();
  } else if (equals_lower(name, "access-control-request-method")) {
    head_.cors_method = value;
  } else if (equals_lower(name, "access-control-request-headers")) {
    head_.cors_headers = value;
  } else if (equals_lower(name, "accept-encoding")) {
    add_items(head_.accept_encoding, value);
  } else if (equals_lower(name, "if-none-match")) {
    add_items(head_.if_none_match, value);
  } else {
    return false;
  }
  return true;
}

bool RequestParser::parse_transfer(std::string_view name, std::string_view value) {
  if (equals_lower(name, "content-length")) {
    ++lengths_;
    uint64_t length = 0;
    const bool digits = std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (value.empty() || value.size() > 18 || !digits) return fail(400, "malformed Content-Length"), false;
    for (char c : value) length = length * 10 + static_cast<uint64_t>(c - '0');
    head_.content_length = length;
  } else if (equals_lower(name, "transfer-encoding")) {
    ++encodings_;
    if (!equals_lower(value, "chunked")) return fail(501, "Transfer-Encoding is not supported"), false;
    head_.chunked = true;
  } else if (equals_lower(name, "content-encoding")) {
    if (!equals_lower(value, "identity")) return fail(415, "Content-Encoding is not supported"), false;
  } else if (equals_lower(name, "connection")) {
    for (size_t begin = 0; begin <= value.size();) {
      const size_t end = std::min(value.find(',', begin), value.size());
      const std::string_view token = trim(value.substr(begin, end - begin));
      close_ |= equals_lower(token, "close");
      keep_ |= equals_lower(token, "keep-alive");
      begin = end + 1;
    }
  }
  return true;
}

bool RequestParser::check_framing() {
  if (hosts_ > 1 || (hosts_ == 0 && head_.minor_version == 1)) return fail(400, "exactly one Host is needed"), false;
  if (keys_ > 1) return fail(400, "more than one Authorization"), false;
  if (own_keys_ > 1) return fail(400, "more than one X-Api-Key"), false;
  if (lengths_ > 1 || encodings_ > 1 || (lengths_ > 0 && encodings_ > 0)) {
    return fail(400, "conflicting message length"), false;
  }
  if (encodings_ > 0 && head_.minor_version == 0) return fail(400, "Transfer-Encoding in HTTP/1.0"), false;
  if (head_.content_length.value_or(0) > limits_.body_bytes) return fail(413, "request body is too large"), false;
  head_.keep_alive = head_.minor_version == 1 ? !close_ : (keep_ && !close_);
  return true;
}

RequestParser::Progress RequestParser::read_body(std::string_view input, size_t& used) {
  while (true) {
    const std::string_view rest = input.substr(used);
    if (stage_ == Stage::kLengthBody || stage_ == Stage::kChunkData) {
      const size_t take = static_cast<size_t>(std::min<uint64_t>(left_, rest.size()));
      body_.append(rest.substr(0, take));
      used += take;
      left_ -= take;
      if (left_ > 0) return Progress::kMore;
      if (stage_ == Stage::kLengthBody) {
        stage_ = Stage::kDone;
        return Progress::kDone;
      }
      stage_ = Stage::kChunkEnd;
    } else if (stage_ == Stage::kChunkEnd) {
      if (rest.size() < 2) return Progress::kMore;
      if (rest.substr(0, 2) != "\r\n") return fail(400, "malformed chunk");
      used += 2;
      stage_ = Stage::kChunkSize;
    } else {
      const size_t before = used;
      const Progress progress = read_chunk_line(input, used);
      if (progress != Progress::kMore || used == before) return progress;
    }
  }
}

// A line that says a chunk's size, or a trailer line.
RequestParser::Progress RequestParser::read_chunk_line(std::string_view input, size_t& used) {
  const std::string_view rest = input.substr(used);
  const size_t limit = stage_ == Stage::kChunkSize ? kMaxChunkLine : limits_.header_bytes;
  const size_t end = rest.substr(0, limit + 2).find("\r\n");
  if (end == std::string_view::npos) {
    const bool hopeless = rest.size() >= limit + 2 || rest.find('\n') != std::string_view::npos;
    return hopeless ? fail(400, "malformed chunk") : Progress::kMore;
  }
  const std::string_view line = rest.substr(0, end);
  used += end + 2;
  line_bytes_ += end;
  if (line.find('\n') != std::string_view::npos || line.find('\r') != std::string_view::npos) {
    return fail(400, "malformed chunk");
  }
  if (stage_ == Stage::kTrailer) {  // trailers are read and forgotten
    if (line_bytes_ > limits_.header_bytes) return fail(431, "trailer is too large");
    if (!line.empty()) return Progress::kMore;
    stage_ = Stage::kDone;
    return Progress::kDone;
  }
  size_t digits = 0;
  uint64_t size = 0;
  while (digits < line.size() && hex_digit(line[digits]) >= 0) {
    if (digits >= 15) return fail(400, "malformed chunk size");
    size = size * 16 + static_cast<uint64_t>(hex_digit(line[digits++]));
  }
  if (digits == 0 || (digits < line.size() && line[digits] != ';')) return fail(400, "malformed chunk size");
  if (line.size() > digits && line_bytes_ > limits_.header_bytes) return fail(400, "chunk extensions are too large");
  if (line.size() == digits) line_bytes_ -= end;  // plain size lines are not counted: bodies may have many chunks
  if (size > limits_.body_bytes - body_.size()) return fail(413, "request body is too large");
  left_ = size;
  stage_ = size == 0 ? Stage::kTrailer : Stage::kChunkData;
  return Progress::kMore;
}

}  // namespace tern::serve::http
