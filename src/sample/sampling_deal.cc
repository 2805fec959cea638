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

Expected<SamplingDeal> SamplingDeal::create(const SamplerLimits& limits, const device::Communicator& rank,
                                            device::Device& device) {
  SamplingDeal d;
  d.rank_ = rank;
  TERN_ASSIGN_OR_RETURN(d.mine_, SamplingBatch::create(limits_of(limits, rank.ranks), device));
  d.place_.resize(static_cast<size_t>(limits.max_rows));
  return d;
}

void SamplingDeal::owners(const SamplingBatch& whole, int ranks, std::span<int32_t> owner) {
  for (size_t l = 0; l < owner.size(); ++l) owner[l] = static_cast<int32_t>(l) % ranks;
  for (int i = 0; i < whole.count_; ++i) {
    const ops::SampleRow& row = whole.rows_[i];
    if (row.is_row()) owner[static_cast<size_t>(row.logit_row)] = row.slot % ranks;
  }
}

void SamplingDeal::take(const SamplingBatch& whole, std::span<const int32_t> owner) {
  SamplingBatch& m = mine_;
  m.clear();
  m.updates.take(whole.updates, rank_.rank, rank_.ranks);
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
    m.rows_[m.count_++] = row;
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

void SamplingDeal::give(SamplingBatch& whole, std::span<const int32_t> owner) const {
  for (int l = 0; l < mine_.logit_rows_; ++l) {
    if (owner[static_cast<size_t>(l)] != rank_.rank) continue;
    whole.status_[l] = mine_.status_[l];
    if (mine_.limits_.probs) whole.probs_[l] = mine_.probs_[l];
  }
  const auto scores = [&](const ops::LogprobRow& row) {
    std::copy_n(mine_.scores_.host() + row.out, 1 + row.top, whole.scores_.host() + row.out);
  };
  for (int i = 0; i < mine_.plain_; ++i) scores(mine_.plain_rows_[i]);
  for (int i = 0; i < mine_.captured_; ++i) scores(mine_.captured_rows_[i]);
}

void SamplingDeal::give_ids(SamplingBatch& whole, int64_t logit_rows, CopyList& list) const {
  const size_t bytes = static_cast<size_t>(logit_rows) * sizeof(int32_t);
  list.add({whole.ids_.device(), mine_.ids_.device(), bytes, 1, bytes, bytes});
}

}  // namespace tern::sample
