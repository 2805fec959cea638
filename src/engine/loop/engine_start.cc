#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/loop/engine_impl.h"
#include "engine/loop/profile_run.h"

namespace tern::engine {
namespace {

// A chunk's end moves up to the end of a picture, so that a step can exceed the budget by one.
model::BatchLimits batch_limits(const sched::SchedulerConfig& s, int largest_item) {
  model::BatchLimits l;
  l.max_tokens = s.max_num_batched_tokens + largest_item;
  l.max_rows = s.max_num_seqs;
  l.max_logit_rows = s.max_logit_rows;
  l.max_blocks_per_row = ceil_div(s.max_model_len, s.block_size);
  return l;
}

// A pooling model samples nothing: its sampler is as small as one can be.
sample::SamplerLimits sampler_limits(const EngineConfig& c, int64_t vocab, bool pools) {
  sample::SamplerLimits l;
  l.slots = l.max_rows = c.scheduler.max_num_seqs;
  l.max_logit_rows = c.scheduler.max_logit_rows;
  l.vocab = vocab;
  if (pools) return l.vocab = 1, l.max_logprobs = 0, l;
  l.max_logprobs = static_cast<int>(c.max_logprobs < 0 ? vocab : std::min<int64_t>(c.max_logprobs, vocab));
  l.masks = c.mask_threads > 0;
  l.probs = c.early_stop;
  l.entropy = c.entropy, l.kept = c.kept_tokens;
  l.mode = c.logprobs_mode;
  l.capacity = c.slot_capacity;
  return l;
}

// Memory of a step beside the cache: workspace, logits, captured logits, token counts. `ranks` that have their steps in
// one memory: each has room for all logits, and they have them once more, in parts.
size_t step_memory(const EngineConfig& c, int64_t vocab, size_t workspace, int ranks) {
  const auto rows = static_cast<size_t>((ranks == 1 ? 1 : ranks + 1) * c.scheduler.max_logit_rows +
                                        (ranks + 1) * c.scheduler.max_num_seqs);
  return workspace + rows * static_cast<size_t>(vocab) * sizeof(float);
}

Status check_config(const EngineConfig& c) {
  const sched::SchedulerConfig& s = c.scheduler;
  const auto bad = [](const char* flag, const char* what) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("--{} {}", flag, what), flag);
  };
  if (s.block_size < 1) return bad("block-size", "must be positive");
  if (s.max_num_seqs < 1) return bad("max-num-seqs", "must be positive");
  if (s.max_model_len < 2) return bad("max-model-len", "must be at least 2");
  if (s.max_num_batched_tokens < s.max_num_seqs) {
    return bad("max-num-batched-tokens", "must hold one token of each of --max-num-seqs sequences");
  }
  if (!(c.memory_utilization > 0 && c.memory_utilization <= 1)) {
    return bad("gpu-memory-utilization", "must be above 0 and at most 1");
  }
  return {};
}

// Brings up the parts in the order that memory asks for.
class Starter {
 public:
  Starter(const EngineConfig& config, std::span<const RankModel> ranks, device::CommunicatorGroup* group,
          const vision::Tower* tower)
      : ranks_(ranks), group_(group), model_(*ranks[0].model), device_(*ranks[0].device), tower_(tower) {
    p_.config = config;
    p_.config.scheduler.max_logit_rows = config.scheduler.max_num_seqs + std::max(1, config.prompt_logit_rows);
    p_.model = &model_, p_.device = &device_;
    outputs_ = model_.info().outputs();
    const int64_t vocab = model_.info().vocab_size;
    p_.sampled_vocab = config.sampled_vocab > 0 ? std::min<int64_t>(config.sampled_vocab, vocab) : vocab;
    p_.pooled = model_.info().pooled;
    if (p_.pooled > 0) p_.config.graphs.use = false, p_.config.mask_threads = 0;  // steps are prompts
  }
  Expected<std::unique_ptr<Engine>> run();

 private:
  sched::SchedulerConfig& scheduler() { return p_.config.scheduler; }
  Status plan();
  BlockQuestion question();
  Step::Parts step_parts() const {
    return {limits_, sampler_limits(p_.config, p_.sampled_vocab, p_.pooled > 0),
            p_.vision ? p_.vision->pictures() : TensorView{}, static_cast<int>(ranks_.size()), p_.pooled};
  }
  Status make_parts();
  Expected<StepRunner> make_runner();
  Status measure(StepRunner& runner);
  Status capture(StepRunner& runner);
  Status grow(StepRunner& runner, int64_t blocks);
  size_t memory_available() const;  // of the rank that has least

  const std::span<const RankModel> ranks_;
  device::CommunicatorGroup* const group_;  // null: one rank
  const model::Model& model_;               // of the first
  device::Device& device_;
  const vision::Tower* tower_;
  EngineParts p_;
  int64_t outputs_ = 0;  // columns of the logits
  VisionPlan pictures_;
  model::BatchLimits limits_;
  size_t workspace_ = 0, block_bytes_ = 0, total_ = 0, available_ = 0;
};

Status Starter::plan() {
  sched::SchedulerConfig& s = scheduler();
  for (const KvSpec& kv : model_.kv_specs(s.block_size)) {
    if (kv.block_size_fits()) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("--block-size {} is not a multiple of {}", s.block_size, kBlockSizeStep),
                      "block-size");
  }
  const device::Stream stream = device_.stream();
  const DataParallel& dp = p_.config.data_parallel;
  total_ = dp.memory_total > 0 ? dp.memory_total : device_.info().memory_total;
  available_ = dp.memory_available > 0 ? dp.memory_available : memory_available();
  if (tower_ != nullptr) {
    TERN_ASSIGN_OR_RETURN(
        pictures_, plan_vision(p_.config.vision, *tower_, s.max_num_batched_tokens, model_.info().hidden_size, stream));
    s.max_range_tokens = pictures_.max_step_tokens;
    TERN_INFO("pictures: {} MiB for tower calls of up to {} patches and {} rows of encoded ones",
              pictures_.total_bytes >> 20, pictures_.call.patches, pictures_.cache_rows);
  }
  limits_ = batch_limits(s, pictures_.max_item_tokens);
  // Ranks of a CPU share its memory: a block is one on each of them. GPUs have theirs; the largest part counts.
  for (const RankModel& rank : ranks_) {
    size_t block = 0;
    for (const KvSpec& spec : rank.model->kv_specs(s.block_size)) block += spec.block_bytes();
    const size_t workspace = rank.model->workspace_bytes(limits_, stream);
    const bool apart = device_.own_memory();
    workspace_ = apart ? std::max(workspace_, workspace) : workspace_ + workspace;
    block_bytes_ = apart ? std::max(block_bytes_, block) : block_bytes_ + block;
  }
  return {};
}

size_t Starter::memory_available() const {
  size_t least = std::numeric_limits<size_t>::max();
  // Asking binds this thread to a device: that of the first rank in the end.
  for (size_t r = ranks_.size(); r > 0; --r) least = std::min(least, ranks_[r - 1].device->memory_available());
  return least;
}

BlockQuestion Starter::question() {
  BlockQuestion q{scheduler()};
  q.override_blocks = p_.config.num_blocks_override;
  q.utilization = p_.config.memory_utilization;
  q.prefix_cache_allowance = p_.config.prefix_cache_allowance;
  q.bytes_per_block = std::max<size_t>(block_bytes_, 1);
  q.memory_total = total_;
  q.memory_available = available_;
  const int ranks = device_.own_memory() ? 1 : static_cast<int>(ranks_.size());
  q.memory_reserved = step_memory(p_.config, outputs_, workspace_, ranks);
  q.memory_pictures = pictures_.total_bytes;
  return q;
}

Status Starter::make_parts() {
  if (tower_ != nullptr) {
    TERN_ASSIGN_OR_RETURN(p_.vision, VisionStage::create(pictures_, *tower_, device_));
    p_.encoder = std::make_unique<cache::EncoderCache>(pictures_.cache_rows);
  }
  if (group_ == nullptr) {
    TERN_ASSIGN_OR_RETURN(sample::Sampler sampler, sample::Sampler::create(step_parts().sampling, device_));
    p_.sampler = std::make_unique<sample::Sampler>(std::move(sampler));
  }
  for (auto& slot : p_.steps) {
    TERN_ASSIGN_OR_RETURN(Step step, Step::create(step_parts(), device_, p_.steps[0].get()));
    slot = std::make_unique<Step>(std::move(step));
  }
  return {};
}

Expected<StepRunner> Starter::make_runner() {
  StepRunner::Parts r;
  r.device = &device_, r.vision = p_.vision.get(), r.trace = p_.config.trace;
  const DataParallel& dp = p_.config.data_parallel;
  r.lockstep = dp.lockstep, r.engine = dp.rank;
  const int64_t blocks = device_.own_memory() ? most_blocks(question()) : p_.blocks.total;
  if (group_ != nullptr) {
    const RankPart::Shared shared{
        {p_.steps[0].get(), p_.steps[1].get()}, step_parts(), scheduler().block_size, blocks, dp.lockstep, dp.rank};
    TERN_ASSIGN_OR_RETURN(r.group, RankGroup::create(ranks_, *group_, shared));
    return StepRunner(std::move(r));
  }
  TERN_ASSIGN_OR_RETURN(p_.cache, CacheMemory::reserve(model_.kv_specs(scheduler().block_size), blocks, device_));
  TERN_RETURN_IF_ERROR(p_.cache->grow(0));
  TERN_ASSIGN_OR_RETURN(r.workspace, device_.allocate(std::max<size_t>(workspace_, 1)));
  const int64_t rows = scheduler().max_logit_rows;
  TERN_ASSIGN_OR_RETURN(p_.logits, device_.allocate(static_cast<size_t>(rows * outputs_) * sizeof(float)));
  r.sampler = p_.sampler.get();
  r.pass.model = &model_, r.pass.cache = &p_.cache->cache();
  r.pass.workspace = r.workspace.data(), r.pass.workspace_bytes = r.workspace.bytes();
  if (dp.lockstep != nullptr) r.pass.experts = dp.lockstep->experts(dp.rank, 0);
  r.pass.logits = tensor2(p_.logits.data(), DType::kF32, rows, outputs_);
  return StepRunner(std::move(r));
}

Status Starter::grow(StepRunner& runner, int64_t blocks) {
  Status grown = group_ != nullptr ? runner.parts().group->grow(blocks) : p_.cache->grow(blocks);
  if (grown.ok()) return grown;
  const char* flag = p_.config.num_blocks_override > 0 ? "num-gpu-blocks-override" : "gpu-memory-utilization";
  return make_error(ErrorCode::kResourceExhausted,
                    fmt::format("{} blocks of {} bytes do not fit: {}; lower --{}", blocks, block_bytes_,
                                grown.error().message, flag),
                    flag);
}

Status Starter::capture(StepRunner& runner) {
  const StepRunner::Parts& r = runner.parts();
  const int longest = limits_.max_blocks_per_row * scheduler().block_size;
  if (r.group != nullptr) return r.group->capture(p_.config.graphs, longest);
  TERN_ASSIGN_OR_RETURN(
      auto graphs, StepGraphs::capture(
                       p_.config.graphs,
                       {r.pass, &device_, p_.sampler.get(), {p_.steps[0].get(), p_.steps[1].get()}, limits_, longest}));
  runner.use(std::move(graphs));
  return {};
}

// Everything a step needs is taken before blocks are counted: code, what libraries want for the largest steps, graphs.
Status Starter::measure(StepRunner& runner) {
  const int64_t begin = monotonic_ns();
  const StepRunner::Parts& r = runner.parts();
  TERN_RETURN_IF_ERROR(r.group != nullptr ? r.group->load_kernels() : device_.load_kernels());
  TERN_RETURN_IF_ERROR(ProfileRun(runner, *p_.steps[0], limits_, step_parts().sampling, scheduler()).run());
  TERN_RETURN_IF_ERROR(capture(runner));
  BlockQuestion q = question();
  q.measured = true;
  q.memory_left = memory_available();
  q.profile_seconds = static_cast<double>(monotonic_ns() - begin) * 1e-9;
  TERN_ASSIGN_OR_RETURN(p_.blocks, count_blocks(q));
  return grow(runner, p_.blocks.total);
}

Expected<std::unique_ptr<Engine>> Starter::run() {
  const bool measured = device_.own_memory();
  if (measured) TERN_RETURN_IF_ERROR(device_.bind_thread());
  TERN_RETURN_IF_ERROR(plan());
  if (!measured) {
    TERN_ASSIGN_OR_RETURN(p_.blocks, count_blocks(question()));
  }
  TERN_RETURN_IF_ERROR(make_parts());
  TERN_ASSIGN_OR_RETURN(StepRunner runner, make_runner());
  if (measured) {
    TERN_RETURN_IF_ERROR(measure(runner));
  } else {
    TERN_RETURN_IF_ERROR(grow(runner, p_.blocks.total));
    TERN_RETURN_IF_ERROR(capture(runner));
  }
  p_.pool = std::make_unique<cache::BlockPool>(p_.blocks.total + 1);
  const DataParallel& dp = p_.config.data_parallel;
  if (dp.news != nullptr) p_.names = std::make_unique<cache::PrefixNames>();
  const HashKey key = dp.news != nullptr ? dp.prefix_key : random_hash_key();
  p_.index = std::make_unique<cache::PrefixIndex>(*p_.pool, key, p_.names.get());
  p_.scheduler = sched::make_scheduler(scheduler(), *p_.pool, *p_.index);
  return std::unique_ptr<Engine>(std::make_unique<EngineImpl>(std::move(p_), std::move(runner)));
}

}  // namespace

Expected<std::unique_ptr<Engine>> Engine::start(const EngineConfig& config, const model::Model& model,
                                                device::Device& device, const vision::Tower* tower) {
  TERN_RETURN_IF_ERROR(check_config(config));
  const RankModel only{&model, &device};
  return Starter(config, {&only, 1}, nullptr, tower).run();
}

Expected<std::unique_ptr<Engine>> Engine::start(const EngineConfig& config, std::span<const RankModel> ranks,
                                                device::CommunicatorGroup* group, const vision::Tower* tower) {
  TERN_RETURN_IF_ERROR(check_config(config));
  if (config.fault_rank >= static_cast<int>(ranks.size())) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("TERN_FAULT: there is no rank {} of {}", config.fault_rank, ranks.size()),
                      "TERN_FAULT");
  }
  return Starter(config, ranks, group, tower).run();
}

}  // namespace tern::engine
