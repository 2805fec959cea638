// A read-only file seen as memory, whose pages can be given back while it is being read.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

#include "base/error.h"
#include "model/files/fault_guard.h"

namespace tern::model {

class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Only regular files (a named pipe must not hang the start). kNotFound, kIo.
  static Expected<MappedFile> open(const std::string& path);

  const char* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }

  // Whether the file is still what was opened. One that was cut, or that the disk does not give, reads as zeros (no
  // SIGBUS) and is kIo from then on; call it when all was read.
  Status check() const;
  bool lost() const { return guard_ != nullptr && guard_->lost(); }  // the quick half of it

  // Gives the pages that lie wholly inside [begin, begin + bytes) back to the system; reading them again is allowed.
  void release(const char* begin, size_t bytes) const;
  // Brings a range in at once, which is cheaper than page by page as it is touched. A hint.
  void expect_whole(const char* begin, size_t bytes) const;
  // Turns read-ahead off for a range that is read across its rows.
  void expect_scattered(const char* begin, size_t bytes) const;

 private:
  void advise(const char* begin, size_t bytes, int advice, bool inner) const;

  char* data_ = nullptr;
  size_t size_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::unique_ptr<FaultGuard> guard_;
  std::string path_;
};

}  // namespace tern::model
