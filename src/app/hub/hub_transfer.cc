#include "app/hub/hub_transfer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "tls/stream_digest.h"

namespace tern::app {
namespace {

Error disk_error(const std::string& path, int error) {
  return make_error(ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(error)));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// The digests that a file may be told by, over its bytes as they come.
class FileDigest {
 public:
  static Expected<FileDigest> begin(const HubFile& file) {
    using Kind = tls::StreamDigest::Kind;
    FileDigest out;
    if (file.hash != HubHash::kGitBlob) {
      TERN_ASSIGN_OR_RETURN(out.sha256_, tls::StreamDigest::begin(Kind::kSha256));
    }
    if (file.hash != HubHash::kSha256) {
      TERN_ASSIGN_OR_RETURN(out.git_, tls::StreamDigest::begin(Kind::kSha1));
      const std::string head =
          fmt::format("blob {}", file.hash == HubHash::kGitBlob ? file.size : file.blob_size) + '\0';
      out.git_->add(head.data(), head.size());
    }
    return out;
  }
  void add(const void* data, size_t size) {
    if (sha256_) sha256_->add(data, size);
    if (git_) git_->add(data, size);
    bytes_ += static_cast<int64_t>(size);
  }
  int64_t bytes() const { return bytes_; }
  // Once, at the end.
  bool matches(const HubFile& file) {
    const std::string sha256 = sha256_ ? sha256_->hex() : "", git = git_ ? git_->hex() : "";
    if (file.hash == HubHash::kSha256) return sha256 == file.digest;
    if (file.hash == HubHash::kGitBlob) return git == file.digest;
    if (bytes_ == file.blob_size && git == file.digest) return true;
    const std::string pointer = lfs_pointer(sha256, bytes_), blob = fmt::format("blob {}", pointer.size()) + '\0';
    auto of_pointer = tls::StreamDigest::begin(tls::StreamDigest::Kind::kSha1);
    if (!of_pointer.ok()) return false;
    of_pointer->add(blob.data(), blob.size());
    of_pointer->add(pointer.data(), pointer.size());
    return of_pointer->hex() == file.digest;
  }

 private:
  std::optional<tls::StreamDigest> sha256_, git_;
  int64_t bytes_ = 0;
};

// Adds what the file holds from its start on.
Status add_file_bytes(int fd, const std::string& path, FileDigest& digest) {
  std::vector<char> buffer(1u << 20);
  while (true) {
    const ssize_t n = ::pread(fd, buffer.data(), buffer.size(), digest.bytes());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return disk_error(path, errno);
    if (n == 0) return {};
    digest.add(buffer.data(), static_cast<size_t>(n));
  }
}

class Transfer {
 public:
  Transfer(HubHttp& http, const HubTransfer& t) : http_(http), t_(t) {}

  Status run() {
    const Descriptor file(::open(t_.incomplete.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    fd_ = file.get();
    if (fd_ < 0) return disk_error(t_.incomplete, errno);
    TERN_ASSIGN_OR_RETURN(digest_, FileDigest::begin(t_.file));
    TERN_RETURN_IF_ERROR(add_file_bytes(fd_, t_.incomplete, *digest_));
    resumed_ = digest_->bytes() > 0;
    TERN_RETURN_IF_ERROR(fetch());
    if (digest_->matches(t_.file)) return {};
    if (!resumed_) return forget("its digest is not the one that the hub tells");
    // What an earlier run left may have been of other bytes.
    resumed_ = false;
    TERN_RETURN_IF_ERROR(begin_anew());
    TERN_RETURN_IF_ERROR(fetch());
    return digest_->matches(t_.file) ? Status() : forget("its digest is not the one that the hub tells");
  }

 private:
  Error wrong(std::string_view what) const {
    return make_error(ErrorCode::kCorrupt, fmt::format("{}: {}", t_.url, what));
  }
  Status forget(std::string_view what) const {
    ::unlink(t_.incomplete.c_str());
    return make_error(
        ErrorCode::kCorrupt,
        fmt::format("{}: {}; where its revision has just moved, the same command tries it anew", t_.url, what));
  }

  Status begin_anew() {
    if (::ftruncate(fd_, 0) != 0) return disk_error(t_.incomplete, errno);
    t_.progress.add(-digest_->bytes());
    TERN_ASSIGN_OR_RETURN(digest_, FileDigest::begin(t_.file));
    return {};
  }

  // Asks until the file is whole: again where an answer was cut, at most kHubTries times without a byte between.
  Status fetch() {
    if (t_.file.size >= 0 && digest_->bytes() > t_.file.size) TERN_RETURN_IF_ERROR(begin_anew());
    int failed = 0;
    while (t_.file.size < 0 ? !whole_ : digest_->bytes() < t_.file.size) {
      const int64_t before = digest_->bytes();
      HubReply reply;
      const Status status = ask(reply);
      if (!fault_.ok()) return fault_;
      if (!status.ok() && status.error().code == ErrorCode::kUnsupported) {
        return make_error(ErrorCode::kUnsupported, t_.url + ": " + status.error().message);
      }
      if (t_.stop) return make_error(ErrorCode::kCancelled, "stopped");
      if (reply.status == 416 && digest_->bytes() > 0) {
        TERN_RETURN_IF_ERROR(begin_anew());
      } else if (status.ok() && reply.status != 200 && reply.status != 206 && !may_pass(reply.status)) {
        return status_error(t_.plan, t_.url, reply.status);
      }
      if (status.ok() && (reply.status == 200 || reply.status == 206)) whole_ = true;
      if (status.ok() && whole_ && (t_.file.size < 0 || digest_->bytes() == t_.file.size)) return {};
      failed = digest_->bytes() > before ? 0 : failed + 1;
      if (failed >= kHubTries) {
        if (!status.ok()) return make_error(status.error().code, t_.url + ": " + status.error().message);
        if (may_pass(reply.status)) return status_error(t_.plan, t_.url, reply.status);
        return wrong(fmt::format("{} of {} bytes came, and no more", digest_->bytes(), t_.file.size));
      }
      wait(retry_delay(failed, status.ok() ? reply.retry_after : -1));
    }
    return {};
  }

  Status ask(HubReply& reply) {
    bool begun = false;
    HubRequest request{.url = t_.url, .from = digest_->bytes()};
    request.sink = [&](const HubReply& answer, std::string_view bytes) {
      if (!begun) fault_ = check(answer, request.from);
      begun = true;
      if (fault_.ok()) fault_ = write(bytes);
      return fault_.ok() && !t_.stop;
    };
    return http_.ask(request, reply);
  }

  // The answer's head, before the first byte is written.
  Status check(const HubReply& reply, int64_t from) {
    if (!reply.commit.empty() && t_.plan.kind == HubKind::kHuggingFace && reply.commit != t_.commit) {
      return wrong("the hub answers with another commit");
    }
    if (reply.status == 200) {
      if (from > 0) TERN_RETURN_IF_ERROR(begin_anew());  // it knows no ranges
      if (t_.file.size >= 0 && reply.length >= 0 && reply.length != t_.file.size) {
        return wrong(fmt::format("it has {} bytes, the hub's list says {}", reply.length, t_.file.size));
      }
      return {};
    }
    const std::string begin = fmt::format("bytes {}-", from), end = fmt::format("/{}", t_.file.size);
    if (!reply.content_range.starts_with(begin)) return wrong("the hub sends another part than was asked for");
    if (t_.file.size >= 0 && !reply.content_range.ends_with(end) && !reply.content_range.ends_with("/*")) {
      return wrong("the part is of a file of another size");
    }
    return {};
  }

  Status write(std::string_view bytes) {
    if (t_.file.size >= 0 && static_cast<int64_t>(bytes.size()) > t_.file.size - digest_->bytes()) {
      return wrong(fmt::format("more than its {} bytes come", t_.file.size));
    }
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n =
          ::pwrite(fd_, bytes.data() + done, bytes.size() - done, digest_->bytes() + static_cast<int64_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return disk_error(t_.incomplete, n < 0 ? errno : EIO);
      done += static_cast<size_t>(n);
    }
    digest_->add(bytes.data(), bytes.size());
    t_.progress.add(static_cast<int64_t>(bytes.size()));
    return {};
  }

  void wait(double seconds) const {
    constexpr std::chrono::milliseconds kStep{50};
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!t_.stop && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kStep);
  }

  HubHttp& http_;
  const HubTransfer& t_;
  int fd_ = -1;
  std::optional<FileDigest> digest_;
  Status fault_;        // ours, not the line's: no reason to try again
  bool whole_ = false;  // of a file of unknown size: an answer came to its end
  bool resumed_ = false;
};

}  // namespace

Status run_transfer(HubHttp& http, const HubTransfer& transfer) {
  TERN_RETURN_IF_ERROR(Transfer(http, transfer).run());
  if (::rename(transfer.incomplete.c_str(), transfer.target.c_str()) != 0) return disk_error(transfer.target, errno);
  return {};
}

Expected<bool> is_file_of(const std::string& path, const HubFile& file) {
  const Descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (opened.get() < 0 || ::fstat(opened.get(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  if (file.size >= 0 && info.st_size != file.size) return false;
  TERN_ASSIGN_OR_RETURN(FileDigest digest, FileDigest::begin(file));
  TERN_RETURN_IF_ERROR(add_file_bytes(opened.get(), path, digest));
  return digest.matches(file);
}

}  // namespace tern::app
