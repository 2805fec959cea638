// Log lines by channel. A channel is a file name of FastDeploy's (fastdeploy, api_server, ...; spec
// fastdeploy.md 10.3); app decides where each goes. Logging never throws and never fails its caller: a full disk drops
// lines.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace tern {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogChannel { kFastdeploy, kConsole, kApiServer, kRequest, kWorker, kScheduler, kTrace, kCount };

// The sink that app installs once before threads start; without one, warnings and errors go to stderr.
using LogSink = void (*)(LogChannel, LogLevel, const char* file, int line, std::string_view message);
void set_log_sink(LogSink sink);
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
void log_write(LogChannel channel, LogLevel level, const char* file, int line, std::string_view message) noexcept;

}  // namespace tern

#define TERN_LOG(channel, level, ...)                                                                                  \
  do {                                                                                                                 \
    if (::tern::log_enabled(level)) ::tern::log_write(channel, level, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)
#define TERN_DEBUG(...) TERN_LOG(::tern::LogChannel::kFastdeploy, ::tern::LogLevel::kDebug, __VA_ARGS__)
#define TERN_INFO(...) TERN_LOG(::tern::LogChannel::kFastdeploy, ::tern::LogLevel::kInfo, __VA_ARGS__)
#define TERN_WARN(...) TERN_LOG(::tern::LogChannel::kFastdeploy, ::tern::LogLevel::kWarning, __VA_ARGS__)
#define TERN_ERROR(...) TERN_LOG(::tern::LogChannel::kFastdeploy, ::tern::LogLevel::kError, __VA_ARGS__)
