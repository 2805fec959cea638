#include "model/files/folder_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace tern::model {
namespace {

namespace fs = std::filesystem;

Error io_error(const char* what, const std::string& path, int code) {
  return make_error(ErrorCode::kIo, fmt::format("cannot {} {}: {}", what, path, std::strerror(code)));
}

Status sync_path(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return io_error("open", path, errno);
  const bool good = ::fsync(file) == 0;
  const int code = errno;
  ::close(file);
  return good ? Status() : Status(io_error("write", path, code));
}

}  // namespace

FolderWriter::~FolderWriter() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

Status FolderWriter::make() {
  std::error_code ec;
  out_ = fs::absolute(options_.out, ec).lexically_normal().string();
  if (out_.ends_with('/')) out_.pop_back();
  if (fs::exists(out_, ec) && !(fs::is_directory(out_, ec) && fs::is_empty(out_, ec)))
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{} is there already and not an empty folder", options_.out));
  std::string name = out_ + ".partial-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) return io_error("make", name, errno);
  path_ = name;
  ::chmod(path_.c_str(), 0755);
  return {};
}

Status FolderWriter::commit() {
  TERN_RETURN_IF_ERROR(sync_path(path_));
  if (::rename(path_.c_str(), out_.c_str()) != 0) return io_error("make", out_, errno);
  path_.clear();
  return sync_path(fs::path(out_).parent_path().string());
}

Status FolderWriter::weights(const std::vector<TensorToWrite>& tensors, const std::function<bool(size_t)>& joined,
                             const std::function<Status(size_t)>& write) {
  for (const TensorToWrite& t : tensors) total_ += t.bytes();
  std::vector<std::pair<size_t, size_t>> files;  // first tensor, end
  size_t begin = 0, bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    bytes += tensors[i].bytes();
    const bool more = i + 1 < tensors.size();
    if (more && (bytes < options_.file_bytes || joined(i + 1))) continue;
    files.emplace_back(begin, i + 1);
    begin = i + 1, bytes = 0;
  }
  json::Object map;
  for (size_t f = 0; f < files.size(); ++f) {
    const std::string name =
        files.size() == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", f + 1, files.size());
    TERN_RETURN_IF_ERROR(one_file(name, tensors, files[f].first, files[f].second, write));
    for (size_t i = files[f].first; i < files[f].second; ++i) map[tensors[i].name] = name;
  }
  if (files.size() == 1) return {};
  return text_file("model.safetensors.index.json",
                   json::dump(json::Object{{"metadata", json::Object{{"total_size", total_}}}, {"weight_map", map}}));
}

Status FolderWriter::one_file(const std::string& name, const std::vector<TensorToWrite>& tensors, size_t begin,
                              size_t end, const std::function<Status(size_t)>& write) {
  TensorWriter writer;
  TERN_RETURN_IF_ERROR(writer.open(path_ + "/" + name, {tensors.begin() + static_cast<ptrdiff_t>(begin),
                                                        tensors.begin() + static_cast<ptrdiff_t>(end)}));
  writer_ = &writer;
  Status status;
  for (size_t i = begin; i < end && status.ok(); ++i) status = write(i);
  writer_ = nullptr;
  TERN_RETURN_IF_ERROR(std::move(status));
  return writer.close();
}

Status FolderWriter::put(const void* data, size_t bytes) {
  if (writer_ == nullptr) return make_error(ErrorCode::kInternal, "weights were put outside of weights()");
  if (options_.stop && options_.stop()) return make_error(ErrorCode::kCancelled, "interrupted; nothing was left");
  TERN_RETURN_IF_ERROR(writer_->write(data, bytes));
  done_ += bytes;
  if (options_.progress) options_.progress(done_, total_);
  return {};
}

Status FolderWriter::text_file(const std::string& name, const std::string& text) {
  const std::string path = path_ + "/" + name;
  std::ofstream stream(path, std::ios::binary);
  stream << text;
  stream.close();
  if (!stream) return io_error("write", path, errno);
  return sync_path(path);
}

Status FolderWriter::other_files(const std::string& folder, const std::vector<std::string>& but) {
  constexpr std::string_view kWeights[] = {".safetensors", ".index.json", ".bin",  ".pt", ".pth",
                                           ".pdparams",    ".gguf",       ".onnx", ".h5", ".msgpack"};
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder, ec)) {
    const std::string name = entry.path().filename().string();
    const auto ends = [&](std::string_view tail) { return name.ends_with(tail); };
    if (name == "config.json" || !entry.is_regular_file(ec) || std::ranges::any_of(kWeights, ends) ||
        std::ranges::find(but, name) != but.end())
      continue;
    const std::string to = path_ + "/" + name;
    if (!fs::copy_file(entry.path(), to, ec)) return io_error("copy", entry.path().string(), ec.value());
    TERN_RETURN_IF_ERROR(sync_path(to));
  }
  return ec ? Status(io_error("read", folder, ec.value())) : Status();
}

}  // namespace tern::model
