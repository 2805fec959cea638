#include "app/access/secret_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tern::app {
namespace {
constexpr size_t kMost = size_t{1} << 20;
}

Expected<SecretFile> read_secret_file(const std::string& path, const std::string& flag) {
  const auto failed = [&](const std::string& why) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("--{} {}: {}", flag, path, why), flag);
  };
  // A pipe without a writer would hold up whoever opens it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return failed(std::strerror(errno));
  SecretFile file;
  struct stat found {};
  int error = ::fstat(fd, &found) != 0 ? errno : 0;
  const bool regular = error == 0 && S_ISREG(found.st_mode);
  file.mode = found.st_mode & 07777;
  while (regular && error == 0 && file.text.size() <= kMost) {
    char piece[16384];
    const ssize_t n = ::read(fd, piece, sizeof piece);
    if (n < 0 && errno != EINTR) error = errno;
    if (n == 0) break;
    if (n > 0) file.text.append(piece, static_cast<size_t>(n));
  }
  ::close(fd);
  if (error != 0) return failed(std::strerror(error));
  if (!regular) return failed("it is no regular file");
  if (file.text.size() > kMost) return failed("it has more than a megabyte");
  return file;
}

std::string open_file_warning(const std::string& path, const std::string& flag, mode_t mode) {
  return fmt::format("--{} {}: others than its owner may read or change it (mode {:04o}); chmod 600 ends that", flag,
                     path, mode);
}

}  // namespace tern::app
