#include "engine/block_numbers.h"

#include <algorithm>
#include <string>

#include "base/checked.h"
#include "base/log.h"

namespace tern::engine {
namespace {

constexpr int64_t kMostBlocks = 40000;
double gib(size_t bytes) { return static_cast<double>(bytes) / static_cast<double>(size_t{1} << 30); }

// Blocks that all sequences at full length and the prefix cache's allowance can use.
int64_t usable_blocks(const BlockQuestion& q) {
  const sched::SchedulerConfig& s = q.scheduler;
  const int64_t per_sequence = ceil_div<int64_t>(s.max_model_len, s.block_size) + s.enc_dec_block_num;
  const double allowance = s.prefix_caching ? std::max(0.0, q.prefix_cache_allowance) : 0.0;
  return static_cast<int64_t>(static_cast<double>(per_sequence) * s.max_num_seqs * (1.0 + allowance));
}

// fastdeploy.md 6.1: total x utilization, less what everybody uses. Memory of the host is shared with all that runs
// there: of that only the part that is available counts.
double budget_of(const BlockQuestion& q) {
  const auto bytes = [](size_t n) { return static_cast<double>(n); };
  if (!q.measured) return bytes(q.memory_available) * q.utilization - bytes(q.memory_reserved + q.memory_pictures);
  return bytes(q.memory_total) * q.utilization - bytes(q.memory_total - std::min(q.memory_left, q.memory_total));
}

int64_t profile(const BlockQuestion& q) {
  const double budget = budget_of(q);
  const size_t taken = q.memory_available - std::min(q.memory_available, q.memory_left);
  const size_t reserved = q.measured ? taken : q.memory_reserved + q.memory_pictures;
  TERN_LOG(LogChannel::kWorker, LogLevel::kInfo,
           "Before running the profile, the memory usage info is as follows:\nDevice Total memory: {:.3f} GiB\n"
           "Device used memory: {:.3f} GiB\nDevice free memory: {:.3f} GiB",
           gib(q.memory_total), gib(q.memory_total - std::min(q.memory_available, q.memory_total)),
           gib(q.memory_available));
  TERN_LOG(LogChannel::kWorker, LogLevel::kInfo,
           "After running the profile, the memory usage info is as follows:\nStep memory: {:.3f} GiB\n"
           "Available KV Cache meomory: {:.3f} GiB\nProfile time: {:.3f} s",
           gib(reserved), std::max(0.0, budget) / static_cast<double>(size_t{1} << 30), q.profile_seconds);
  if (budget <= 0) return 0;
  const auto fit = static_cast<int64_t>(budget / static_cast<double>(q.bytes_per_block)) - 1;  // the null block
  const int64_t n = std::min({fit, kMostBlocks, usable_blocks(q)});
  TERN_INFO("Doing profile, the total_block_num:{}", n);
  return n;
}

}  // namespace

Expected<BlockNumbers> count_blocks(const BlockQuestion& q) {
  const sched::SchedulerConfig& s = q.scheduler;
  const auto most = static_cast<int64_t>(q.memory_total / std::max<size_t>(q.bytes_per_block, 1));
  if (q.override_blocks > most) {
    return make_error(ErrorCode::kResourceExhausted,
                      fmt::format("--num-gpu-blocks-override {} blocks of {} bytes are more than all the memory there "
                                  "is ({:.3f} GiB: {} blocks)",
                                  q.override_blocks, q.bytes_per_block, gib(q.memory_total), most),
                      "num-gpu-blocks-override");
  }
  const int64_t total = q.override_blocks > 0 ? q.override_blocks : profile(q);
  const int64_t prefill = s.v1 ? total : static_cast<int64_t>(static_cast<double>(total) * s.kv_cache_ratio);
  const int64_t needed = s.max_model_len / s.block_size + s.enc_dec_block_num;
  if (total <= 0 || prefill < needed) {
    std::string more = q.override_blocks > 0 ? "raise --num-gpu-blocks-override"
                                             : "raise --gpu-memory-utilization or lower --max-num-batched-tokens";
    if (q.override_blocks <= 0 && q.memory_pictures > 0) {
      more += fmt::format(
          ", lower --max-encoder-cache or max_pixels of --mm-processor-kwargs (pictures take {:.3f} GiB of memory)",
          gib(q.memory_pictures));
    }
    return make_error(
        ErrorCode::kResourceExhausted,
        fmt::format(
            "current device block num too small: {} blocks of {} bytes ({} of them for prompts), but one sequence "
            "of --max-model-len {} needs {}; reduce --max-model-len, {}, or use a machine with more memory",
            std::max<int64_t>(total, 0), q.bytes_per_block, std::max<int64_t>(prefill, 0), s.max_model_len, needed,
            more),
        "max-model-len");
  }
  BlockNumbers n;
  n.total = static_cast<int>(total);
  n.prefill = static_cast<int>(prefill);
  n.bytes_per_block = q.bytes_per_block;
  TERN_INFO("Reset block num, the total_block_num:{}, prefill_kvcache_block_num:{}", n.total, n.prefill);
  return n;
}

int64_t most_blocks(const BlockQuestion& q) {
  if (q.override_blocks > 0) return q.override_blocks;
  const auto fit = static_cast<int64_t>(q.memory_total / q.bytes_per_block);
  return std::max<int64_t>(1, std::min({fit, kMostBlocks, usable_blocks(q)}));
}

Expected<std::unique_ptr<CacheMemory>> CacheMemory::reserve(const std::vector<KvSpec>& specs, int64_t blocks,
                                                            device::Device& device) {
  auto memory = std::make_unique<CacheMemory>();
  for (const KvSpec& spec : specs) {
    const auto bytes = checked_mul<size_t>(static_cast<size_t>(blocks) + 1, spec.layer_block_bytes());
    if (!bytes) return make_error(ErrorCode::kResourceExhausted, "the cache is larger than the address space");
    model::KvCache::Group group{spec, {}, 0};
    for (int l = 0; l < spec.layers; ++l) {
      TERN_ASSIGN_OR_RETURN(auto range, device.reserve(*bytes));
      group.layers.push_back(range->base());
      memory->ranges_.push_back(std::move(range));
    }
    memory->cache_.groups.push_back(std::move(group));
  }
  return memory;
}

Status CacheMemory::grow(int64_t blocks) {
  size_t range = 0;
  for (model::KvCache::Group& g : cache_.groups) {
    const size_t bytes = static_cast<size_t>(blocks + 1) * g.spec.layer_block_bytes();
    for (size_t l = 0; l < g.layers.size(); ++l) TERN_RETURN_IF_ERROR(ranges_[range++]->grow(bytes));
    g.blocks = blocks + 1;
  }
  return {};
}

Status CacheMemory::give_back() {
  for (const auto& range : ranges_) TERN_RETURN_IF_ERROR(range->shrink(0));
  return {};
}

}  // namespace tern::engine
