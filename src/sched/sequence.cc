#include "sched/sequence.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/checked.h"

namespace tern::sched {

void WaitingQueue::enter(Sequence* s, uint64_t owner) {
  s->owner = &owners_[owner];
  s->owner->key = owner;
  ++s->owner->sequences;
  s->arrival = arrivals_++;
}

void WaitingQueue::leave(Sequence* s) {
  if (--s->owner->sequences > 0) return;
  next_ = nullptr;
  owners_.erase(s->owner->key);
}

Sequence* WaitingQueue::front() const {
  if (preempted_.front != nullptr) return preempted_.front;
  if (next_ != nullptr) return next_->waiting.front;
  for (const auto& [key, owner] : owners_) {
    if (owner.waiting.front == nullptr) continue;
    if (next_ == nullptr ||
        std::pair(owner.slots, owner.waiting.front->arrival) < std::pair(next_->slots, next_->waiting.front->arrival)) {
      next_ = &owner;
    }
  }
  return next_ != nullptr ? next_->waiting.front : nullptr;
}

void WaitingQueue::push_back(Sequence* s) {
  SequenceList& list = s->owner->waiting;
  s->before = list.back, s->after = nullptr;
  (list.back ? list.back->after : list.front) = s;
  list.back = s;
  ++size_;
  next_ = nullptr;
}

void WaitingQueue::push_front(Sequence* s) {
  s->before = nullptr, s->after = preempted_.front;
  (preempted_.front ? preempted_.front->before : preempted_.back) = s;
  preempted_.front = s;
  ++size_;
}

void WaitingQueue::remove(Sequence* s) {
  SequenceList& list = list_of(s);
  (s->before ? s->before->after : list.front) = s->after;
  (s->after ? s->after->before : list.back) = s->before;
  s->before = s->after = nullptr;
  --size_;
  next_ = nullptr;
}

void WaitingQueue::take_slot(Sequence* s) {
  ++s->owner->slots;
  next_ = nullptr;
}

void WaitingQueue::give_slot(Sequence* s) {
  --s->owner->slots;
  next_ = nullptr;
}

void extend_hashes(Sequence& s, HashKey key, int block_size, int blocks) {
  extend_hashes(s.hashes, s.tokens, s.extra_keys, key, block_size, blocks);
}

void extend_hashes(std::vector<Hash128>& hashes, std::span<const int32_t> tokens, std::span<const ExtraKey> extra_keys,
                   HashKey key, int block_size, int blocks) {
  std::vector<uint64_t> extra;
  for (int i = static_cast<int>(hashes.size()); i < blocks; ++i) {
    const int begin = i * block_size, end = begin + block_size;
    extra.clear();
    for (const ExtraKey& k : extra_keys) {
      if (k.begin >= end) break;
      if (k.end <= begin) continue;
      // Where the item lies in the block and where the block lies in the item; not where the item ends beyond the
      // block, so that a salt over the whole sequence gives equal keys for prompts of different length.
      const int from = std::max(k.begin, begin), to = std::min(k.end, end);
      extra.insert(extra.end(), {static_cast<uint64_t>(from - begin), static_cast<uint64_t>(to - begin),
                                 static_cast<uint64_t>(from - k.begin), k.key[0], k.key[1]});
    }
    const Hash128 parent = i == 0 ? Hash128{} : hashes.back();
    const auto block = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(block_size));
    hashes.push_back(cache::block_hash(key, parent, block, extra));
  }
}

namespace {

// The first range that ends after `position`.
auto range_after(const Sequence& s, int position) {
  return std::partition_point(s.unsplittable.begin(), s.unsplittable.end(),
                              [position](const auto& r) { return r.second <= position; });
}

}  // namespace

int begin_of_range(const Sequence& s, int end) { return range_after(s, end)->first; }

int touched_ranges(const Sequence& s, int begin, int end) {
  int tokens = 0;
  for (auto r = range_after(s, begin); r != s.unsplittable.end() && r->first < end; ++r) tokens += r->second - r->first;
  return tokens;
}

int bound_ranges(const Sequence& s, int begin, int end, int room) {
  for (auto r = range_after(s, begin); r != s.unsplittable.end() && r->first < end; ++r) {
    room -= r->second - r->first;
    if (room < 0) return std::max(begin, r->first);
  }
  return end;
}

int round_chunk_end(const Sequence& s, int end) {
  const auto range = range_after(s, end);
  return range != s.unsplittable.end() && range->first < end ? range->second : end;
}

int roll_back_match(const Sequence& s, int matched, int block_size) {
  for (;;) {
    const auto range = range_after(s, matched);
    if (range == s.unsplittable.end() || range->first >= matched) return matched;
    matched = range->first / block_size * block_size;  // may in turn cut the range before
  }
}

namespace {

Status validate_ranges(const NewSequence& s, const SchedulerConfig& config) {
  const auto length = static_cast<int>(s.prompt.size());
  int end = 0;
  for (const auto& range : s.unsplittable) {
    if (range.first < end || range.second <= range.first || range.second > length) {
      return make_error(ErrorCode::kInvalidArgument,
                        "Unsplittable ranges must be ordered, disjoint and inside the prompt.", "unsplittable");
    }
    end = range.second;
    if (config.max_range_tokens > 0 && range.second - range.first > config.max_range_tokens) {
      return make_error(ErrorCode::kTooLarge, "A picture has more tokens than one step takes.", "unsplittable");
    }
    if (s.prompt_logit_rows > 0 && config.max_logit_rows > 0 &&
        range.second - range.first > config.max_logit_rows - config.max_num_seqs) {
      return make_error(ErrorCode::kTooLarge, "A picture is larger than the prompt positions that one step scores.",
                        "prompt_logprobs");
    }
  }
  int begin = 0;
  for (const ExtraKey& key : s.extra_keys) {
    if (key.begin < begin || key.end <= key.begin) {
      return make_error(ErrorCode::kInvalidArgument, "Extra cache keys must be ordered ranges of tokens.",
                        "extra_keys");
    }
    begin = key.begin;
  }
  return {};
}

}  // namespace

Status validate(const NewSequence& s, const SchedulerConfig& config, int total_blocks) {
  if (s.prompt.empty()) return make_error(ErrorCode::kInvalidArgument, "The prompt has no tokens.", "prompt");
  if (s.max_new_tokens < 1) {
    return make_error(ErrorCode::kInvalidArgument, "At least one new token must be asked for.", "max_tokens");
  }
  const auto prompt = static_cast<int64_t>(s.prompt.size());
  const int64_t length = prompt + s.max_new_tokens;
  if (length > config.max_model_len) {
    return make_error(ErrorCode::kTooLarge,
                      "The prompt of " + std::to_string(prompt) + " tokens and " + std::to_string(s.max_new_tokens) +
                          " new ones exceed the context of " + std::to_string(config.max_model_len) +
                          " tokens (--max-model-len).",
                      "max_tokens");
  }
  // The last token's own keys and values are never needed.
  const int64_t need = ceil_div<int64_t>(length - 1, config.block_size);
  if (need > total_blocks) {
    return make_error(ErrorCode::kResourceExhausted,
                      "The request can need " + std::to_string(need) + " KV cache blocks, the cache has " +
                          std::to_string(total_blocks) +
                          ": raise --num-gpu-blocks-override or --gpu-memory-utilization, or lower --max-model-len.",
                      "max_tokens");
  }
  if (!config.chunked_prefill && prompt > config.max_num_batched_tokens) {
    return make_error(ErrorCode::kResourceExhausted,
                      "The prompt of " + std::to_string(prompt) +
                          " tokens does not fit one step: raise --max-num-batched-tokens (" +
                          std::to_string(config.max_num_batched_tokens) + ") or allow --enable-chunked-prefill.",
                      "prompt");
  }
  return validate_ranges(s, config);
}

}  // namespace tern::sched
