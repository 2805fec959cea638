#include "fetch/local_file.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>
#include <optional>

#include "fetch/percent.h"

namespace tern::fetch {
namespace {

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  void reset(int fd) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_;
};

Error hidden() {
  return make_error(ErrorCode::kInvalidArgument, "The file is not one that media may be read from.", "url");
}

// The path below `root`, or nothing when it does not begin with it.
std::optional<std::string> below(const std::string& path, std::string root) {
  while (!root.empty() && root.back() == '/') root.pop_back();
  if (path.size() <= root.size() + 1 || path.compare(0, root.size(), root) != 0 || path[root.size()] != '/') return {};
  const size_t first = path.find_first_not_of('/', root.size());
  return first == std::string::npos ? std::nullopt : std::optional(path.substr(first));
}

std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> text(realpath(path.c_str(), nullptr), &std::free);
  return text ? std::string(text.get()) : std::string();
}

// O_NONBLOCK: a FIFO must not hold us up before fstat has told what it is.
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

// For kernels (or sandboxes) without openat2: folder by folder, no symbolic links at all.
int open_by_parts(int root, const std::string& path) {
  Fd folder(dup(root));
  for (size_t at = 0; folder.get() >= 0;) {
    const size_t slash = path.find('/', at);
    const std::string name = path.substr(at, slash == std::string::npos ? slash : slash - at);
    if (name == "..") return -1;
    if (slash == std::string::npos) return openat(folder.get(), name.c_str(), kOpenFlags | O_NOFOLLOW);
    if (!name.empty()) folder.reset(openat(folder.get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    at = slash + 1;
  }
  return -1;
}

int open_beneath(int root, const std::string& path) {
  open_how how{};
  how.flags = kOpenFlags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  for (int again = 0; again < 16; ++again) {
    const long fd = syscall(SYS_openat2, root, path.c_str(), &how, sizeof how);
    if (fd >= 0) return static_cast<int>(fd);
    if (errno == ENOSYS || errno == EPERM) return open_by_parts(root, path);
    if (errno != EAGAIN && errno != EINTR) return -1;  // EAGAIN: a rename went on meanwhile
  }
  return -1;
}

Expected<std::vector<std::byte>> read_all(int fd, size_t max_bytes) {
  struct stat facts;
  if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) return hidden();
  const auto large = [] { return make_error(ErrorCode::kTooLarge, "The file is larger than allowed.", "url"); };
  if (facts.st_size < 0 || static_cast<uint64_t>(facts.st_size) > max_bytes) return large();
  // One byte more than the file says shows that it has ended.
  std::vector<std::byte> out(static_cast<size_t>(facts.st_size) + 1);
  size_t have = 0;
  while (true) {
    const ssize_t n = read(fd, out.data() + have, out.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return hidden();
    have += static_cast<size_t>(n);
    if (n == 0) break;
    if (have > max_bytes) return large();
    if (have == out.size()) out.resize(std::min(out.size() * 2, max_bytes + 1));
  }
  out.resize(have);
  return out;
}

}  // namespace

Expected<std::vector<std::byte>> read_local_file(std::string_view url, const std::string& root, size_t max_bytes) {
  if (root.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "file:// URLs are not allowed here.", "url");
  }
  const auto malformed = [] { return make_error(ErrorCode::kInvalidArgument, "The URL is malformed.", "url"); };
  if (url.size() < 8 || url.size() > 3 * PATH_MAX) return malformed();
  url.remove_prefix(5);  // "file:", in whatever case
  if (!url.starts_with("//")) return malformed();
  url.remove_prefix(2);
  constexpr std::string_view kLocalhost = "localhost/";
  if (url.starts_with(kLocalhost)) url.remove_prefix(kLocalhost.size() - 1);
  if (!url.starts_with('/')) return malformed();  // a host, or a relative path
  const auto path = percent_decode(url);
  if (!path || path->find('\0') != std::string::npos || path->size() >= PATH_MAX) return malformed();

  auto rest = below(*path, root);
  if (!rest) {
    const std::string real = resolved(root);
    if (!real.empty() && real != "/") rest = below(*path, real);
  }
  if (!rest) return hidden();
  const Fd folder(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return hidden();
  const Fd file(open_beneath(folder.get(), *rest));
  if (file.get() < 0) return hidden();
  return read_all(file.get(), max_bytes);
}

}  // namespace tern::fetch
