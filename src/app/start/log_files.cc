#include "app/start/log_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/line_writer.h"
#include "base/thread_pool.h"

namespace tern::app {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxQueuedBytes = 8u << 20;
constexpr size_t kMaxConsoleBytes = 1u << 20;
constexpr size_t kChannels = static_cast<size_t>(LogChannel::kCount);

std::string_view level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "DEBUG";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarning:
      return "WARNING";
    case LogLevel::kError:
      return "ERROR";
  }
  return "";
}

std::string date_of(const std::tm& day) {
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

bool is_date(std::string_view text) {
  constexpr std::string_view kShape = "dddd-dd-dd";
  if (text.size() != kShape.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kShape[i] == 'd' ? !digit : text[i] != '-') return false;
  }
  return true;
}

// The file of a channel, such as "fastdeploy.log" or "workerlog.0".
std::string_view log_file_name(LogChannel channel) {
  switch (channel) {
    case LogChannel::kFastdeploy:
      return "fastdeploy.log";
    case LogChannel::kConsole:
      return "console.log";
    case LogChannel::kApiServer:
      return "api_server.log";
    case LogChannel::kRequest:
      return "request.log";
    case LogChannel::kWorker:
      return "workerlog.0";
    case LogChannel::kScheduler:
      return "scheduler.log";
    case LogChannel::kTrace:
      return "trace.log";
    case LogChannel::kCount:
      break;
  }
  return "fastdeploy.log";
}

}  // namespace

std::string log_line(LogLevel level, std::timespec time, int pid, const char* file, int line, std::string_view message,
                     size_t max_message) {
  std::tm local{};
  localtime_r(&time.tv_sec, &local);
  const char* slash = std::strrchr(file, '/');
  const bool cut = max_message != 0 && message.size() > max_message;
  if (cut) message = message.substr(0, max_message);
  std::string out = fmt::format("{:<8} {} {:02}:{:02}:{:02},{:03} {:<5} {}[line:{}] ", level_name(level),
                                date_of(local), local.tm_hour, local.tm_min, local.tm_sec, time.tv_nsec / 1'000'000,
                                pid, slash != nullptr ? slash + 1 : file, line);
  for (const char c : message) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  out += cut ? "...\n" : "\n";
  return out;
}

DailyFile::DailyFile(std::string folder, std::string name, int backup_days)
    : folder_(std::move(folder)), name_(std::move(name)), backup_days_(backup_days) {}

DailyFile::~DailyFile() {
  if (fd_ >= 0) ::close(fd_);
}

void DailyFile::write(std::string_view text, std::time_t now) {
  std::tm day{};
  localtime_r(&now, &day);
  const int key = day.tm_year * 400 + day.tm_yday;
  if (key != day_) open_day(key, day);
  if (fd_ >= 0 && lost_ > 0 && append(fmt::format("{} lines are missing here: they could not be written\n", lost_)))
    lost_ = 0;
  if (fd_ >= 0 && lost_ == 0 && append(text)) return;
  ++lost_;
  ++failed_;
}

// All of it or nothing, so that lines stay whole.
bool DailyFile::append(std::string_view text) const {
  const off_t begin = ::lseek(fd_, 0, SEEK_END);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  if (done == text.size()) return true;
  // Not when another process has written after it.
  if (done > 0 && ::lseek(fd_, 0, SEEK_END) == begin + static_cast<off_t>(done)) {
    [[maybe_unused]] const int cut = ::ftruncate(fd_, begin);
  }
  return false;
}

void DailyFile::open_day(int key, const std::tm& day) {
  if (fd_ >= 0) ::close(fd_);
  const std::string dated = name_ + "." + date_of(day);
  fd_ = ::open((folder_ + "/" + dated).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  day_ = fd_ >= 0 ? key : -1;  // a file that cannot be made now may be made later
  if (fd_ < 0) return;
  // Renaming over the link leaves no moment without one.
  const std::string link = folder_ + "/" + name_, fresh = fmt::format("{}.{}.new", link, ::getpid());
  std::error_code error;
  fs::create_symlink(dated, fresh, error);
  if (!error) fs::rename(fresh, link, error);
  remove_old(day);
}

void DailyFile::remove_old(const std::tm& day) const {
  std::tm oldest = day;
  oldest.tm_mday -= backup_days_;
  oldest.tm_hour = 12;
  oldest.tm_isdst = -1;
  std::mktime(&oldest);
  const std::string keep = date_of(oldest), prefix = name_ + ".";
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    const std::string file = it->path().filename().string();
    if (!file.starts_with(prefix) || !is_date(std::string_view(file).substr(prefix.size()))) continue;
    std::error_code ignored;
    if (file.substr(prefix.size()) < keep) fs::remove(it->path(), ignored);
  }
}

struct LogFiles::Impl {
  struct Line {
    LogChannel channel;
    std::time_t time;
    std::string text;
  };

  size_t max_message = 0;
  bool to_files = true;
  LineWriter output{STDOUT_FILENO, kMaxConsoleBytes, "log-stdout"},
      errors{STDERR_FILENO, kMaxConsoleBytes, "log-stderr"};
  std::array<std::unique_ptr<DailyFile>, kChannels> files;
  std::mutex mutex;
  std::condition_variable filled, emptied;
  std::vector<Line> lines;
  size_t bytes = 0, unreported = 0;
  bool stopping = false, writing = false, reopening = false;
  std::atomic<size_t> dropped{0};
  std::thread thread;

  static std::atomic<Impl*> current;

  static void sink(LogChannel channel, LogLevel level, const char* file, int line, std::string_view message) {
    Impl* self = current.load(std::memory_order_acquire);
    if (self == nullptr) return;
    try {
      self->take(channel, level, file, line, message);
    } catch (...) {  // no memory for the line
      ++self->dropped;
    }
  }

  void take(LogChannel channel, LogLevel level, const char* file, int line, std::string_view message) {
    if (channel == LogChannel::kConsole) {
      output.write(fmt::format("{}\n", message));
    } else if (level >= LogLevel::kWarning) {
      errors.write(fmt::format("tern: {}\n", message));
    }
    if (!to_files) return;
    std::timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    std::string text = log_line(level, now, ::getpid(), file, line, message, max_message);
    {
      std::lock_guard lock(mutex);
      if (stopping || bytes + text.size() > kMaxQueuedBytes) {
        ++dropped;
        ++unreported;
        return;
      }
      bytes += text.size();
      lines.push_back({channel, now.tv_sec, std::move(text)});
    }
    filled.notify_one();
  }

  void run() {
    set_thread_name("log");
    std::vector<Line> batch;
    std::unique_lock lock(mutex);
    while (true) {
      filled.wait(lock, [&] { return stopping || !lines.empty(); });
      if (lines.empty()) return;
      batch.swap(lines);
      bytes = 0;
      const size_t lost = std::exchange(unreported, 0);
      writing = true;
      const bool reopen = std::exchange(reopening, false);
      lock.unlock();
      if (reopen)
        for (const auto& file : files) file->reopen();
      for (const Line& line : batch) files[static_cast<size_t>(line.channel)]->write(line.text, line.time);
      if (lost > 0) {
        files[static_cast<size_t>(LogChannel::kFastdeploy)]->write(
            fmt::format("{} log lines were dropped: they came faster than they could be written\n", lost),
            std::time(nullptr));
      }
      batch.clear();
      lock.lock();
      writing = false;
      if (lines.empty()) emptied.notify_all();
    }
  }
};

std::atomic<LogFiles::Impl*> LogFiles::Impl::current{nullptr};

LogFiles::LogFiles(const LogSettings& settings, size_t max_message) : impl_(std::make_unique<Impl>()) {
  impl_->max_message = max_message;
  std::error_code error;
  fs::create_directories(settings.folder, error);
  if (::access(settings.folder.c_str(), W_OK | X_OK) != 0) {
    std::fprintf(stderr, "tern: the log folder %s cannot be written (%s); log lines go to the console only\n",
                 settings.folder.c_str(), std::strerror(errno));
    impl_->to_files = false;
  }
  for (size_t i = 0; i < kChannels; ++i) {
    const auto name = log_file_name(static_cast<LogChannel>(i));
    impl_->files[i] = std::make_unique<DailyFile>(settings.folder, std::string(name), settings.backup_days);
  }
  if (impl_->to_files) impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
  Impl::current.store(impl_.get(), std::memory_order_release);
  set_log_level(settings.level);
  set_log_sink(&Impl::sink);
}

LogFiles::~LogFiles() {
  set_log_sink(nullptr);
  Impl::current.store(nullptr, std::memory_order_release);
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->filled.notify_one();
  if (impl_->thread.joinable()) impl_->thread.join();
}

void LogFiles::flush() {
  impl_->output.flush(1);
  impl_->errors.flush(1);
  if (!impl_->to_files) return;
  std::unique_lock lock(impl_->mutex);
  impl_->emptied.wait(lock, [&] { return impl_->lines.empty() && !impl_->writing; });
}

void LogFiles::reopen() {
  const std::lock_guard lock(impl_->mutex);
  impl_->reopening = true;
}

size_t LogFiles::dropped() const {
  size_t total = impl_->dropped + impl_->output.dropped() + impl_->errors.dropped();
  std::lock_guard lock(impl_->mutex);
  for (const auto& file : impl_->files) total += file->failed();
  return total;
}

}  // namespace tern::app
