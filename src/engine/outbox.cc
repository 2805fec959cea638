#include "engine/outbox.h"

#include <iterator>
#include <utility>

namespace tern::engine {

News::Event& News::event(RequestId id) {
  Event& e = events_.emplace_back();
  e.head.id = id;
  e.token_begin = static_cast<int32_t>(tokens_.size());
  return e;
}

void News::token(int32_t id) {
  tokens_.push_back({.id = id,
                     .logprob_begin = static_cast<int32_t>(logprobs_.size()),
                     .kept_begin = static_cast<int64_t>(kept_.size())});
  ++events_.back().token_count;
}

void News::logprob(const TokenLogprob& value) {
  logprobs_.push_back(value);
  ++tokens_.back().logprob_count;
}

void News::kept(int32_t id) {
  kept_.push_back(id);
  ++tokens_.back().kept_count;
}

News::Extra& News::extra() {
  Event& e = events_.back();
  if (e.extra < 0) {
    e.extra = static_cast<int32_t>(extras_.size());
    extras_.emplace_back();
  }
  return extras_[static_cast<size_t>(e.extra)];
}

void News::clear() { events_.clear(), tokens_.clear(), logprobs_.clear(), kept_.clear(), extras_.clear(); }

void News::append(News& other) {
  if (empty()) {  // whoever reads keeps up: nothing is copied
    swap(other);
    return;
  }
  const auto tokens = static_cast<int32_t>(tokens_.size());
  const auto logprobs = static_cast<int32_t>(logprobs_.size());
  const auto kept = static_cast<int64_t>(kept_.size());
  const auto extras = static_cast<int32_t>(extras_.size());
  for (Event& e : other.events_) {
    e.token_begin += tokens;
    if (e.extra >= 0) e.extra += extras;
    events_.push_back(e);
  }
  for (Token t : other.tokens_) {
    t.logprob_begin += logprobs;
    t.kept_begin += kept;
    tokens_.push_back(t);
  }
  logprobs_.insert(logprobs_.end(), other.logprobs_.begin(), other.logprobs_.end());
  kept_.insert(kept_.end(), other.kept_.begin(), other.kept_.end());
  extras_.insert(extras_.end(), std::make_move_iterator(other.extras_.begin()),
                 std::make_move_iterator(other.extras_.end()));
  other.clear();
}

void News::expand(std::vector<Delta>& out) {
  out.reserve(out.size() + events_.size());
  for (const Event& e : events_) {
    Delta& d = out.emplace_back();
    const Head& h = e.head;
    d.id = h.id, d.finish = h.finish, d.stop_sequence = h.stop_sequence, d.stop_token = h.stop_token;
    d.prompt_tokens = h.prompt_tokens, d.cached_tokens = h.cached_tokens, d.preemptions = h.preemptions;
    d.times = h.times;
    d.tokens.resize(static_cast<size_t>(e.token_count));
    for (int32_t i = 0; i < e.token_count; ++i) {
      const Token& t = tokens_[static_cast<size_t>(e.token_begin + i)];
      TokenOutput& o = d.tokens[static_cast<size_t>(i)];
      o.id = t.id;
      const auto first = logprobs_.begin() + t.logprob_begin;
      o.logprobs.assign(first, first + t.logprob_count);
      o.entropy = t.entropy;
      o.kept.assign(kept_.begin() + t.kept_begin, kept_.begin() + t.kept_begin + t.kept_count);
    }
    if (e.extra >= 0) {
      Extra& x = extras_[static_cast<size_t>(e.extra)];
      d.error = std::move(x.error);
      d.prompt_logprobs = std::move(x.prompt_logprobs);
      d.interruptions = std::move(x.interruptions);
      d.pooled = std::move(x.pooled);
    }
  }
  clear();
}

void News::swap(News& other) noexcept {
  events_.swap(other.events_);
  tokens_.swap(other.tokens_);
  logprobs_.swap(other.logprobs_);
  kept_.swap(other.kept_);
  extras_.swap(other.extras_);
}

void News::reserve(size_t events) {
  events_.reserve(events);
  tokens_.reserve(events);
  logprobs_.reserve(4 * events);
}

Outbox::Outbox(size_t capacity) : capacity_(capacity) {
  pending_.reserve(expected());
  taken_.reserve(expected());
}

void Outbox::publish(News& news) {
  if (news.empty()) return;
  {
    std::lock_guard lock(mutex_);
    pending_.append(news);
  }
  arrived_.notify_one();
  if (signal_ != nullptr) signal_->give();
}

bool Outbox::full() const {
  std::lock_guard lock(mutex_);
  return pending_.size() >= capacity_;
}

void Outbox::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  arrived_.notify_all();
  if (signal_ != nullptr) signal_->give();
}

bool Outbox::poll(std::vector<Delta>& out, std::chrono::milliseconds timeout) {
  bool was_full = false, open = true;
  {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, timeout, [&] { return closed_ || !pending_.empty(); });
    was_full = pending_.size() >= capacity_;
    open = !closed_ || !pending_.empty();
    taken_.swap(pending_);
  }
  if (was_full && callback_ != nullptr) callback_(callback_context_);
  taken_.expand(out);
  return open;
}

}  // namespace tern::engine
