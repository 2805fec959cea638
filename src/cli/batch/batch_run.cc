#include "cli/batch/batch_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "json/json.h"
#include "serve/router.h"

namespace tern::cli {
namespace {

bool generates(std::string_view url) {
  for (const serve::Route& route : serve::routes()) {
    if (route.path == url && (route.ports & serve::kMainPort) != 0 && route.handler.generates()) return true;
  }
  return false;
}

std::string refusal(const std::string& what) {
  json::Object error{{"message", what}, {"type", "invalid_request_error"}, {"param", nullptr}, {"code", nullptr}};
  return json::dump(json::Object{{"error", std::move(error)}});
}

// 32 hexadecimal digits that nobody can guess without the key.
std::string batch_id(const HashKey& key, uint64_t number) {
  const Hash128 hash = siphash128(key, &number, sizeof number);
  return fmt::format("{:016x}{:016x}", hash.hi, hash.lo);
}

}  // namespace

BatchRun::BatchRun(const BatchInput& input, BatchResults& results, client::Url url, std::string key)
    : input_(input), results_(results), url_(std::move(url)), key_(std::move(key)), done_(results.earlier()) {}

Status BatchRun::run(int in_flight) {
  working_ = in_flight;
  std::vector<std::thread> threads;
  for (int i = 0; i < in_flight; ++i) threads.emplace_back([this] { work(); });
  report_progress();
  for (std::thread& thread : threads) thread.join();
  if (failure_) return *failure_;
  return {};
}

void BatchRun::work() {
  for (size_t i; !stop_ && (i = next_.fetch_add(1)) < input_.size();) {
    if (results_.done(i)) continue;
    const Status status = one(i);
    if (status.ok()) continue;
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = status.error();
    stop_ = true;
  }
  std::lock_guard lock(mutex_);
  --working_;
  changed_.notify_all();
}

Status BatchRun::one(size_t index) {
  TERN_ASSIGN_OR_RETURN(const BatchRequest request, input_.at(index));
  int status = 400;
  std::string answer;
  if (!generates(request.url)) {
    answer = refusal(fmt::format("URL {} is no route that answers a batch; tern run-batch --help", request.url));
  } else if (request.stream) {
    answer = refusal("Request must not be sent in stream mode");
  } else {
    const client::HttpCall call{.path = request.url, .body = request.body, .api_key = key_};
    TERN_ASSIGN_OR_RETURN(status, client::http_call(url_, call, [&](std::string_view bytes) {
                            answer += bytes;
                            return !stop_;
                          }));
    if (stop_) return {};
  }
  const std::string id = batch_id(random_, index);
  TERN_RETURN_IF_ERROR(results_.put(index, status, batch_output_line(request.custom_id, id, status, answer)));
  ++done_;
  if (status != 200) ++refused_;
  return {};
}

// On a terminal one line that changes, elsewhere a line every ten seconds. Returns when all threads have ended.
void BatchRun::report_progress() {
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  const auto pause = std::chrono::milliseconds(terminal ? 200 : 10'000);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, pause, [&] { return working_ == 0; })) {
    fmt::print(stderr, "{}tern run-batch: {} of {} done, {} with an error{}", terminal ? "\r" : "", done_.load(),
               input_.size(), refused_.load(), terminal ? "\033[K" : "\n");
    std::fflush(stderr);
  }
  if (terminal) fmt::print(stderr, "\r\033[K");
}

}  // namespace tern::cli
