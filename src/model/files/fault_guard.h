// Keeps a process alive when a mapped file loses pages under it: a file that became shorter, or a disk that cannot be
// read, otherwise raises SIGBUS.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tern::model {

// Watches one mapping while it lives. A read of a page that its file no longer has gives zeros and is remembered. The
// first one installs a handler of SIGBUS for the process; what is not in a watched mapping goes to the handler before
// it.
class FaultGuard {
 public:
  // `begin` is the start of a mapping of `bytes` bytes, which must live as long as the guard.
  FaultGuard(const void* begin, size_t bytes);
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;
  bool lost() const;  // a read has given zeros

  // A watched range, in a list that only grows: a signal handler walks it while others take and give back entries.
  struct Range {
    std::atomic<uintptr_t> begin{0}, end{0};  // [0, 0): free
    std::atomic<bool> lost{false};
    Range* next = nullptr;
  };

 private:
  Range* range_;
};

}  // namespace tern::model
