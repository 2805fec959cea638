#include "engine/step/block_table.h"

#include <algorithm>

#include "base/check.h"
#include "base/memory/prefetch.h"

namespace tern::engine {

Expected<BlockTable> BlockTable::create(const model::BatchLimits& limits, device::Device& device,
                                        const BlockTable* shares, const BlockTable* of) {
  BlockTable t;
  t.stride_ = limits.max_blocks_per_row;
  const auto rows = static_cast<size_t>(limits.max_rows);
  const auto make = [&](sample::Staged<int32_t> BlockTable::*array, int64_t n) -> Status {
    TERN_ASSIGN_OR_RETURN(t.*array, sample::Staged<int32_t>::create(n, device, shares ? &(shares->*array) : nullptr,
                                                                    of ? &(of->*array) : nullptr));
    return {};
  };
  TERN_RETURN_IF_ERROR(make(&BlockTable::entries_, int64_t{limits.max_rows} * t.stride_));
  TERN_RETURN_IF_ERROR(make(&BlockTable::changes_, device.own_memory() ? 2 * room(limits.max_rows) : 0));
  if (of != nullptr) return t;
  t.rows_.resize(rows);
  if (device.own_memory()) t.sent_ = shares ? shares->sent_ : std::make_shared<std::vector<Sent>>(rows);
  return t;
}

void BlockTable::begin() {
  columns_ = change_count_ = 0;
  first_changed_ = static_cast<int>(rows_.size()), last_changed_ = -1;
}

void BlockTable::prefetch(size_t rows) const {
  prefetch_memory(rows_.data(), rows * sizeof(Row));
  if (sent_ != nullptr) prefetch_memory(sent_->data(), rows * sizeof(Sent));
}

void BlockTable::set(int r, int used, uint64_t table, std::span<const int32_t> blocks) {
  TERN_CHECK(used <= static_cast<int64_t>(blocks.size()) && used <= stride_);
  Row& row = rows_[static_cast<size_t>(r)];
  const bool same = table != 0 && row.table == table;
  if (same && row.used == used) return;
  int32_t* const entries = entries_.host() + int64_t{r} * stride_;
  const int from = same ? std::min(row.used, used) : 0;
  std::copy(blocks.begin() + from, blocks.begin() + used, entries + from);
  row = {table, used, entries[used - 1]};
}

void BlockTable::note(int r) {
  if (sent_ == nullptr) return;
  const Row& row = rows_[static_cast<size_t>(r)];
  Sent& sent = (*sent_)[static_cast<size_t>(r)];
  const bool same = row.table != 0 && sent.table == row.table;
  if (same && sent.used >= row.used) return;
  const int begin = r * stride_, most = static_cast<int>(changes_.size() / 2);
  for (int i = same ? sent.used : 0; i < row.used; ++i, ++change_count_) {
    if (change_count_ >= most) continue;
    changes_[2 * change_count_] = begin + i;
    changes_[2 * change_count_ + 1] = entries_[begin + i];
  }
  sent.table = row.table, sent.used = row.used;
  first_changed_ = std::min(first_changed_, r), last_changed_ = std::max(last_changed_, r);
}

void BlockTable::pad(int rows) {
  const int end = room(rows);
  for (int i = change_count_ > end ? 0 : change_count_; i < end; ++i) changes_[2 * i] = -1;
}

void BlockTable::upload(int rows, sample::CopyList& list) const {
  entries_.upload_rows(0, columns_, rows, stride_, list);
}

void BlockTable::upload_rest(int rows, sample::CopyList& list) const {
  if (change_count_ <= room(rows)) return;
  entries_.upload_rows(first_changed_, columns_, last_changed_ + 1 - first_changed_, stride_, list);
}

}  // namespace tern::engine
