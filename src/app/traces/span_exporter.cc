#include "app/traces/span_exporter.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <chrono>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/thread_pool.h"
#include "client/http_client.h"
#include "json/json.h"

namespace tern::app {
namespace {

using namespace std::chrono_literals;

constexpr long kCallSeconds = 10;
constexpr std::string_view kPath = "/v1/traces";

std::string attribute(std::string_view key, std::string_view value) {
  std::string out = fmt::format("{{\"key\":\"{}\",\"value\":{{\"stringValue\":", key);
  json::append_quoted(out, value);
  return out + "}}";
}

}  // namespace

SpanExporter::SpanExporter(const SpanSettings& settings) : settings_(settings), thread_([this] { run(); }) {}

SpanExporter::~SpanExporter() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, 2s, [this] { return waiting_.empty() && !sending_; });
    waiting_.clear();
  }
  if (const int open = socket_.load(); open >= 0) ::shutdown(open, SHUT_RDWR);
  thread_.join();
}

void SpanExporter::add(std::string spans) {
  std::lock_guard lock(mutex_);
  if (stopping_ || waiting_.size() >= kMostWaiting) return;
  waiting_.push_back(std::move(spans));
  if (waiting_.size() >= static_cast<size_t>(settings_.batch)) wake_.notify_one();
}

std::string SpanExporter::payload(const SpanSettings& settings, std::string_view spans) {
  return fmt::format(
      "{{\"resourceSpans\":[{{\"resource\":{{\"attributes\":[{},{}]}},\"scopeSpans\":[{{\"scope\":{{\"name\":\"tern\"}}"
      ","
      "\"spans\":[{}]}}]}}]}}",
      attribute("service.name", settings.service), attribute("host.name", settings.host), spans);
}

// Under the mutex: the spans of the next call.
std::string SpanExporter::take() {
  std::string spans;
  for (int i = 0; i < settings_.batch && !waiting_.empty(); ++i) {
    if (!spans.empty()) spans += ',';
    spans += waiting_.front();
    waiting_.pop_front();
  }
  return spans;
}

void SpanExporter::run() {
  set_thread_name("span-exporter");
  std::unique_lock lock(mutex_);
  while (!stopping_ || !waiting_.empty()) {
    if (!stopping_) {
      wake_.wait_for(lock, std::chrono::milliseconds(settings_.delay_ms),
                     [this] { return stopping_ || waiting_.size() >= static_cast<size_t>(settings_.batch); });
    }
    const std::string spans = take();
    if (spans.empty()) continue;
    sending_ = true;
    lock.unlock();
    try {
      send(payload(settings_, spans));
    } catch (const std::bad_alloc&) {  // requests have all memory now
    }
    lock.lock();
    sending_ = false;
    if (stopping_) wake_.notify_all();
  }
}

void SpanExporter::send(const std::string& body) {
  if (settings_.endpoint.empty()) {
    TERN_LOG(LogChannel::kConsole, LogLevel::kInfo, "{}", body);
    return;
  }
  const auto url = client::parse_url(settings_.endpoint);  // checked by read_trace_settings()
  client::HttpCall call;
  call.path = url->path.ends_with(kPath) ? "" : kPath;
  call.body = body;
  call.headers = settings_.headers;
  call.seconds = kCallSeconds;
  const auto status = client::http_call(
      *url, call, [](std::string_view) { return true; }, &socket_);
  const bool taken = status.ok() && *status >= 200 && *status < 300;
  if (taken || std::exchange(complained_, true)) return;
  TERN_WARN("spans do not reach {}: {}; they are dropped, and this is said once", settings_.endpoint,
            status.ok() ? fmt::format("status {}", *status) : status.error().message);
}

}  // namespace tern::app
