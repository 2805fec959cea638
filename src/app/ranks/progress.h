// How far loading is: a bar on a terminal, plain lines otherwise; nothing when it takes under two seconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace tern::app {

// "[#####.....]  52 %  1.2 / 2.4 GB"; `width` is that of the bar.
std::string progress_bar(size_t done, size_t all, size_t width);

class Progress {
 public:
  explicit Progress(bool terminal);
  ~Progress();
  void update(size_t done, size_t all);
  // The same with the time given (nanoseconds since the start): returns what is to be printed, "" mostly.
  std::string step(size_t done, size_t all, int64_t elapsed_ns);

 private:
  const bool terminal_;
  const int64_t start_;
  int64_t last_ = 0;
  bool shown_ = false;
};

// What several have read together, for one bar. Any thread.
class SharedProgress {
 public:
  explicit SharedProgress(int parts);
  void update(int part, size_t done, size_t all);

 private:
  std::mutex mutex_;
  Progress bar_;
  std::vector<size_t> done_, all_;
};

}  // namespace tern::app
