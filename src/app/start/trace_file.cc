#include "app/start/trace_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "base/thread_pool.h"

namespace tern::app {
namespace {

using engine::StepPhase;

struct Track {
  int id;
  const char* title;
  const char* name;  // of its spans
};

Track track_of(StepPhase phase) {
  switch (phase) {
    case StepPhase::kPlan:
      return {1, "engine", "plan"};
    case StepPhase::kLaunch:
      return {2, "rank", "launch"};
    case StepPhase::kDevice:
      return {3, "device", "step"};
    case StepPhase::kCollect:
      break;
  }
  return {1, "engine", "collect"};
}

std::string title_of(int process, const Track& t) {
  return fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})", process, t.id,
                     t.title);
}

// One event, without a comma after it. `origin_ns`: what counts as zero.
std::string trace_event(const engine::StepSpan& s, int64_t origin_ns) {
  const Track t = track_of(s.phase);
  std::string args = fmt::format(R"("step":{},"tokens":{},"rows":{})", s.step, s.tokens, s.rows);
  if (s.phase == StepPhase::kDevice || s.phase == StepPhase::kLaunch) {
    args += s.replayed ? R"(,"how":"graph")" : R"(,"how":"eager")";
  }
  if (s.idle_ns >= 0) args += fmt::format(R"(,"idle_us":{:.3f})", static_cast<double>(s.idle_ns) / 1e3);
  return fmt::format(R"({{"name":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})", t.name,
                     s.engine + 1, t.id, static_cast<double>(s.begin_ns - origin_ns) / 1e3,
                     static_cast<double>(s.end_ns - s.begin_ns) / 1e3, args);
}

}  // namespace

Expected<std::unique_ptr<TraceFile>> TraceFile::open(const std::string& path, int engines, size_t most_bytes) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    return make_error(ErrorCode::kIo, fmt::format("--trace: {} cannot be written: {}", path, std::strerror(errno)),
                      "trace");
  }
  return std::unique_ptr<TraceFile>(new TraceFile(file, engines, most_bytes));
}

TraceFile::TraceFile(std::FILE* file, int engines, size_t most_bytes)
    : file_(file), most_bytes_(most_bytes), origin_ns_(monotonic_ns()) {
  waiting_.reserve(kWaiting);
  std::string head = "[\n";
  for (int process = 1; process <= engines; ++process) {
    const std::string name = engines == 1 ? "tern" : fmt::format("engine {}", process - 1);
    head += fmt::format(R"({}{{"name":"process_name","ph":"M","pid":{},"args":{{"name":"{}"}}}})",
                        process == 1 ? "" : ",\n", process, name);
    for (const StepPhase p : {StepPhase::kPlan, StepPhase::kLaunch, StepPhase::kDevice}) {
      head += ",\n" + title_of(process, track_of(p));
    }
  }
  put(head);
  thread_ = std::thread([this] { run(); });
}

TraceFile::~TraceFile() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
  std::fputs("\n]\n", file_);
  std::fclose(file_);
}

// Memory for kWaiting spans is there from the start: nothing is allocated here.
void TraceFile::add(const engine::StepSpan& span) {
  std::lock_guard lock(mutex_);
  if (waiting_.size() == kWaiting) {
    ++dropped_;
  } else {
    waiting_.push_back(span);
  }
}

uint64_t TraceFile::dropped() const {
  std::lock_guard lock(mutex_);
  return dropped_;
}

void TraceFile::put(const std::string& text) {
  bytes_ += text.size();
  std::fwrite(text.data(), 1, text.size(), file_);
}

void TraceFile::write(const std::vector<engine::StepSpan>& spans) {
  for (const engine::StepSpan& s : spans) {
    if (bytes_ < most_bytes_) put(",\n" + trace_event(s, origin_ns_));
  }
  std::fflush(file_);
}

// Ten times a second, so that little is lost when the process is killed: readers take an array that is not closed.
void TraceFile::run() {
  set_thread_name("trace");
  std::vector<engine::StepSpan> spans;
  spans.reserve(kWaiting);
  for (bool last = false; !last;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, std::chrono::milliseconds(100), [&] { return ending_; });
      last = ending_;
      spans.swap(waiting_);
    }
    write(spans);
    spans.clear();
  }
}

}  // namespace tern::app
