#include "content/text/files.h"

#include <filesystem>
#include <fstream>
#include <system_error>

namespace tern::content {

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

Expected<std::string> read_file(const std::string& path, size_t max_bytes) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return make_error(ErrorCode::kNotFound, "there is no file " + path, path);
  }
  const auto size = std::filesystem::file_size(path, error);
  if (error) return make_error(ErrorCode::kIo, "cannot read " + path + ": " + error.message(), path);
  if (size > max_bytes) {
    return make_error(ErrorCode::kTooLarge,
                      path + " has " + std::to_string(size) + " bytes; the limit is " + std::to_string(max_bytes),
                      path);
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(static_cast<size_t>(size), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || !in.is_open()) return make_error(ErrorCode::kIo, "cannot read " + path, path);
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

}  // namespace tern::content
