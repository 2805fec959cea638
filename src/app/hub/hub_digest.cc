#include "app/hub/hub_digest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace tern::app {
namespace {

constexpr size_t kPiece = 256u << 10;               // of one read: it stays in a core's cache
constexpr int64_t kTellEvery = 1 << 20;             // bytes between two wake-ups
constexpr int64_t kMostBehind = int64_t{64} << 20;  // bytes: still in the page cache

// Bytes at `from`, at most `most`. 0: the file ends there.
Expected<size_t> read_piece(int fd, const std::string& path, char* to, size_t most, int64_t from) {
  while (true) {
    const ssize_t n = ::pread(fd, to, most, from);
    if (n >= 0) return static_cast<size_t>(n);
    if (errno != EINTR) return make_error(ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(errno)));
  }
}

}  // namespace

Expected<FileDigest> FileDigest::begin(const HubFile& file) {
  using Kind = tls::StreamDigest::Kind;
  FileDigest out(file);
  const bool blob = file.hash == HubHash::kGitBlob || file.hash == HubHash::kGitBlobOrPointer;
  const bool may_be_pointer = file.hash == HubHash::kGitBlobOrPointer && file.blob_size <= kMostPointerBytes;
  if (!blob || may_be_pointer) {
    TERN_ASSIGN_OR_RETURN(out.sha256_, tls::StreamDigest::begin(Kind::kSha256));
  }
  if (blob) {
    TERN_ASSIGN_OR_RETURN(out.git_, tls::StreamDigest::begin(Kind::kSha1));
    const std::string head = fmt::format("blob {}", file.hash == HubHash::kGitBlob ? file.size : file.blob_size) + '\0';
    out.git_->add(head.data(), head.size());
  }
  return out;
}

void FileDigest::add(const void* data, size_t size) {
  bytes_ += static_cast<int64_t>(size);
  if (sha256_) sha256_->add(data, size);
  // A file that is longer than its blob can only be what a pointer stands for.
  if (git_ && file_->hash == HubHash::kGitBlobOrPointer && bytes_ > file_->blob_size) git_.reset();
  if (git_) git_->add(data, size);
}

bool FileDigest::matches() {
  if (file_->hash == HubHash::kGitBlob) return git_->hex() == file_->digest;
  if (git_ && bytes_ == file_->blob_size && git_->hex() == file_->digest) return true;
  if (!sha256_) return false;
  const std::string sha256 = sha256_->hex();
  if (file_->hash != HubHash::kGitBlobOrPointer) return sha256 == file_->digest;
  const std::string pointer = lfs_pointer(sha256, bytes_), blob = fmt::format("blob {}", pointer.size()) + '\0';
  auto of_pointer = tls::StreamDigest::begin(tls::StreamDigest::Kind::kSha1);
  if (!of_pointer.ok()) return false;
  of_pointer->add(blob.data(), blob.size());
  of_pointer->add(pointer.data(), pointer.size());
  return of_pointer->hex() == file_->digest;
}

Expected<std::unique_ptr<FollowingDigest>> FollowingDigest::begin(int fd, std::string path, const HubFile& file) {
  TERN_ASSIGN_OR_RETURN(FileDigest digest, FileDigest::begin(file));
  return std::unique_ptr<FollowingDigest>(new FollowingDigest(fd, std::move(path), file, std::move(digest)));
}

FollowingDigest::FollowingDigest(int fd, std::string path, const HubFile& file, FileDigest digest)
    : fd_(fd), path_(std::move(path)), file_(file), digest_(std::move(digest)), thread_([this] { run(); }) {}

FollowingDigest::~FollowingDigest() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  more_.notify_one();
  thread_.join();
}

void FollowingDigest::run() {
  std::vector<char> piece(kPiece);
  std::unique_lock lock(mutex_);
  while (true) {
    more_.wait(lock, [&] { return end_ || digested_ < written_; });
    if (end_) return;
    const int64_t from = digested_;
    const size_t most = static_cast<size_t>(std::min<int64_t>(written_ - from, kPiece));
    reading_ = true;
    lock.unlock();
    const auto n = read_piece(fd_, path_, piece.data(), most, from);
    if (n.ok()) digest_.add(piece.data(), *n);
    lock.lock();
    reading_ = false;
    if (!n.ok()) fault_ = n.error();
    if (n.ok() && *n == 0) fault_ = make_error(ErrorCode::kIo, path_ + ": it became shorter while it was written");
    digested_ = fault_.ok() ? from + static_cast<int64_t>(*n) : written_;
    taken_.notify_one();
  }
}

Status FollowingDigest::tell(int64_t end, int64_t most_behind) {
  std::unique_lock lock(mutex_);
  written_ = told_ = end;
  if (!fault_.ok()) return fault_;
  more_.notify_one();
  taken_.wait(lock, [&] { return written_ - digested_ <= most_behind; });
  return fault_;
}

Status FollowingDigest::wrote(int64_t end) {
  if (end - told_ < kTellEvery) return {};
  return tell(end, kMostBehind);
}

Status FollowingDigest::take_all(int64_t end) { return tell(end, 0); }

Status FollowingDigest::restart() {
  TERN_ASSIGN_OR_RETURN(FileDigest anew, FileDigest::begin(file_));
  std::unique_lock lock(mutex_);
  written_ = digested_;
  taken_.wait(lock, [&] { return !reading_; });
  digest_ = std::move(anew);
  told_ = written_ = digested_ = 0;
  return fault_;
}

Expected<bool> FollowingDigest::matches(int64_t end) {
  TERN_RETURN_IF_ERROR(take_all(end));
  const std::lock_guard lock(mutex_);
  return digest_.matches();
}

Expected<bool> is_file_of(const std::string& path, const HubFile& file) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } const closer{fd};
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return false;
  if (file.size >= 0 && info.st_size != file.size) return false;
  TERN_ASSIGN_OR_RETURN(FileDigest digest, FileDigest::begin(file));
  std::vector<char> piece(kPiece);
  while (true) {
    TERN_ASSIGN_OR_RETURN(const size_t n, read_piece(fd, path, piece.data(), piece.size(), digest.bytes()));
    if (n == 0) return digest.matches();
    digest.add(piece.data(), n);
  }
}

}  // namespace tern::app
