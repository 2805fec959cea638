#include "engine/loop/orders.h"

#include <utility>

namespace tern::engine {

void Orders::take(Inbox::Order order) {
  if (failed_) return order.done.set_value(*failed_);
  if (order.order.what == Control::kPause) {
    paused_ = true;
    const auto& why = order.order.why;
    requests_.end_all(why ? FinishReason::kError : FinishReason::kAbort, why.value_or(Error{}));
  }
  waiting_.push_back(std::move(order));
}

void Orders::settle() {
  while (!waiting_.empty() && steps_.none()) {
    Inbox::Order order = std::move(waiting_.front());
    waiting_.pop_front();
    order.done.set_value(carry_out(order.order.what));
  }
}

// No step is open.
Status Orders::carry_out(Control what) {
  if (what == Control::kPause) return {};
  if (what == Control::kResume) {
    if (cache_given_) return make_error(ErrorCode::kInvalidArgument, "the cache has no memory");
    paused_ = false;
    return {};
  }
  if (!paused_) return make_error(ErrorCode::kInvalidArgument, "the engine is not paused");
  if (what != Control::kForget) return move_cache(what == Control::kTakeCache);
  parts_.index->clear();
  if (parts_.encoder != nullptr) parts_.encoder->forget_all();
  return {};
}

Status Orders::move_cache(bool back) {
  if (back != cache_given_) return {};
  if (parts_.device->own_memory()) TERN_RETURN_IF_ERROR(parts_.device->bind_thread());
  if (back) {
    const int64_t blocks = parts_.blocks.total;
    Status grown = group_ != nullptr ? group_->grow(blocks) : parts_.cache->grow(blocks);
    if (!grown.ok()) {  // what came of it goes again, so that it can be tried once more
      (void)give_cache();
      return grown;
    }
  } else {
    parts_.index->clear();
    TERN_RETURN_IF_ERROR(give_cache());
  }
  cache_given_ = !back;
  return {};
}

void Orders::fail(const Error& error) {
  failed_ = error;
  for (Inbox::Order& order : waiting_) order.done.set_value(error);
  waiting_.clear();
}

}  // namespace tern::engine
