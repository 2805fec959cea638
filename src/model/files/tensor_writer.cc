#include "model/files/tensor_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "json/json.h"

namespace tern::model {

size_t TensorToWrite::bytes() const {
  size_t n = file_type_bytes(type);
  for (const int64_t d : shape) n *= static_cast<size_t>(d);
  return n;
}

TensorWriter::~TensorWriter() {
  if (file_ >= 0) ::close(file_);
}

Error TensorWriter::failed(const char* what) const {
  return make_error(ErrorCode::kIo, fmt::format("cannot {} {}: {}", what, path_, std::strerror(errno)));
}

Status TensorWriter::open(const std::string& path, const std::vector<TensorToWrite>& tensors) {
  path_ = path;
  json::Object header{{"__metadata__", json::Object{{"format", "pt"}}}};
  size_t at = 0;
  for (const TensorToWrite& t : tensors) {
    header[t.name] = json::Object{{"dtype", file_type_name(t.type)},
                                  {"shape", json::Array(t.shape.begin(), t.shape.end())},
                                  {"data_offsets", json::Array{at, at + t.bytes()}}};
    at += t.bytes();
  }
  std::string text = json::dump(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // as the reference library: tensors begin at a multiple of 8
  const uint64_t length = text.size();
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file_ < 0) return failed("make");
  left_ = at + sizeof length + text.size();
  TERN_RETURN_IF_ERROR(write(&length, sizeof length));
  return write(text.data(), text.size());
}

Status TensorWriter::write(const void* data, size_t bytes) {
  if (bytes > left_) return make_error(ErrorCode::kInternal, fmt::format("{}: more tensors than announced", path_));
  left_ -= bytes;
  for (const char* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t n = ::write(file_, at, std::min<size_t>(bytes, 1u << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("write");
    at += n, bytes -= static_cast<size_t>(n);
  }
  return {};
}

Status TensorWriter::close() {
  if (left_ > 0) return make_error(ErrorCode::kInternal, fmt::format("{}: fewer tensors than announced", path_));
  const bool synced = ::fsync(file_) == 0;
  const bool closed = ::close(file_) == 0;
  file_ = -1;
  return synced && closed ? Status() : failed("write");
}

}  // namespace tern::model
