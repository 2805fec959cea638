// Lines to a file descriptor from a thread of their own: whoever writes one never waits, whoever reads them may sleep.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace tern {

class LineWriter {
 public:
  // The descriptor stays the caller's. `capacity`: bytes that may wait.
  LineWriter(int fd, size_t capacity, const std::string& thread_name);
  // Waits a second at most for what is left.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Never waits for the reader and never throws: what does not fit is dropped and counted, and once there is room again
  // a line says how many.
  void write(std::string line) noexcept;
  // Waits until everything is written, `seconds` at most.
  bool flush(double seconds);
  size_t dropped() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's too: it may outlive this when the output is not read
};

}  // namespace tern
