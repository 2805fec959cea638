#include "model/verify/ranked_model.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/checked.h"
#include "model/ranks.h"
#include "ops/collective.h"

namespace tern::model {
namespace {

// What rank 0's probe has decided, for the others.
class Decisions {
 public:
  void say(bool forced, TensorView ids) {
    const std::lock_guard lock(mutex_);
    const auto* const first = ids.as<const int32_t>();
    said_.push_back({forced, std::vector<int32_t>(first, first + ids.numel())});
    changed_.notify_all();
  }
  bool hear(size_t number, TensorView ids) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return said_.size() > number; });
    const auto& [forced, chosen] = said_[number];
    if (forced) std::copy(chosen.begin(), chosen.end(), ids.as<int32_t>());
    return forced;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<bool, std::vector<int32_t>>> said_;
};

class FirstProbe final : public Probe {
 public:
  FirstProbe(Probe& probe, Decisions& decisions) : probe_(probe), decisions_(decisions) {}
  void tensor(std::string_view name, TensorView value) override { probe_.tensor(name, value); }
  void router(int layer, TensorView scores) override { probe_.router(layer, scores); }
  bool routing(int layer, TensorView ids) override {
    const bool forced = probe_.routing(layer, ids);
    decisions_.say(forced, ids);
    return forced;
  }

 private:
  Probe& probe_;
  Decisions& decisions_;
};

class FollowingProbe final : public Probe {
 public:
  explicit FollowingProbe(Decisions& decisions) : decisions_(decisions) {}
  void tensor(std::string_view, TensorView) override {}
  bool routing(int, TensorView ids) override { return decisions_.hear(heard_++, ids); }

 private:
  Decisions& decisions_;
  size_t heard_ = 0;
};

}  // namespace

struct RankedModel::Share {
  char* workspace = nullptr;
  size_t bytes = 0;
  Probe* probe = nullptr;
  std::span<const int32_t> tokens;  // by engine
};

Expected<std::unique_ptr<RankedModel>> RankedModel::load(const LoadOptions& options, device::Device& device,
                                                         bool idle) {
  std::unique_ptr<RankedModel> model(new RankedModel());
  LoadOptions o = options;
  Shard& shard = o.shard;
  model->idle_ = idle;
  for (shard.engine = 0; shard.engine < shard.engines; ++shard.engine) {
    for (shard.rank = 0; shard.rank < shard.ranks; ++shard.rank) {
      TERN_ASSIGN_OR_RETURN(auto part, load_model(o, device));
      model->ranks_.push_back(std::move(part));
    }
    model->groups_.push_back(device::make_cpu_communicators(shard.ranks, false));
  }
  if (shard.engines > 1) model->experts_ = device::make_cpu_communicators(shard.expert_ranks(), false);
  return model;
}

std::vector<KvSpec> RankedModel::kv_specs(int block_size) const {
  std::vector<KvSpec> all;
  for (const auto& r : ranks_) {
    for (const KvSpec& spec : r->kv_specs(block_size)) all.push_back(spec);
  }
  return all;
}

size_t RankedModel::rank_bytes(const BatchLimits& limits, device::Stream stream) const {
  const auto part = static_cast<size_t>(output_part(info(), 0, of_engine()).count);
  return round_up<size_t>(ranks_[0]->workspace_bytes(limits, stream), 64) +
         round_up<size_t>(static_cast<size_t>(limits.max_logit_rows) * part * sizeof(float), 64);
}

size_t RankedModel::workspace_bytes(const BatchLimits& limits, device::Stream stream) const {
  limits_ = limits;
  return rank_bytes(limits, stream) * static_cast<size_t>(count());
}

void RankedModel::let_go() const {
  for (const auto& group : groups_) group->fail();
  if (experts_ != nullptr) experts_->fail();
}

// `rank`: among those of all engines.
Status RankedModel::run(const Share& share, int rank, const ForwardContext& context, TensorView logits) const {
  const int of = of_engine(), engine = rank / of;
  const device::Communicator communicator = groups_[static_cast<size_t>(engine)]->of(rank % of);
  ExpertGroup experts;
  if (experts_ != nullptr) experts = {experts_->of(rank), share.tokens};
  // Every rank has as many groups of cache as the next.
  const size_t groups = context.cache.groups.size() / static_cast<size_t>(count());
  const auto first = context.cache.groups.begin() + static_cast<std::ptrdiff_t>(groups) * rank;
  const KvCache cache{{first, first + static_cast<std::ptrdiff_t>(groups)}};
  const VocabularyPart part = output_part(info(), rank % of, of);
  device::Arena arena(share.workspace, share.bytes);
  const bool whole = info().pooled > 0;  // the first rank's result is the result
  const bool idle = share.tokens[static_cast<size_t>(engine)] == 0;
  const Batch batch = idle ? Batch{} : context.batch;
  const TensorView own = arena.tensor(DType::kF32, batch.logit_rows, part.count);
  const TensorView mine = whole && rank % of == 0 ? logits : own;
  const device::Stream stream = rank == 0 ? context.stream : device::Stream{};
  Status status = ranks_[static_cast<size_t>(rank)]->forward(
      {batch, cache, stream, arena, share.probe, communicator, experts}, mine);
  if (status.ok() && !whole && !idle) {
    status = ops::all_to_all({communicator, mine, part.first, nullptr, logits}, stream);
  }
  if (!status.ok()) let_go();
  return status;
}

// `logits`: of each engine.
Status RankedModel::run_all(const ForwardContext& context, std::span<const TensorView> logits) const {
  const auto n = static_cast<size_t>(count()), of = static_cast<size_t>(of_engine());
  const size_t bytes = rank_bytes(limits_, context.stream), shown = idle_ ? n - of : 0;
  std::vector<int32_t> tokens(groups_.size(), context.batch.tokens);
  if (idle_) std::fill(tokens.begin(), tokens.end() - 1, 0);
  Decisions decisions;
  std::vector<std::unique_ptr<Probe>> probes(n);
  std::vector<Status> statuses(n);
  std::vector<std::thread> threads;
  auto* const memory = static_cast<char*>(context.workspace.take(bytes * n));
  const auto work = [&](size_t r) {
    const TensorView out = r % of == 0 ? logits[r / of] : TensorView{};
    statuses[r] = run({memory + r * bytes, bytes, probes[r].get(), tokens}, static_cast<int>(r), context, out);
  };
  for (size_t r = 0; r < n; ++r) {
    if (context.probe == nullptr) continue;
    if (r == shown) {
      probes[r] = std::make_unique<FirstProbe>(*context.probe, decisions);
    } else {
      probes[r] = std::make_unique<FollowingProbe>(decisions);
    }
  }
  for (size_t r = 1; r < n; ++r) threads.emplace_back([&, r] { work(r); });
  work(0);
  for (std::thread& t : threads) t.join();
  for (Status& s : statuses) TERN_RETURN_IF_ERROR(std::move(s));
  return {};
}

Status RankedModel::forward(const ForwardContext& context, TensorView logits) const {
  const int64_t rows = context.batch.logit_rows, columns = info().outputs();
  const auto values = static_cast<size_t>(rows * columns);
  const size_t result = idle_ ? groups_.size() - 1 : 0;
  std::vector<std::vector<float>> others(groups_.size());
  std::vector<TensorView> all(groups_.size(), logits);
  for (size_t e = 0; e < groups_.size(); ++e) {
    if (e == result || idle_) continue;
    others[e].resize(values);
    all[e] = tensor2(others[e].data(), DType::kF32, rows, columns);
  }
  TERN_RETURN_IF_ERROR(run_all(context, all));
  for (size_t e = 0; e < groups_.size(); ++e) {
    for (int64_t row = 0; row < rows && !others[e].empty(); ++row) {
      const float* const said = others[e].data() + row * columns;
      if (std::memcmp(said, logits.row_bytes(row), static_cast<size_t>(columns) * sizeof(float)) != 0) {
        return make_error(ErrorCode::kInternal, "engines that share experts differ in a result of the same tokens");
      }
    }
  }
  return {};
}

}  // namespace tern::model
