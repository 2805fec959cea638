// HTTP/1.1 requests from bytes, strictly: what two parsers could read in two ways is refused (RFC 9112, section 11).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tern::serve::http {

enum class Method : uint8_t { kGet, kHead, kPost, kPut, kDelete, kPatch, kOptions, kOther };
std::string_view method_name(Method method);

struct Head {
  Method method = Method::kOther;
  int minor_version = 1;  // HTTP/1.x
  std::string path;       // decoded and checked once: router and key check both read this; "" for a refused target
  std::string query;      // raw, without '?'
  std::string raw_path;   // as it came, of the origin form
  std::string host;       // of the target's absolute form, else of the Host header
  bool forwarded_https = false;                   // a proxy in front speaks TLS with the client
  std::string request_id;                         // X-Request-Id, where it is well-formed
  std::string origin, cors_method, cors_headers;  // of a web page: Origin, Access-Control-Request-*
  std::string authorization, api_key;             // Authorization; X-Api-Key
  std::string content_type;
  std::string traceparent;                     // as it came
  std::string accept_encoding, if_none_match;  // for files; several lines of a kind as one list
  bool keep_alive = true;
  bool expect_continue = false;
  bool chunked = false;
  std::optional<uint64_t> content_length;
  bool has_body() const { return chunked || content_length.value_or(0) > 0; }
};

struct ParserLimits {
  size_t header_bytes = 32u << 10;
  size_t body_bytes = 64u << 20;
};

// One request at a time out of a connection's bytes.
class RequestParser {
 public:
  enum class Progress : uint8_t { kMore, kHead, kDone, kError };

  explicit RequestParser(const ParserLimits& limits) : limits_(limits) {}

  // Reads from the front of `input` and says in `used` how much is finished with. kHead comes once per request, before
  // its body is looked at; kDone when the body is complete. After kError the connection cannot be read any further.
  Progress advance(std::string_view input, size_t& used);
  // Ready for the next request of the connection.
  void reset();

  // Room for a body of known length, so that it is not moved while it grows. Throws std::bad_alloc.
  void reserve_body() { body_.reserve(static_cast<size_t>(head_.content_length.value_or(0))); }
  void drop_body() { std::string().swap(body_); }
  // Gives the memory of an empty body back, when it is more than `keep` bytes.
  void trim_body(size_t keep) {
    if (body_.empty() && body_.capacity() > keep) std::string().swap(body_);
  }

  Head& head() { return head_; }
  std::string& body() { return body_; }
  int error_status() const { return error_status_; }  // after kError: 400, 413, 431, 501, 505
  const char* error_text() const { return error_text_; }
  bool in_body() const { return stage_ == Stage::kLengthBody || is_chunk_stage(); }
  // Nothing of a next request has been seen.
  bool fresh() const { return stage_ == Stage::kHead && scanned_ == 0; }

 private:
  enum class Stage : uint8_t {
    kHead,
    kHeadGiven,
    kLengthBody,
    kChunkSize,
    kChunkData,
    kChunkEnd,
    kTrailer,
    kDone,
    kError
  };

  bool is_chunk_stage() const { return stage_ >= Stage::kChunkSize && stage_ <= Stage::kTrailer; }
  Progress fail(int status, const char* text);
  Progress read_head(std::string_view input, size_t& used);
  bool parse_head(std::string_view head);
  bool parse_request_line(std::string_view line);
  void take_target(std::string_view target);
  bool parse_header(std::string_view line);
  bool parse_about_client(std::string_view name, std::string_view value);
  bool parse_transfer(std::string_view name, std::string_view value);
  bool check_framing();
  Progress read_body(std::string_view input, size_t& used);
  Progress read_chunk_line(std::string_view input, size_t& used);

  ParserLimits limits_;
  Stage stage_ = Stage::kHead;
  size_t scanned_ = 0;     // bytes of the head already searched for its end
  size_t line_bytes_ = 0;  // of chunk extensions and trailers, against header_bytes
  uint64_t left_ = 0;      // of the body or chunk
  int hosts_ = 0, lengths_ = 0, encodings_ = 0, keys_ = 0, own_keys_ = 0, origins_ = 0, ids_ = 0, traces_ = 0;
  bool close_ = false, keep_ = false;
  bool blank_ = false;  // the empty line in front of this request has been seen
  int error_status_ = 0;
  const char* error_text_ = "";
  Head head_;
  std::string body_;
};

}  // namespace tern::serve::http
