#include "model/files/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tern::model {

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
  std::swap(guard_, other.guard_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  guard_.reset();
  if (data_ != nullptr) ::munmap(data_, size_);
}

Expected<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return make_error(code, fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  }
  struct stat st {};
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    ::close(fd);
    return make_error(ErrorCode::kIo, fmt::format("{} is not a regular file", path));
  }
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<size_t>(st.st_size);
  file.device_ = st.st_dev, file.inode_ = st.st_ino;
  if (file.size_ > 0) {
    void* p = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
      const int e = errno;
      ::close(fd);
      return make_error(ErrorCode::kIo, fmt::format("cannot map {}: {}", path, std::strerror(e)));
    }
    file.data_ = static_cast<char*>(p);
    file.guard_ = std::make_unique<FaultGuard>(p, file.size_);
  }
  ::close(fd);
  return file;
}

Status MappedFile::check() const {
  struct stat st {};
  // A file of that name that took its place changes nothing about the one that is mapped.
  const bool same = ::stat(path_.c_str(), &st) == 0 && st.st_dev == device_ && st.st_ino == inode_;
  if (same && static_cast<size_t>(st.st_size) != size_)
    return make_error(ErrorCode::kIo,
                      fmt::format("{} was changed while it was read: it had {} bytes and has {} now; put it back whole "
                                  "and start again",
                                  path_, size_, st.st_size));
  if (lost())
    return make_error(ErrorCode::kIo, fmt::format("{} cannot be read: the file was cut, or its disk failed", path_));
  return {};
}

void MappedFile::advise(const char* begin, size_t bytes, int advice, bool inner) const {
  if (data_ == nullptr || bytes == 0) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  uintptr_t lo = reinterpret_cast<uintptr_t>(begin), hi = lo + bytes;
  lo = inner ? (lo + page - 1) / page * page : lo / page * page;
  // In the page that holds the end of the file nothing follows this piece.
  const bool file_end = begin + bytes == data_ + size_;
  hi = inner && !file_end ? hi / page * page : (hi + page - 1) / page * page;
  if (lo < hi) (void)::madvise(reinterpret_cast<void*>(lo), hi - lo, advice);
}

void MappedFile::release(const char* begin, size_t bytes) const { advise(begin, bytes, MADV_DONTNEED, true); }

void MappedFile::expect_whole(const char* begin, size_t bytes) const {
#ifdef MADV_POPULATE_READ
  advise(begin, bytes, MADV_POPULATE_READ, false);
#else
  advise(begin, bytes, MADV_WILLNEED, false);
#endif
}

void MappedFile::expect_scattered(const char* begin, size_t bytes) const { advise(begin, bytes, MADV_RANDOM, false); }

}  // namespace tern::model
