// The digest of a file of a hub, taken by a thread of its own while another one writes the file.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "app/hub/hub_files.h"
#include "base/error.h"
#include "tls/stream_digest.h"

namespace tern::app {

// The digests that a file may be told by, over its bytes as they come. One of the two goes over a large file.
class FileDigest {
 public:
  static Expected<FileDigest> begin(const HubFile& file);
  void add(const void* data, size_t size);
  int64_t bytes() const { return bytes_; }
  // Once, at the end.
  bool matches();

 private:
  explicit FileDigest(const HubFile& file) : file_(&file) {}
  const HubFile* file_;
  std::optional<tls::StreamDigest> sha256_, git_;
  int64_t bytes_ = 0;
};

// Follows a file that another thread writes, and reads it back a bounded way behind: what it reads is then still in
// memory, and the digest is of what the file holds. All functions are for the writing thread.
class FollowingDigest {
 public:
  // `file` and the descriptor stay for as long as this does.
  static Expected<std::unique_ptr<FollowingDigest>> begin(int fd, std::string path, const HubFile& file);
  ~FollowingDigest();
  FollowingDigest(const FollowingDigest&) = delete;
  FollowingDigest& operator=(const FollowingDigest&) = delete;

  // The file's first `end` bytes are written. Waits while the digest is too far behind. Errors: kIo, the file cannot be
  // read.
  Status wrote(int64_t end);
  // The first `end` bytes are written; returns when all are taken.
  Status take_all(int64_t end);
  // From the start again. The file may be cut when this returns.
  Status restart();
  // Of the bytes until now. restart() comes before the next.
  Expected<bool> matches(int64_t end);

 private:
  FollowingDigest(int fd, std::string path, const HubFile& file, FileDigest digest);
  void run();
  Status tell(int64_t end, int64_t most_behind);
  const int fd_;
  const std::string path_;
  const HubFile& file_;
  int64_t told_ = 0;  // the writing thread's
  std::mutex mutex_;
  std::condition_variable more_, taken_;
  FileDigest digest_;     // the thread's while `reading_`
  int64_t written_ = 0;   // bytes that may be read
  int64_t digested_ = 0;  // bytes that were
  bool reading_ = false, end_ = false;
  Status fault_;
  std::thread thread_;
};

// Whether the file at `path` is this one, by its size and digest.
Expected<bool> is_file_of(const std::string& path, const HubFile& file);

}  // namespace tern::app
