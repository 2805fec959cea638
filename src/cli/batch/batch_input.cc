#include "cli/batch/batch_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "json/json.h"

namespace tern::cli {
namespace {

constexpr size_t kMaxLine = size_t{256} << 20;
constexpr size_t kPiece = size_t{1} << 20;
constexpr HashKey kFingerprintKey{0x7465726e62617463, 0x68};  // any fixed key: it tells files apart, not attackers

Error wrong(std::string what) { return make_error(ErrorCode::kInvalidArgument, std::move(what), "input-file"); }

bool blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

// Reads `size` bytes at `offset`; fewer only at the end of the file.
Expected<size_t> read_at(int file, char* to, size_t size, uint64_t offset) {
  size_t have = 0;
  while (have < size) {
    const ssize_t n = ::pread(file, to + have, size - have, static_cast<off_t>(offset + have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return make_error(ErrorCode::kIo, fmt::format("cannot read the input: {}", std::strerror(errno)));
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  return have;
}

// Errors: kInvalidArgument that says what is wrong.
Expected<BatchRequest> parse_batch_line(std::string_view line) {
  auto parsed = json::parse(line, {.max_bytes = kMaxLine});
  if (!parsed.ok()) return wrong(fmt::format("no JSON: {}", parsed.error().message));
  const json::Object* object = parsed->if_object();
  if (object == nullptr) return wrong("a line must be a JSON object");
  BatchRequest request;
  for (const auto& [key, to] : {std::pair{"custom_id", &request.custom_id}, {"url", &request.url}}) {
    TERN_ASSIGN_OR_RETURN(auto text, json::get_string(*object, key));
    if (!text) return wrong(fmt::format("{} is missing", key));
    *to = std::move(*text);
  }
  TERN_ASSIGN_OR_RETURN(const auto method, json::get_string(*object, "method"));
  if (!method || *method != "POST") return wrong("method must be \"POST\"");
  const json::Value* body = json::find(*object, "body");
  if (body == nullptr || !body->is_object()) return wrong("body must be a JSON object");
  const json::Value* stream = json::find(body->get_object(), "stream");
  request.stream = stream != nullptr && stream->is_bool() && stream->get_bool();
  request.body = json::dump(*body);
  return request;
}

}  // namespace

Expected<BatchInput> BatchInput::open(const std::string& path) {
  BatchInput input;
  input.file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (input.file_ < 0) {
    return make_error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                      fmt::format("cannot open {}: {}", path, std::strerror(errno)), "input-file");
  }
  std::string rest, piece(kPiece, '\0');
  uint64_t offset = 0, number = 0;
  const auto take = [&](std::string_view line, uint64_t at) -> Status {
    ++number;
    const Hash128 hash = siphash128(kFingerprintKey, line.data(), line.size());
    const uint64_t joined[] = {input.fingerprint_.lo, input.fingerprint_.hi, hash.lo, hash.hi};
    input.fingerprint_ = siphash128(kFingerprintKey, joined, sizeof joined);
    if (blank(line)) return {};
    if (const auto request = parse_batch_line(line); !request.ok()) {
      return wrong(fmt::format("{}: line {}: {}", path, number, request.error().message));
    }
    input.lines_.push_back({at, line.size()});
    return {};
  };
  while (true) {
    TERN_ASSIGN_OR_RETURN(const size_t got, read_at(input.file_, piece.data(), piece.size(), offset));
    std::string_view fresh(piece.data(), got);
    for (size_t end; (end = fresh.find('\n')) != std::string_view::npos; fresh.remove_prefix(end + 1)) {
      rest += fresh.substr(0, end);
      const uint64_t line_end = offset + static_cast<uint64_t>(fresh.data() - piece.data()) + end;
      TERN_RETURN_IF_ERROR(take(rest, line_end - rest.size()));
      rest.clear();
    }
    rest += fresh;
    if (rest.size() > kMaxLine) {
      return make_error(ErrorCode::kTooLarge, fmt::format("{}: line {} is longer than 256 MiB", path, number + 1),
                        "input-file");
    }
    offset += got;
    if (got < piece.size()) break;
  }
  if (!rest.empty()) TERN_RETURN_IF_ERROR(take(rest, offset - rest.size()));
  if (input.lines_.empty()) return wrong(path + " holds no request");
  return input;
}

BatchInput::BatchInput(BatchInput&& other) noexcept
    : file_(std::exchange(other.file_, -1)), lines_(std::move(other.lines_)), fingerprint_(other.fingerprint_) {}

BatchInput::~BatchInput() {
  if (file_ >= 0) ::close(file_);
}

Expected<BatchRequest> BatchInput::at(size_t index) const {
  const Line& line = lines_[index];
  std::string text(line.size, '\0');
  TERN_ASSIGN_OR_RETURN(const size_t got, read_at(file_, text.data(), text.size(), line.offset));
  auto request = parse_batch_line(std::string_view(text).substr(0, got));
  if (got != line.size || !request.ok()) return make_error(ErrorCode::kIo, "the input changed while it was read");
  return request;
}

}  // namespace tern::cli
