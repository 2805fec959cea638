#include "cli/batch/batch_results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "json/json.h"

namespace tern::cli {
namespace {

constexpr size_t kPiece = size_t{1} << 20;
constexpr int kServerFault = 500;

Error failed(std::string_view what, const std::string& path) {
  return make_error(ErrorCode::kIo, fmt::format("cannot {} {}: {}", what, path, std::strerror(errno)), "output-file");
}

bool write_all(int file, std::string_view bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n)), offset += static_cast<size_t>(n);
  }
  return true;
}

// The next number of a line and the space behind it.
std::optional<uint64_t> take_number(std::string_view& line) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  const size_t used = static_cast<size_t>(end - line.data());
  if (error != std::errc() || used >= line.size() || line[used] != ' ') return std::nullopt;
  line.remove_prefix(used + 1);
  return number;
}

}  // namespace

std::string batch_output_line(std::string_view custom_id, std::string_view id, int status, std::string_view body) {
  std::string line = fmt::format("{{\"id\":\"fastdeploy-{}\",\"custom_id\":", id);
  json::append_quoted(line, custom_id);
  line +=
      fmt::format(",\"response\":{{\"status_code\":{},\"request_id\":\"fastdeploy-batch-{}\",\"body\":", status, id);
  line += status == 200 ? body : "null";
  line += "},\"error\":";
  line += status == 200 ? "null" : body;
  return line + "}";
}

Expected<BatchResults> BatchResults::open(const std::string& output, const Hash128& of, size_t count) {
  BatchResults results;
  results.output_ = output, results.part_ = output + ".part";
  results.places_.resize(count);
  results.file_ = ::open(results.part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (results.file_ < 0) return failed("open", results.part_);
  TERN_RETURN_IF_ERROR(results.read_earlier(fmt::format("tern run-batch {:016x}{:016x} {}\n", of.hi, of.lo, count)));
  return results;
}

Status BatchResults::read_earlier(const std::string& header) {
  std::string rest, piece(kPiece, '\0');
  uint64_t offset = 0;
  bool known = false;
  while (true) {
    const ssize_t n = ::pread(file_, piece.data(), piece.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("read", part_);
    if (n == 0) break;
    std::string_view fresh(piece.data(), static_cast<size_t>(n));
    offset += fresh.size();
    for (size_t end; (end = fresh.find('\n')) != std::string_view::npos; fresh.remove_prefix(end + 1)) {
      rest += fresh.substr(0, end + 1);
      if (!known && rest != header) {
        return make_error(ErrorCode::kInvalidArgument,
                          fmt::format("{} holds answers of another input: finish that run, or remove the file", part_),
                          "output-file");
      }
      if (known) take_line(std::string_view(rest).substr(0, rest.size() - 1), end_);
      known = true;
      end_ += rest.size();
      rest.clear();
    }
    rest += fresh;
  }
  if (::ftruncate(file_, static_cast<off_t>(end_)) != 0) return failed("shorten", part_);
  if (known) return {};
  if (!write_all(file_, header, 0)) return failed("write", part_);
  end_ = header.size();
  return {};
}

// "INDEX STATUS ANSWER".
void BatchResults::take_line(std::string_view line, uint64_t offset) {
  const size_t whole = line.size();
  const auto index = take_number(line), status = take_number(line);
  if (!index || !status || *index >= places_.size() || *status >= kServerFault || line.empty()) return;
  if (!done(*index)) ++earlier_;
  places_[*index] = {offset + (whole - line.size()), line.size()};
}

BatchResults::BatchResults(BatchResults&& other) noexcept
    : output_(std::move(other.output_)),
      part_(std::move(other.part_)),
      file_(std::exchange(other.file_, -1)),
      end_(other.end_),
      earlier_(other.earlier_),
      places_(std::move(other.places_)) {}

BatchResults::~BatchResults() {
  if (file_ >= 0) ::close(file_);
}

Status BatchResults::put(size_t index, int status, std::string_view line) {
  const std::string head = fmt::format("{} {} ", index, status);
  const std::string whole = fmt::format("{}{}\n", head, line);
  std::lock_guard lock(mutex_);
  if (!write_all(file_, whole, end_)) return failed("write", part_);
  places_[index] = {end_ + head.size(), line.size()};
  end_ += whole.size();
  return {};
}

Status BatchResults::finish() {
  const std::string sorted = output_ + ".sorted";
  std::FILE* const out = std::fopen(sorted.c_str(), "we");
  if (out == nullptr) return failed("write", sorted);
  std::string line;
  bool good = true;
  for (const Place& place : places_) {
    line.resize(place.size + 1);
    for (size_t have = 0; have < place.size && good;) {
      const ssize_t n = ::pread(file_, line.data() + have, place.size - have, static_cast<off_t>(place.offset + have));
      if (n < 0 && errno == EINTR) continue;
      good = n > 0;
      have += static_cast<size_t>(n > 0 ? n : 0);
    }
    line.back() = '\n';
    good = good && std::fwrite(line.data(), 1, line.size(), out) == line.size();
    if (!good) break;
  }
  good = good && std::fflush(out) == 0 && ::fsync(::fileno(out)) == 0;
  const Error error = failed("write", sorted);
  good = std::fclose(out) == 0 && good;
  if (!good) {
    ::unlink(sorted.c_str());
    return error;
  }
  if (::rename(sorted.c_str(), output_.c_str()) != 0) return failed("rename to", output_);
  ::unlink(part_.c_str());
  return {};
}

}  // namespace tern::cli
