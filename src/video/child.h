// The decoder process of one video, seen from the server.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "base/error.h"

namespace tern::video {

// Started with an empty environment and three file descriptors: the file (sealed memory), nothing, and the socket.
// Killed and collected by the destructor, whatever it was doing.
class Child {
 public:
  using Clock = std::chrono::steady_clock;

  // Copies `file` into memory that the child cannot change. Everything said to it or heard from it ends at `deadline`.
  // Errors: kUnavailable (the program cannot be started), kResourceExhausted (no memory, no descriptors).
  static Expected<Child> start(const std::string& program, std::span<const std::byte> file, Clock::time_point deadline);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();

  // All bytes or an error: kTooLarge (the deadline or its CPU time passed), kCorrupt (the child has ended or closed its
  // side).
  Status send(const void* from, size_t size);
  Status receive(void* to, size_t size);
  pid_t pid() const { return pid_; }

 private:
  Child(pid_t pid, int socket, Clock::time_point deadline) : pid_(pid), socket_(socket), deadline_(deadline) {}
  Status wait_for(short events);
  Error ended() const;

  pid_t pid_ = -1;
  int socket_ = -1;
  Clock::time_point deadline_;
};

}  // namespace tern::video
