#include "serve/worker/preparations.h"

#include <algorithm>

#include "base/clock.h"
#include "serve/openai/json/error.h"
#include "serve/report/request_log.h"

namespace tern::serve {
namespace {

// A host that does not answer or a file that is too large is the request's fault, not the server's: a client should not
// try again by itself.
Error media_error(Error error) {
  if (error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kIo || error.code == ErrorCode::kNotFound) {
    error.code = ErrorCode::kInvalidArgument;
  }
  return error;
}

}  // namespace

void Preparations::answer(Preparation& preparation, const Error& error) {
  if (preparation.counted == nullptr) log_failed(shared_.config, preparation.pending.id, error);
  shared_.post_control(preparation.to.worker,
                       Reply{preparation.to, openai::error_response(error, shared_.config.original_error_status),
                             std::move(preparation.ticket)});
}

void Preparations::start(Preparation preparation) {
  auto parts = std::move(preparation.pending.ask.media);
  const auto& input = preparation.pending.input;
  const uint64_t owner = input.salted ? input.salt[0] : 0;
  const auto cancelled = preparation.cancelled;
  uint64_t key = 0;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    key = next_key_++;
    waiting_.emplace(key, std::move(preparation));
  }
  // The service may call from its threads before this returns, and after the server is gone.
  const Status taken = shared_.content.media->prepare(
      std::move(parts), owner,
      [self = shared_from_this(), key](Expected<Media> media) { self->on_done(key, std::move(media)); }, cancelled);
  if (taken.ok()) return;
  std::lock_guard lock(mutex_);
  const auto it = waiting_.find(key);
  if (it == waiting_.end()) return;
  answer(it->second, media_error(taken.error()));
  waiting_.erase(it);
}

void Preparations::on_done(uint64_t key, Expected<Media> media) {
  std::lock_guard lock(mutex_);  // held to the end: close() waits until the server is not needed any more
  const auto it = waiting_.find(key);
  if (closed_ || it == waiting_.end()) return;
  const ReplyTo to = it->second.to;
  run_guarded(shared_, to, [&] { hand_over(key, std::move(media)); });
  waiting_.erase(key);  // where memory ran out before it was taken
}

// Under the mutex.
void Preparations::hand_over(uint64_t key, Expected<Media> media) {
  struct Work {
    Preparation preparation;
    Media media;
  };
  const auto it = waiting_.find(key);
  auto work = std::make_shared<Work>(Work{std::move(it->second), {}});
  waiting_.erase(it);
  if (work->preparation.cancelled && work->preparation.cancelled->load()) return;  // the request has ended
  if (!media.ok()) return answer(work->preparation, media_error(media.error()));
  work->media = *std::move(media);
  const bool queued = shared_.pool->try_submit([&shared = shared_, work] {
    run_guarded(shared, work->preparation.to,
                [&] { finish_preparation(shared, std::move(work->preparation), std::move(work->media)); });
  });
  if (!queued) answer(work->preparation, {ErrorCode::kResourceExhausted, "the server is overloaded", {}});
}

void Preparations::sweep(int64_t now_ns) {
  std::lock_guard lock(mutex_);
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (it->second.deadline_ns == 0 || now_ns < it->second.deadline_ns) {
      ++it;
      continue;
    }
    it->second.cancelled->store(true);
    answer(it->second, {ErrorCode::kCancelled, "Timed out preparing the media of the request (--media-timeout)", {}});
    it = waiting_.erase(it);
  }
}

void Preparations::abort_matching(AbortSweep& sweep) {
  std::lock_guard lock(mutex_);
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const std::string& id = it->second.pending.id;
    bool match = false;
    if (sweep.takes_key(it->second.key_index)) {
      match = sweep.names(id) || sweep.all;
      for (int32_t i = 0; i < it->second.pending.ask.n; ++i) match |= sweep.names(id + "_" + std::to_string(i));
    }
    if (!match || it->second.counted != nullptr) {
      ++it;
      continue;
    }
    for (int32_t i = 0; i < it->second.pending.ask.n; ++i) sweep.aborted.emplace_back(id + "_" + std::to_string(i), 0);
    it->second.cancelled->store(true);
    answer(it->second, {ErrorCode::kUnavailable, "the request was aborted", {}});
    it = waiting_.erase(it);
  }
}

void Preparations::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  for (auto& [key, preparation] : waiting_) preparation.cancelled->store(true);
  waiting_.clear();
}

}  // namespace tern::serve
