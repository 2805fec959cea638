#include "app/ranks/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "base/clock.h"

namespace tern::app {
namespace {
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kSilent = 2 * kSecond;
constexpr int64_t kBarPeriod = kSecond / 10;
constexpr int64_t kLinePeriod = 5 * kSecond;
constexpr size_t kWidth = 40;
}  // namespace

std::string progress_bar(size_t done, size_t all, size_t width) {
  const double share = all == 0 ? 1.0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(all));
  const size_t filled = static_cast<size_t>(share * static_cast<double>(width));
  return fmt::format("[{}{}] {:3.0f} %  {:.1f} / {:.1f} GB", std::string(filled, '#'), std::string(width - filled, '.'),
                     share * 100, static_cast<double>(done) / 1e9, static_cast<double>(all) / 1e9);
}

Progress::Progress(bool terminal) : terminal_(terminal), start_(monotonic_ns()) {}

Progress::~Progress() {
  if (terminal_ && shown_) std::fputs("\n", stderr);
}

std::string Progress::step(size_t done, size_t all, int64_t elapsed_ns) {
  if (elapsed_ns < kSilent) return "";
  const bool last = done >= all;
  if (shown_ && !last && elapsed_ns - last_ < (terminal_ ? kBarPeriod : kLinePeriod)) return "";
  shown_ = true;
  last_ = elapsed_ns;
  if (terminal_) return "\rLoading weights " + progress_bar(done, all, kWidth);
  return fmt::format("Loading weights: {:.0f} %, {:.1f} of {:.1f} GB, {:.0f} s\n",
                     all == 0 ? 100.0 : 100.0 * static_cast<double>(done) / static_cast<double>(all),
                     static_cast<double>(done) / 1e9, static_cast<double>(all) / 1e9,
                     static_cast<double>(elapsed_ns) / kSecond);
}

void Progress::update(size_t done, size_t all) {
  const std::string text = step(done, all, monotonic_ns() - start_);
  if (!text.empty()) std::fputs(text.c_str(), stderr);
}

SharedProgress::SharedProgress(int parts)
    : bar_(::isatty(STDERR_FILENO) == 1), done_(static_cast<size_t>(parts)), all_(static_cast<size_t>(parts)) {}

void SharedProgress::update(int part, size_t done, size_t all) {
  const std::lock_guard lock(mutex_);
  done_[static_cast<size_t>(part)] = done, all_[static_cast<size_t>(part)] = all;
  bar_.update(std::accumulate(done_.begin(), done_.end(), size_t{0}),
              std::accumulate(all_.begin(), all_.end(), size_t{0}));
}

}  // namespace tern::app
