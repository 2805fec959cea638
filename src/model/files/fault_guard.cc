#include "model/files/fault_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

namespace tern::model {
namespace {

std::mutex ranges_mutex;  // Held while a guard adds or frees an entry. The signal handler never locks it.
std::atomic<FaultGuard::Range*> first_range{nullptr};
struct sigaction previous_action;
uintptr_t page_bytes = 4096;

// Maps zero pages from the faulting page to the end of the mapping. If the file got shorter, all of that is lost
// anyway; after a disk error readable pages become zero too.
bool replace(FaultGuard::Range& range, uintptr_t address) {
  const uintptr_t begin = range.begin.load(), end = range.end.load();
  if (address < begin || address >= end) return false;
  const uintptr_t page = address / page_bytes * page_bytes, stop = (end + page_bytes - 1) / page_bytes * page_bytes;
  void* const at = reinterpret_cast<void*>(page);
  if (mmap(at, stop - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) return false;
  range.lost.store(true);
  return true;
}

void on_bus_error(int number, siginfo_t* info, void*) {
  const int error = errno;
  bool replaced = false;
  if (info->si_code > 0) {  // a real fault from the kernel, not a signal that a process sent
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    for (auto* r = first_range.load(); r != nullptr && !replaced; r = r->next) replaced = replace(*r, address);
  }
  if (!replaced) {
    // Not ours: restore the previous handler. A real fault repeats by itself; a sent signal has to be raised again.
    sigaction(SIGBUS, &previous_action, nullptr);
    if (info->si_code <= 0) raise(number);
  }
  errno = error;
}

void install() {
  page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &previous_action);
}

}  // namespace

FaultGuard::FaultGuard(const void* begin, size_t bytes) {
  static std::once_flag installed;
  std::call_once(installed, install);
  const std::lock_guard lock(ranges_mutex);
  range_ = first_range.load();
  while (range_ != nullptr && range_->end.load() != 0) range_ = range_->next;
  if (range_ == nullptr) {
    range_ = new Range;  // never freed: a handler may be looking at it
    range_->next = first_range.load();
    first_range.store(range_);
  }
  range_->lost.store(false);
  range_->begin.store(reinterpret_cast<uintptr_t>(begin));
  range_->end.store(reinterpret_cast<uintptr_t>(begin) + bytes);
}

FaultGuard::~FaultGuard() {
  const std::lock_guard lock(ranges_mutex);
  range_->end.store(0);
  range_->begin.store(0);
}

bool FaultGuard::lost() const { return range_->lost.load(std::memory_order_relaxed); }

}  // namespace tern::model
