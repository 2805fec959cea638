#include "engine/step/rank_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/thread_pool.h"
#include "model/ranks.h"
#include "ops/collective.h"
#include "ops/embedding.h"

namespace tern::engine {

Expected<RankPart> RankPart::create(const RankModel& rank, const device::Communicator& communicator,
                                    const model::BatchLimits& limits, const sample::SamplerLimits& sampling) {
  RankPart p;
  p.model = rank.model, p.device = rank.device, p.communicator = communicator;
  device::Device& device = *rank.device;
  const int64_t vocab = rank.model->info().vocab_size, most = limits.max_logit_rows;
  const auto [first, columns] = model::vocabulary_part(vocab, communicator.rank, communicator.ranks);
  const size_t workspace = rank.model->workspace_bytes(limits, device.stream());
  TERN_ASSIGN_OR_RETURN(p.workspace, device.allocate(std::max<size_t>(workspace, 1)));
  TERN_ASSIGN_OR_RETURN(p.logits_memory, device.allocate(static_cast<size_t>(most * columns) * sizeof(float)));
  TERN_ASSIGN_OR_RETURN(p.rows_memory, device.allocate(static_cast<size_t>(most * vocab) * sizeof(float)));
  p.logits = tensor2(p.logits_memory.data(), DType::kF32, most, columns);
  p.rows = tensor2(p.rows_memory.data(), DType::kF32, most, vocab);
  p.first_column = first;
  TERN_ASSIGN_OR_RETURN(p.owner, sample::Staged<int32_t>::create(most, device));
  TERN_ASSIGN_OR_RETURN(sample::Sampler sampler,
                        sample::Sampler::create(sample::SamplingDeal::limits_of(sampling, communicator.ranks), device));
  p.sampler = std::make_unique<sample::Sampler>(std::move(sampler));
  TERN_ASSIGN_OR_RETURN(sample::SamplingDeal deal, sample::SamplingDeal::create(sampling, communicator, device));
  p.deal = std::make_unique<sample::SamplingDeal>(std::move(deal));
  return p;
}

Status RankPart::forward(const model::Batch& b, const model::KvCache& cache) const {
  const device::Stream stream = device->stream();
  device::Arena arena(workspace.data(), workspace.bytes());
  const TensorView mine = logits.first(b.logit_rows);
  TERN_RETURN_IF_ERROR(model->forward({b, cache, stream, arena, nullptr, communicator}, mine));
  return ops::all_to_all({communicator, mine, first_column, owner.device(), rows.first(b.logit_rows)}, stream);
}

Status RankPart::sample(sample::SamplingBatch& whole, int64_t logit_rows) const {
  const device::Stream stream = device->stream();
  const std::span<const int32_t> owners(owner.host(), static_cast<size_t>(logit_rows));
  deal->take(whole, owners);
  sample::SamplingBatch& mine = deal->batch();
  sample::CopyList list;
  mine.upload(list);
  TERN_RETURN_IF_ERROR(list.run(*device, stream));
  TERN_RETURN_IF_ERROR(sampler->run(mine, rows.first(logit_rows), *device, stream));
  deal->give(whole, owners);
  return ops::all_gather({communicator, owner.device(), mine.device_ids().first(logit_rows)}, stream);
}

Expected<std::unique_ptr<RankGroup>> RankGroup::create(std::span<const RankModel> ranks,
                                                       device::CommunicatorGroup& group, const Sizes& sizes) {
  std::unique_ptr<RankGroup> g(new RankGroup(group));
  TERN_ASSIGN_OR_RETURN(g->first_, RankPart::create(ranks[0], group.of(0), sizes.limits, sizes.sampling));
  for (size_t r = 1; r < ranks.size(); ++r) TERN_RETURN_IF_ERROR(g->add(ranks[r], static_cast<int>(r), sizes));
  for (const auto& member : g->members_) member->thread = std::thread([&g = *g, &m = *member] { g.run(m); });
  return g;
}

Status RankGroup::add(const RankModel& rank, int number, const Sizes& sizes) {
  auto member = std::make_unique<Member>();
  Member& m = *member;
  device::Device& device = *rank.device;
  TERN_ASSIGN_OR_RETURN(m.part, RankPart::create(rank, group_.of(number), sizes.limits, sizes.sampling));
  TERN_ASSIGN_OR_RETURN(m.cache, CacheMemory::reserve(rank.model->kv_specs(sizes.block_size), sizes.blocks, device));
  TERN_RETURN_IF_ERROR(m.cache->grow(sizes.blocks));
  TERN_ASSIGN_OR_RETURN(m.inputs, StepInputs::create(sizes.limits, sizes.pictures, device, nullptr));
  TERN_ASSIGN_OR_RETURN(m.table, BlockTable::create(sizes.limits, device, nullptr));
  members_.push_back(std::move(member));
  return {};
}

RankGroup::~RankGroup() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  given_.notify_all();
  for (const auto& member : members_) {
    if (member->thread.joinable()) member->thread.join();
  }
}

void RankGroup::forward(Step& step) {
  sample::SamplingDeal::owners(step.sampling, ranks(),
                               {first_.owner.host(), static_cast<size_t>(step.batch.logit_rows)});
  give({Kind::kForward, &step});
}

void RankGroup::sample(Step& step) { give({Kind::kSample, &step}); }

void RankGroup::give(const Work& work) {
  {
    const std::lock_guard lock(mutex_);
    work_ = work;
    ++number_;
    busy_ = members_.size();
  }
  given_.notify_all();
}

Status RankGroup::settle(Status status) {
  if (!status.ok()) group_.fail();
  {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return busy_ == 0; });
  }
  // Who failed says why; that others waited for it in vain says nothing.
  const auto says_more = [](const Status& s) { return !s.ok() && s.error().code != ErrorCode::kUnavailable; };
  for (const auto& member : members_) {
    if (!member->status.ok() && (status.ok() || (!says_more(status) && says_more(member->status))))
      status = member->status;
  }
  return status;
}

void RankGroup::inject(int rank, device::Fault fault) { members_[static_cast<size_t>(rank) - 1]->fault = fault; }

void RankGroup::run(Member& m) {
  set_thread_name(fmt::format("rank-{}", m.part.communicator.rank));
  m.status = m.part.device->bind_thread();
  for (uint64_t seen = 0;; ++seen) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      given_.wait(lock, [&] { return number_ > seen || stopping_; });
      if (number_ == seen) return;
      work = work_;
    }
    if (m.status.ok()) m.status = run(m, work);
    if (!m.status.ok()) group_.fail();
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0) done_.notify_one();
  }
}

Status RankGroup::run(Member& m, const Work& work) {
  const device::Stream stream = m.part.device->stream();
  Step& step = *work.step;
  const int64_t rows = step.batch.logit_rows;
  if (work.kind == Kind::kSample) return m.part.sample(step.sampling, rows);
  TERN_RETURN_IF_ERROR(m.part.device->inject(std::exchange(m.fault, device::Fault::kNone), stream));
  TERN_RETURN_IF_ERROR(step.copy_to(m.inputs, m.table, *m.part.device, stream));
  std::copy_n(first_.owner.host(), rows, m.part.owner.host());
  const model::Batch batch = step.batch_at(m.inputs, m.table);
  TERN_RETURN_IF_ERROR(
      ops::resolve_ids({batch.token_ids, batch.token_source, m.part.deal->batch().device_ids()}, stream));
  return m.part.forward(batch, m.cache->cache());
}

}  // namespace tern::engine
