#include "app/start/process_limits.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>

#include "app/report.h"

namespace tern::app {
namespace {

constexpr rlim_t kStack = 8u << 20;         // the usual size, with which everything is tested
constexpr rlim_t kLeastStack = 512u << 10;  // of the first thread, which reads configurations
constexpr rlim_t kMostFiles = 1u << 20;     // some systems allow more than anybody can count
constexpr rlim_t kLeastFiles = 64;

void say(std::string_view text) {
  // No allocation: there may be no memory left.
  for (const std::string_view part : {std::string_view("tern: "), text, std::string_view("\n")})
    (void)!::write(STDERR_FILENO, part.data(), part.size());
}

// An exception that was not caught, in any thread.
[[noreturn]] void on_terminate() {
  constexpr std::string_view kLacking =
      "not enough memory, or no more threads are allowed (ulimit -v, ulimit -u, limits of a container); the process "
      "ends";
  try {
    const std::exception_ptr current = std::current_exception();
    // Without one: another exception was on its way when a thread's owner was left.
    if (!current) {
      if (std::uncaught_exceptions() > 0) say(kLacking), _exit(kFailureExit);
      say("terminate called without an exception");
      std::abort();
    }
    std::rethrow_exception(current);
  } catch (const std::bad_alloc&) {
    say(kLacking);
    _exit(kFailureExit);
  } catch (const std::system_error& e) {
    if (e.code() == std::errc::resource_unavailable_try_again) say(kLacking), _exit(kFailureExit);
    say(e.what());
  } catch (const std::exception& e) {
    say(e.what());
  } catch (...) {
    say("an exception of unknown type");
  }
  std::abort();
}

void raise_soft(int resource, rlim_t most) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, most);
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(resource, &limit);
}

rlim_t soft_limit(int resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

}  // namespace

Status prepare_process() {
  std::set_terminate(on_terminate);
  raise_soft(RLIMIT_NOFILE, kMostFiles);
  raise_soft(RLIMIT_STACK, kStack);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) == 0) {
    pthread_attr_setstacksize(&attributes, kStack);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }
  if (const rlim_t stack = soft_limit(RLIMIT_STACK); stack < kLeastStack) {
    return make_error(
        ErrorCode::kResourceExhausted,
        fmt::format("a stack of {} KiB is too small: allow at least {} (ulimit -s)", stack >> 10, kLeastStack >> 10));
  }
  return {};
}

Status enough_files() {
  const rlim_t files = soft_limit(RLIMIT_NOFILE);
  if (files >= kLeastFiles) return {};
  return make_error(
      ErrorCode::kResourceExhausted,
      fmt::format("{} open files are not enough for a server: allow at least {} (ulimit -n)", files, kLeastFiles));
}

}  // namespace tern::app
