#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "base/log.h"
#include "engine/engine_impl.h"

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

sample::SamplerLimits sampler_limits(const EngineConfig& c, int64_t vocab, bool masks) {
  sample::SamplerLimits l;
  l.slots = l.max_rows = c.scheduler.max_num_seqs;
  l.max_logit_rows = c.scheduler.max_logit_rows;
  l.vocab = vocab;
  l.max_logprobs = c.max_logprobs < 0 ? static_cast<int>(vocab) : c.max_logprobs;
  l.masks = masks;
  l.probs = c.early_stop;
  l.mode = c.logprobs_mode;
  l.capacity = c.slot_capacity;
  return l;
}

// Memory of a step beside the cache: workspace, logits, captured logits, token counts.
size_t step_memory(const EngineConfig& c, int64_t vocab, size_t workspace) {
  const auto rows = static_cast<size_t>(c.scheduler.max_logit_rows + 2 * c.scheduler.max_num_seqs);
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

}  // namespace

Expected<std::unique_ptr<Engine>> Engine::start(const EngineConfig& config, const model::Model& model,
                                                device::Device& device, MaskProvider* masks,
                                                const vision::Tower* tower) {
  TERN_RETURN_IF_ERROR(check_config(config));
  EngineImpl::Parts p;
  p.config = config;
  sched::SchedulerConfig& s = p.config.scheduler;
  s.max_logit_rows = s.max_num_seqs + std::max(1, config.prompt_logit_rows);
  p.model = &model, p.device = &device, p.masks = masks;
  const int64_t vocab = model.info().vocab_size;
  p.sampled_vocab = config.sampled_vocab > 0 ? std::min<int64_t>(config.sampled_vocab, vocab) : vocab;

  const std::vector<KvSpec> specs = model.kv_specs(s.block_size);
  const device::Stream stream = device.stream();
  VisionPlan pictures;
  if (tower != nullptr) {
    TERN_ASSIGN_OR_RETURN(
        pictures, plan_vision(config.vision, *tower, s.max_num_batched_tokens, model.info().hidden_size, stream));
    s.max_range_tokens = pictures.max_step_tokens;
    TERN_INFO("pictures: {} MiB for tower calls of up to {} patches and {} rows of encoded ones",
              pictures.total_bytes >> 20, pictures.call.patches, pictures.cache_rows);
  }
  const model::BatchLimits limits = batch_limits(s, pictures.max_item_tokens);
  const size_t workspace = model.workspace_bytes(limits, stream);
  size_t block_bytes = 0;
  for (const KvSpec& spec : specs) block_bytes += spec.block_bytes();
  BlockQuestion question{s};
  question.override_blocks = config.num_blocks_override;
  question.utilization = config.memory_utilization;
  question.prefix_cache_allowance = config.prefix_cache_allowance;
  question.bytes_per_block = std::max<size_t>(block_bytes, 1);
  question.memory_total = device.info().memory_total;
  question.memory_available = device.memory_available();
  question.memory_reserved = step_memory(p.config, vocab, workspace);
  question.memory_pictures = pictures.total_bytes;
  TERN_ASSIGN_OR_RETURN(p.blocks, count_blocks(question));
  TERN_ASSIGN_OR_RETURN(p.cache, allocate_cache(specs, p.blocks.total, device));
  p.pool = std::make_unique<cache::BlockPool>(p.blocks.total + 1);
  p.index = std::make_unique<cache::PrefixIndex>(*p.pool, random_hash_key());
  p.scheduler = sched::make_scheduler(s, *p.pool, *p.index);

  if (tower != nullptr) {
    TERN_ASSIGN_OR_RETURN(p.vision, VisionStage::create(pictures, *tower, device));
    p.encoder = std::make_unique<cache::EncoderCache>(pictures.cache_rows);
  }

  const sample::SamplerLimits sampling = sampler_limits(p.config, p.sampled_vocab, masks != nullptr);
  TERN_ASSIGN_OR_RETURN(sample::Sampler sampler, sample::Sampler::create(sampling, device));
  p.sampler = std::make_unique<sample::Sampler>(std::move(sampler));
  for (auto& slot : p.steps) {
    TERN_ASSIGN_OR_RETURN(Step step,
                          Step::create(limits, sampling, p.vision ? p.vision->pictures() : TensorView{}, device));
    slot = std::make_unique<Step>(std::move(step));
  }
  Rank::Parts rank;
  rank.model = &model, rank.device = &device;
  TERN_ASSIGN_OR_RETURN(rank.workspace, device.allocate(std::max<size_t>(workspace, 1)));
  const int64_t logit_rows = s.max_logit_rows;
  TERN_ASSIGN_OR_RETURN(p.logits, device.allocate(static_cast<size_t>(logit_rows * vocab) * sizeof(float)));
  rank.logits = tensor2(p.logits.data(), DType::kF32, logit_rows, vocab);
  return std::unique_ptr<Engine>(std::make_unique<EngineImpl>(std::move(p), std::move(rank)));
}

}  // namespace tern::engine
