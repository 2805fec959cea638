#include "engine/masks/guide.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tern::engine {

Guide::Guide(std::shared_ptr<const Grammar> grammar, size_t words, bool forces)
    : grammar_(std::move(grammar)), forces_(forces), bits_(words) {
  forced_.reserve(kMostForced);
}

bool Guide::ask(std::span<const int32_t> news, MaskRow* row) {
  told_ += news.size();
  std::lock_guard lock(mutex_);
  news_.insert(news_.end(), news.begin(), news.end());
  row_ = row;
  return !std::exchange(working_, true);
}

void Guide::cancel() {
  std::lock_guard lock(mutex_);
  MaskRow* row = std::exchange(row_, nullptr);
  MaskState waiting = MaskState::kWaiting;
  if (row != nullptr) row->state.compare_exchange_strong(waiting, MaskState::kMissed, std::memory_order_acq_rel);
}

Error Guide::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

Status Guide::advance(std::span<const int32_t> news) {
  if (matcher_ == nullptr) {
    TERN_ASSIGN_OR_RETURN(matcher_, grammar_->start());
  }
  if (!news.empty()) {
    TERN_RETURN_IF_ERROR(matcher_->consume(news));
    filled_ = false;
  }
  if (filled_) return {};
  TERN_RETURN_IF_ERROR(matcher_->fill(bits_));
  forced_.clear();
  if (forces_) TERN_RETURN_IF_ERROR(matcher_->forced(kMostForced, forced_));
  if (forced_.size() > kMostForced) forced_.resize(kMostForced);
  filled_ = true;
  return {};
}

void Guide::work() {
  std::unique_lock lock(mutex_);
  TERN_CHECK(working_);
  while (!failed_) {
    taken_.swap(news_);
    lock.unlock();
    Status done = advance(taken_);
    taken_.clear();
    lock.lock();
    if (!done.ok()) {
      failed_ = true;
      error_ = std::move(done).error();
    } else if (news_.empty()) {
      break;
    }
  }
  working_ = false;
  deliver();
}

// Under the mutex: cancel() returns when nothing is being written.
void Guide::deliver() {
  MaskRow* row = std::exchange(row_, nullptr);
  if (row == nullptr) return;
  // A row that has missed its step may be sampled already: its bits are not touched.
  MaskState waiting = MaskState::kWaiting;
  if (!row->state.compare_exchange_strong(waiting, failed_ ? MaskState::kFailed : MaskState::kWriting,
                                          std::memory_order_acq_rel) ||
      failed_) {
    return;
  }
  std::copy(bits_.begin(), bits_.end(), row->bits.begin());
  row->forced.assign(forced_.begin(), forced_.end());
  row->state.store(MaskState::kReady, std::memory_order_release);
}

}  // namespace tern::engine
