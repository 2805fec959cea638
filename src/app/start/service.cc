#include "app/start/service.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <thread>

#include "app/access/reload.h"
#include "app/report.h"
#include "app/start/loaded_server.h"
#include "app/start/log_files.h"
#include "app/start/paddlenlp_start.h"
#include "app/start/process_limits.h"
#include "app/start/signals.h"
#include "base/clock.h"
#include "base/thread_pool.h"

namespace tern::app {
namespace {

// Start-up lines are printed at every log level: scripts wait for them.
void console(const std::string& text) {
  for (const std::string_view line : split(text, '\n')) {
    log_write(LogChannel::kConsole, LogLevel::kInfo, __FILE__, __LINE__, line);
  }
}

// A thread that prints what the scheduler did, while there is something to say.
class SchedulerLines {
 public:
  SchedulerLines(const engine::EngineClient& engine, const LogSettings& log) : engine_(engine), log_(log) {
    if (log.scheduler_line) thread_ = std::thread([this] { run(); });
  }
  ~SchedulerLines() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    set_thread_name("scheduler-line");
    engine::EngineStats before = engine_.stats();
    int64_t then = monotonic_ns();
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::duration<double>(log_.scheduler_interval), [&] { return stopping_; })) {
      const engine::EngineStats now = engine_.stats();
      const int64_t time = monotonic_ns();
      try {
        const std::string line = serve::scheduler_line(before, now, static_cast<double>(time - then) / 1e9);
        if (!line.empty()) {
          TERN_LOG(LogChannel::kConsole, LogLevel::kInfo, "{}", line);
          TERN_LOG(LogChannel::kScheduler, LogLevel::kInfo, "{}", line);
        }
      } catch (const std::bad_alloc&) {  // requests have all memory now: a line less
      }
      before = now;
      then = time;
    }
  }

  const engine::EngineClient& engine_;
  const LogSettings& log_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

// Stops the server on the first signal, ends its draining on the second. Made before the server, so that no signal
// falls between its start and the readiness to stop it.
class Stopper {
 public:
  Stopper(Signals& signals, double drain_seconds) : signals_(signals), drain_seconds_(drain_seconds) {
    signals_.on_signal([this](int count) { on_signal(count); });
  }
  ~Stopper() {
    // The second of them may come when the server has stopped already.
    signals_.on_signal([asked = asked()](int count) {
      if (!asked || count > 2) _exit(kFailureExit);
    });
    if (thread_.joinable()) thread_.join();
  }
  void attach(serve::Server& server) {
    std::lock_guard lock(mutex_);
    server_ = &server;
    if (asked_) stop();
    if (count_ > 1) server_->stop_now();
  }
  bool asked() const {
    std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  void on_signal(int count) {
    std::lock_guard lock(mutex_);
    asked_ = true;
    count_ = count;
    // Not on the second, though there may be no server yet: the end of standard input asks with two at once.
    if (count > 2) _exit(kFailureExit);
    if (server_ == nullptr) return;
    if (count == 1) stop();
    if (count == 2) server_->stop_now();
  }
  void stop() {
    thread_ = std::thread([this] {
      if (const int open = server_->open_requests(); open > 0 && drain_seconds_ > 0) {
        console(fmt::format("Stopping: {} open requests have {} s to finish", open, drain_seconds_));
      }
      server_->stop(drain_seconds_);
    });
  }

  Signals& signals_;
  const double drain_seconds_;
  mutable std::mutex mutex_;
  serve::Server* server_ = nullptr;
  bool asked_ = false;
  int count_ = 0;  // signals so far
  std::thread thread_;
};

// Ends the process when the engine has failed: its device may never answer again, so nothing that waits for it is
// destroyed. Clients get their errors and /health its answer first.
class Watch {
 public:
  Watch(const engine::EngineClient& engine, LogFiles& log) : engine_(engine), log_(log), thread_([this] { run(); }) {}
  ~Watch() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

 private:
  static constexpr std::chrono::seconds kLastWords{3};
  void run() {
    set_thread_name("health-watch");
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::milliseconds(50), [&] { return stopping_; })) {
      if (engine_.healthy()) continue;
      TERN_ERROR("the engine has failed: the process ends in {} s", kLastWords.count());
      wake_.wait_for(lock, kLastWords, [] { return false; });
      log_.flush();
      _exit(kFailureExit);
    }
  }

  const engine::EngineClient& engine_;
  LogFiles& log_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

// While it lives, the engine decides what the health port says.
class HealthWatch {
 public:
  HealthWatch(PaddleNlpHealth* health, const engine::EngineClient& engine) : health_(health) {
    if (health_ != nullptr) health_->serving(engine);
  }
  ~HealthWatch() {
    if (health_ != nullptr) health_->release();
  }
  HealthWatch(const HealthWatch&) = delete;
  HealthWatch& operator=(const HealthWatch&) = delete;

 private:
  PaddleNlpHealth* const health_;
};

// While it lives, SIGHUP reads files for the server.
class Reloads {
 public:
  Reloads(AccessReload& access, serve::Server& server) : access_(access) { access_.attach(server); }
  ~Reloads() { access_.detach(); }
  Reloads(const Reloads&) = delete;
  Reloads& operator=(const Reloads&) = delete;

 private:
  AccessReload& access_;
};

Status start_and_serve(const Settings& settings, Signals& signals, AccessReload& access, LogFiles& log,
                       int& exit_status) {
  const int64_t started = monotonic_ns();
  TERN_ASSIGN_OR_RETURN(const auto health, PaddleNlpHealth::open(settings));
  TERN_ASSIGN_OR_RETURN(const auto loaded, LoadedServer::load(settings));
  std::unique_ptr<Stopper> stopper = std::make_unique<Stopper>(signals, settings.drain_seconds);
  if (settings.paddlenlp && settings.paddlenlp->warmup) {
    TERN_RETURN_IF_ERROR(warm_up(loaded->engine(), *settings.paddlenlp, loaded->config().vocab_size));
  }
  TERN_RETURN_IF_ERROR(loaded->listen());
  const serve::ServeConfig& config = loaded->config();
  serve::Server& server = loaded->server();
  const Reloads reloads(access, server);
  if (serve::open_to_everyone(config)) {
    TERN_WARN(
        "every machine that reaches {} may use this server: no --api-key is set (--host 127.0.0.1 keeps it local)",
        config.host);
  }
  if (settings.paddlenlp) console(paddlenlp_lines(settings, server));
  if (settings.openai_port) console(serve::startup_lines(config, server.port(), server.metrics_port()));
  const HealthWatch probed(health.get(), loaded->engine());
  TERN_INFO("ready after {:.3f} s", static_cast<double>(monotonic_ns() - started) / 1e9);
  const SchedulerLines lines(loaded->engine(), settings.log);
  const Watch watch(loaded->engine(), log);
  stopper->attach(server);
  server.wait();
  const bool asked = stopper->asked();
  stopper.reset();  // joins the thread that uses the server
  if (!asked) return make_error(ErrorCode::kInternal, "the engine has ended; the log files say why");
  exit_status = 0;
  return {};
}

// The thread of signals outlives what SIGHUP opens anew.
struct HangupEnd {
  Signals& signals;
  ~HangupEnd() { signals.on_hangup({}); }
};

}  // namespace

int run_service(const Settings& settings) {
  AccessReload access(settings.access);  // outlives the thread of signals
  // Before all others, so that every thread inherits the blocked signals.
  Signals signals;
  LogFiles log(settings.log);
  const StdinWatch with_stdin(settings.exit_with_stdin);
  signals.on_hangup([&log, &access] {
    log.reopen();
    TERN_INFO("SIGHUP: the log files were opened anew; flags and variables are read at the start only");
    access.reload();
  });
  const HangupEnd hangup_ends{signals};
  if (const Status files = enough_files(); !files.ok()) return report(files.error());
  for (const std::string& warning : settings.warnings) TERN_WARN("{}", warning);
  const std::string configuration = settings.serve.config_info;
  TERN_INFO("configuration: {}", configuration);
  TERN_LOG(LogChannel::kApiServer, LogLevel::kInfo, "args: {}", configuration);
  int exit_status = 0;
  const Status status = start_and_serve(settings, signals, access, log, exit_status);
  if (status.ok()) return exit_status;
  log.flush();  // why it ends is the last line
  return report(status.error());
}

}  // namespace tern::app
