#include "app/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tern::app {

Status FolderLock::take(const std::string& file, const std::function<void()>& waits) {
  const auto failed = [&] { return make_error(ErrorCode::kIo, fmt::format("{}: {}", file, std::strerror(errno))); };
  fd_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd_ < 0) return failed();
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return {};
  waits();
  while (::flock(fd_, LOCK_EX) != 0) {
    if (errno != EINTR) return failed();
  }
  return {};
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace tern::app
