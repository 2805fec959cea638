// How far a download is: a bar on a terminal, now and then a line elsewhere.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace tern::app {

// "1.23 GB" of powers of ten.
std::string bytes_text(double bytes);
// "1.20 GB of 3.00 GB, 40 %, 100.0 MB/s, 18 s left".
std::string progress_text(int64_t done, int64_t all, double bytes_per_second);

// Prints on stderr from a thread of its own while it lives.
class HubProgress {
 public:
  // `all`: bytes in all; `before`: those that an earlier run left.
  HubProgress(std::string name, int64_t all, int64_t before);
  ~HubProgress();
  HubProgress(const HubProgress&) = delete;
  HubProgress& operator=(const HubProgress&) = delete;
  void add(int64_t bytes) { done_ += bytes; }

 private:
  void run();
  void print(double seconds) const;
  const std::string name_;
  const int64_t all_, before_;
  const bool terminal_;
  std::atomic<int64_t> done_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace tern::app
