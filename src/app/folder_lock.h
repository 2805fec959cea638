// One process at a time writes into a folder of downloads.
#pragma once

#include <functional>
#include <string>

#include "base/error.h"

namespace tern::app {

// A lock by flock(), held while it lives and let go when the process ends, however it ends; the file stays.
class FolderLock {
 public:
  FolderLock() = default;
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();
  // Waits for another holder, after `waits` was called once. Errors: kIo.
  Status take(const std::string& file, const std::function<void()>& waits);

 private:
  int fd_ = -1;
};

}  // namespace tern::app
