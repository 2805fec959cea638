// Log files as FastDeploy names them (fastdeploy.md 10.3): one file a day and channel, `<name>.log.YYYY-MM-DD`,
// with a link `<name>.log`. Lines are handed to threads, one for the files and one each for stdout and stderr; a full
// disk or queue and a reader that sleeps drop lines, whole ones, and never stop the caller.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "app/config/settings.h"
#include "base/log.h"

namespace tern::app {

// "INFO     2025-01-31 12:00:00,123 4242  engine.cc[line:17] message"; control characters of the message become spaces,
// so that one message is one line.
std::string log_line(LogLevel level, std::timespec time, int pid, const char* file, int line, std::string_view message,
                     size_t max_message);

// One file a day. Not thread safe. Write errors are counted, not reported.
class DailyFile {
 public:
  // `folder` exists. Files older than `backup_days` days are removed at the first write of a day.
  DailyFile(std::string folder, std::string name, int backup_days);
  ~DailyFile();
  DailyFile(const DailyFile&) = delete;
  DailyFile& operator=(const DailyFile&) = delete;
  void write(std::string_view text, std::time_t now);
  void reopen() { day_ = -1; }  // at the next write: the file has been moved away
  size_t failed() const { return failed_; }

 private:
  bool append(std::string_view text) const;
  void open_day(int year_day_key, const std::tm& day);
  void remove_old(const std::tm& day) const;
  std::string folder_, name_;
  int backup_days_;
  int day_ = -1;
  int fd_ = -1;
  size_t failed_ = 0;
  size_t lost_ = 0;  // of them since the last line that was written
};

// Owns the sink while it lives: install before threads start, destroy after they ended. Console lines also go to
// stdout, warnings and errors also to stderr.
class LogFiles {
 public:
  // An unwritable folder is no error: a warning goes to stderr and lines go to the console only.
  explicit LogFiles(const LogSettings& settings, size_t max_message = 0);
  ~LogFiles();
  LogFiles(const LogFiles&) = delete;
  LogFiles& operator=(const LogFiles&) = delete;
  // Waits until every line handed over so far was written.
  void flush();
  // Lines that come after this call go to files of the usual names, whatever happened to the files so far.
  void reopen();
  size_t dropped() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tern::app
