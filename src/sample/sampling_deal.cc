#include "sample/sampling_deal.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace tern::sample {

void SlotUpdates::take(const SlotUpdates& whole, int rank, int ranks) {
  clear();
  for (Item item : whole.items_) {
    if (item.slot % ranks != rank) continue;
    item.slot /= ranks;
    items_.push_back(item);
  }
}

SamplerLimits SamplingDeal::limits_of(SamplerLimits whole, int ranks) {
  whole.slots = ceil_div(whole.slots, ranks);
  return whole;
}

void SamplingDeal::owners(const SamplingBatch& whole, int ranks, std::span<int32_t> owner) {
  for (size_t l = 0; l < owner.size(); ++l) owner[l] = static_cast<int32_t>(l) % ranks;
  for (int i = 0; i < whole.count_; ++i) {
    const ops::SampleRow& row = whole.rows_[i];
    if (row.is_row()) owner[static_cast<size_t>(row.logit_row)] = row.slot % ranks;
  }
}

void SamplingDeal::take(const SamplingBatch& whole, std::span<const int32_t> owner, SamplingBatch& m) {
  const bool held_back = m.held_back_;
  m.clear();
  m.held_back_ = held_back;
  m.updates.take(whole.updates, rank_.rank, rank_.ranks);
  m.facts.take(whole.facts, owner, rank_.rank);
  const auto mine = [&](int32_t logit_row) { return owner[static_cast<size_t>(logit_row)] == rank_.rank; };
  const int64_t words = (whole.limits_.vocab + 31) / 32;
  for (int i = 0; i < whole.count_; ++i) {
    ops::SampleRow row = whole.rows_[i];
    if (!row.is_row() || !mine(row.logit_row)) continue;
    row.slot /= rank_.ranks;
    if (row.mask_row >= 0) {
      std::memcpy(m.masks_.host() + m.masked_ * words, whole.masks_.host() + row.mask_row * words,
                  static_cast<size_t>(words) * sizeof(uint32_t));
      row.mask_row = m.masked_++;
    }
    m.waiting_rows()[m.count_++] = row;
  }
  m.processors_ = whole.processors_, m.logit_rows_ = whole.logit_rows_, m.score_count_ = whole.score_count_;
  m.sent_ = m.count_;
  for (int i = 0; i < whole.captures_; ++i) {
    if (!mine(whole.capture_rows_[i])) continue;
    place_[static_cast<size_t>(i)] = m.captures_;
    m.capture_rows_[m.captures_++] = whole.capture_rows_[i];
  }
  for (int i = 0; i < whole.plain_; ++i) {
    if (mine(whole.plain_rows_[i].sampled_row)) m.plain_rows_[m.plain_++] = whole.plain_rows_[i];
  }
  for (int i = 0; i < whole.captured_; ++i) {
    ops::LogprobRow row = whole.captured_rows_[i];
    if (!mine(row.sampled_row)) continue;
    row.logit_row = place_[static_cast<size_t>(row.logit_row)];
    m.captured_rows_[m.captured_++] = row;
  }
}

void SamplingDeal::give(const SamplingBatch& mine, std::span<const int32_t> owner, SamplingBatch& whole) const {
  for (size_t l = 0; l < owner.size(); ++l) {
    const auto row = static_cast<int64_t>(l);
    if (rank_.rank == 0) whole.ids_[row] = mine.ids_[row];
    if (owner[l] != rank_.rank || row >= mine.logit_rows_) continue;
    whole.status_[row] = mine.status_[row];
    if (mine.limits_.probs) whole.probs_[row] = mine.probs_[row];
  }
  const auto scores = [&](const ops::LogprobRow& row) {
    std::copy_n(mine.scores_.host() + row.out, 1 + row.top, whole.scores_.host() + row.out);
  };
  for (int i = 0; i < mine.plain_; ++i) scores(mine.plain_rows_[i]);
  for (int i = 0; i < mine.captured_; ++i) scores(mine.captured_rows_[i]);
  mine.facts.give(whole.facts);
}

}  // namespace tern::sample
