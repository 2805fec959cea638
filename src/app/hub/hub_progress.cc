#include "app/hub/hub_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace tern::app {
namespace {

constexpr std::chrono::milliseconds kBarPeriod{200};
constexpr std::chrono::seconds kLinePeriod{10};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string time_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::min(seconds, 1e8) + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB"};
  if (bytes < 1000) return fmt::format("{:.0f} B", bytes);
  size_t unit = 0;
  for (bytes /= 1000; bytes >= 1000 && unit + 1 < std::size(kUnits); bytes /= 1000) ++unit;
  return fmt::format("{:.2f} {}", bytes, kUnits[unit]);
}

std::string progress_text(int64_t done, int64_t all, double bytes_per_second) {
  const auto part = static_cast<double>(done), whole = static_cast<double>(std::max(all, done));
  const int percent = whole > 0 ? static_cast<int>(100 * part / whole) : 100;
  std::string text = fmt::format("{} of {}, {} %, {}/s", bytes_text(part), bytes_text(whole), percent,
                                 bytes_text(std::max(bytes_per_second, 0.0)));
  if (bytes_per_second > 0) text += fmt::format(", {} left", time_text((whole - part) / bytes_per_second));
  return text;
}

HubProgress::HubProgress(std::string name, int64_t all, int64_t before)
    : name_(std::move(name)), all_(all), before_(before), terminal_(::isatty(STDERR_FILENO) == 1), done_(before) {
  thread_ = std::thread([this] { run(); });
}

HubProgress::~HubProgress() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void HubProgress::print(double seconds) const {
  const int64_t done = done_;
  const double rate = seconds > 0 ? static_cast<double>(done - before_) / seconds : 0;
  const std::string text = progress_text(done, all_, rate);
  if (!terminal_) {
    fmt::print(stderr, "{}: {}\n", name_, text);
    return;
  }
  constexpr int kCells = 24;
  const int full = all_ > 0 ? static_cast<int>(std::clamp<int64_t>(done * kCells / all_, 0, kCells)) : kCells;
  fmt::print(stderr, "\r{} [{}{}] {}\033[K", name_, std::string(static_cast<size_t>(full), '#'),
             std::string(static_cast<size_t>(kCells - full), '.'), text);
  std::fflush(stderr);
}

void HubProgress::run() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!end_) {
    if (terminal_) print(seconds_since(begin));
    wake_.wait_for(lock, terminal_ ? std::chrono::milliseconds(kBarPeriod) : std::chrono::milliseconds(kLinePeriod),
                   [&] { return end_; });
    if (!terminal_ && !end_) print(seconds_since(begin));
  }
  print(seconds_since(begin));
  if (terminal_) fmt::print(stderr, "\n");
}

}  // namespace tern::app
