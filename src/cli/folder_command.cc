#include "cli/folder_command.h"

#include <fmt/format.h>

#include <atomic>
#include <csignal>

#include "app/report.h"

namespace tern::cli {
namespace {

std::atomic<bool> g_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");
void on_stop(int) { g_stop = true; }

}  // namespace

int run_folder_command(const std::string& out, bool quiet,
                       const std::function<Status(const model::FolderWriterOptions&)>& write) {
  signal(SIGINT, on_stop);
  signal(SIGTERM, on_stop);
  signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is an error like a full disk
  model::FolderWriterOptions options;
  options.out = out;
  options.stop = [] { return g_stop.load(); };
  int shown = -1;
  if (!quiet) {
    options.progress = [&shown](size_t done, size_t all) {
      const int percent = static_cast<int>(static_cast<double>(done) * 100.0 / static_cast<double>(all));
      if (percent == shown) return;
      shown = percent;
      fmt::print(stderr, "\r{} % of {:.2f} GB", percent, static_cast<double>(all) / 1e9);
    };
  }
  const Status status = write(options);
  if (shown >= 0) fmt::print(stderr, "\n");
  if (!status.ok()) {
    const int code = app::report(status.error());
    return g_stop ? 130 : code;
  }
  fmt::print("{}\n", out);
  return 0;
}

}  // namespace tern::cli
