#include "base/log.h"

#include <atomic>
#include <cstdio>

namespace tern {
namespace {
std::atomic<LogSink> g_sink{nullptr};
std::atomic<LogLevel> g_level{LogLevel::kInfo};
}  // namespace

void set_log_sink(LogSink sink) { g_sink = sink; }
void set_log_level(LogLevel level) { g_level = level; }
bool log_enabled(LogLevel level) { return level >= g_level.load(std::memory_order_relaxed); }

void log_write(LogChannel channel, LogLevel level, const char* file, int line, std::string_view message) noexcept {
  if (LogSink sink = g_sink.load(std::memory_order_relaxed)) {
    sink(channel, level, file, line, message);
  } else if (level >= LogLevel::kWarning) {
    std::fprintf(stderr, "tern: %.*s\n", static_cast<int>(message.size()), message.data());
  }
}

}  // namespace tern
