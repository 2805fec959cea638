#include "base/line_writer.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "base/thread_pool.h"

namespace tern {
namespace {
constexpr size_t kPiece = 4096;  // a pipe that is ready takes as much without blocking
constexpr int kLookMs = 50;
constexpr double kLastSeconds = 1;
}  // namespace

struct LineWriter::State {
  int fd = -1;
  size_t capacity = 0;
  mutable std::mutex mutex;
  std::condition_variable filled, emptied;
  std::vector<std::string> lines;
  size_t bytes = 0, unreported = 0;
  bool busy = false, closing = false, ended = false;
  std::atomic<bool> give_up{false};
  std::atomic<size_t> dropped{0};

  bool put(std::string_view text) const {
    while (!text.empty()) {
      pollfd ready{fd, POLLOUT, 0};
      const int n = ::poll(&ready, 1, kLookMs);
      if (give_up) return false;
      if (n == 0 || (n < 0 && errno == EINTR)) continue;
      const ssize_t written = ::write(fd, text.data(), std::min(text.size(), kPiece));
      if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (written <= 0) return false;
      text.remove_prefix(static_cast<size_t>(written));
    }
    return true;
  }

  void run() {
    std::vector<std::string> batch;
    std::unique_lock lock(mutex);
    for (;;) {
      filled.wait(lock, [&] { return closing || !lines.empty(); });
      if (lines.empty()) break;
      batch.swap(lines);
      const size_t lost = std::exchange(unreported, 0);
      busy = true;
      lock.unlock();
      for (const std::string& line : batch) {
        const bool written = put(line);
        {
          std::lock_guard again(mutex);
          bytes -= line.size();  // only now: what a reader has not taken still waits
        }
        if (!written) ++dropped;
      }
      if (lost > 0 && !put(fmt::format("tern: {} lines were dropped here: nobody read them in time\n", lost)))
        ++dropped;
      batch.clear();
      lock.lock();
      busy = false;
      if (lines.empty()) emptied.notify_all();
    }
    ended = true;
    emptied.notify_all();
  }
};

LineWriter::LineWriter(int fd, size_t capacity, const std::string& thread_name) : state_(std::make_shared<State>()) {
  state_->fd = fd;
  state_->capacity = capacity;
  std::thread([state = state_, thread_name] {
    set_thread_name(thread_name);
    state->run();
  }).detach();
}

LineWriter::~LineWriter() {
  const auto seconds = [](double s) { return std::chrono::duration<double>(s); };
  std::unique_lock lock(state_->mutex);
  state_->closing = true;
  state_->filled.notify_one();
  if (state_->emptied.wait_for(lock, seconds(kLastSeconds), [&] { return state_->ended; })) return;
  state_->give_up = true;
  state_->emptied.wait_for(lock, seconds(kLastSeconds), [&] { return state_->ended; });
}

void LineWriter::write(std::string line) noexcept {
  try {
    std::lock_guard lock(state_->mutex);
    if (state_->bytes + line.size() > state_->capacity) {
      ++state_->unreported;
      ++state_->dropped;
      return;
    }
    state_->lines.push_back(std::move(line));
    state_->bytes += state_->lines.back().size();
  } catch (...) {  // no memory for it
    ++state_->dropped;
    return;
  }
  state_->filled.notify_one();
}

bool LineWriter::flush(double seconds) {
  std::unique_lock lock(state_->mutex);
  return state_->emptied.wait_for(lock, std::chrono::duration<double>(seconds),
                                  [&] { return state_->ended || (state_->lines.empty() && !state_->busy); });
}

size_t LineWriter::dropped() const { return state_->dropped; }

}  // namespace tern
