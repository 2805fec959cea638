#include "app/hub/hub_transfer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include "app/hub/hub_digest.h"

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

class Transfer {
 public:
  Transfer(HubHttp& http, const HubTransfer& t) : http_(http), t_(t) {}

  Status run() {
    file_.emplace(::open(t_.incomplete.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    fd_ = file_->get();
    if (fd_ < 0) return disk_error(t_.incomplete, errno);
    struct stat info {};
    if (::fstat(fd_, &info) != 0) return disk_error(t_.incomplete, errno);
    TERN_ASSIGN_OR_RETURN(digest_, FollowingDigest::begin(fd_, t_.incomplete, t_.file));
    at_ = info.st_size;
    TERN_RETURN_IF_ERROR(digest_->take_all(at_));  // now, while no hub waits for us
    TERN_ASSIGN_OR_RETURN(bool whole, fetch_and_check());
    if (!whole && resumed_) {  // what an earlier run left may have been of other bytes
      TERN_RETURN_IF_ERROR(begin_anew());
      TERN_ASSIGN_OR_RETURN(whole, fetch_and_check());
    }
    return whole ? Status() : forget("its digest is not the one that the hub tells");
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
    TERN_RETURN_IF_ERROR(digest_->restart());
    if (::ftruncate(fd_, 0) != 0) return disk_error(t_.incomplete, errno);
    t_.progress.add(-at_);
    at_ = 0;
    whole_ = false;
    return {};
  }

  Expected<bool> fetch_and_check() {
    resumed_ = at_ > 0;
    TERN_RETURN_IF_ERROR(fetch());
    return digest_->matches(at_);
  }

  // Asks until the file is whole: again where an answer was cut, at most kHubTries times without a byte between.
  Status fetch() {
    if (t_.file.size >= 0 && at_ > t_.file.size) TERN_RETURN_IF_ERROR(begin_anew());
    int failed = 0;
    while (t_.file.size < 0 ? !whole_ : at_ < t_.file.size) {
      const int64_t before = at_;
      HubReply reply;
      const Status status = ask(reply);
      if (!fault_.ok()) return fault_;
      if (!status.ok() && status.error().code == ErrorCode::kUnsupported) {
        return make_error(ErrorCode::kUnsupported, t_.url + ": " + status.error().message);
      }
      if (t_.stop) return make_error(ErrorCode::kCancelled, "stopped");
      if (reply.status == 416 && at_ > 0) {
        TERN_RETURN_IF_ERROR(begin_anew());
      } else if (status.ok() && reply.status != 200 && reply.status != 206 && !may_pass(reply.status)) {
        return status_error(t_.plan, t_.url, reply.status);
      }
      if (status.ok() && (reply.status == 200 || reply.status == 206)) whole_ = true;
      if (status.ok() && whole_ && (t_.file.size < 0 || at_ == t_.file.size)) return {};
      failed = at_ > before ? 0 : failed + 1;
      if (failed >= kHubTries) {
        if (!status.ok()) return make_error(status.error().code, t_.url + ": " + status.error().message);
        if (may_pass(reply.status)) return status_error(t_.plan, t_.url, reply.status);
        return wrong(fmt::format("{} of {} bytes came, and no more", at_, t_.file.size));
      }
      wait(retry_delay(failed, status.ok() ? reply.retry_after : -1));
    }
    return {};
  }

  Status ask(HubReply& reply) {
    bool begun = false;
    HubRequest request{.url = t_.url, .from = at_};
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
    if (t_.file.size >= 0 && static_cast<int64_t>(bytes.size()) > t_.file.size - at_) {
      return wrong(fmt::format("more than its {} bytes come", t_.file.size));
    }
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::pwrite(fd_, bytes.data() + done, bytes.size() - done, at_ + static_cast<int64_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return disk_error(t_.incomplete, n < 0 ? errno : EIO);
      done += static_cast<size_t>(n);
    }
    at_ += static_cast<int64_t>(bytes.size());
    t_.progress.add(static_cast<int64_t>(bytes.size()));
    return digest_->wrote(at_);
  }

  void wait(double seconds) const {
    constexpr std::chrono::milliseconds kStep{50};
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!t_.stop && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kStep);
  }

  HubHttp& http_;
  const HubTransfer& t_;
  std::optional<Descriptor> file_;
  int fd_ = -1;
  int64_t at_ = 0;                           // bytes that the file has
  std::unique_ptr<FollowingDigest> digest_;  // reads file_, and ends before it
  Status fault_;                             // ours, not the line's: no reason to try again
  bool whole_ = false;                       // of a file of unknown size: an answer came to its end
  bool resumed_ = false;
};

}  // namespace

Status run_transfer(HubHttp& http, const HubTransfer& transfer) {
  TERN_RETURN_IF_ERROR(Transfer(http, transfer).run());
  if (::rename(transfer.incomplete.c_str(), transfer.target.c_str()) != 0) return disk_error(transfer.target, errno);
  return {};
}

}  // namespace tern::app
