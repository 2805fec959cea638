#include "app/flags.h"

// Spec fastdeploy.md 1.4 to 1.7.
namespace tern::app {
namespace {
using enum ValueType;
using enum FlagGroup;
constexpr std::string_view kOneRank = "this build runs one rank; the answers are the same";
constexpr std::string_view kNoExperts = "experts are not spread over ranks in this build";
constexpr std::string_view kNoGpu = "concerns GPUs only";

constexpr FlagSpec kFlags[] = {
    {.name = "tensor-parallel-size", .group = kCapacity, .type = kInt, .fallback = "1", .min = 1, .max = 1024,
     .support = Support::kInert, .meaning = "Ranks that share each layer.", .reason = kOneRank, .aliases = "tp"},
    {.name = "data-parallel-size", .group = kCapacity, .type = kInt, .fallback = "1", .min = 1, .max = 1024,
     .support = Support::kInert, .meaning = "Copies of the model.", .reason = kOneRank, .aliases = "dp"},
    {.name = "local-data-parallel-id", .group = kCapacity, .type = kInt, .fallback = "0", .min = 0, .max = 1024,
     .support = Support::kInert, .meaning = "Which copy this process serves.", .reason = kOneRank},
    {.name = "enable-expert-parallel", .group = kCapacity, .type = kBool, .fallback = "false",
     .support = Support::kInert, .meaning = "Spreads experts over ranks.", .reason = kNoExperts, .aliases = "ep"},
    {.name = "enable-eplb", .group = kCapacity, .type = kBool, .fallback = "false", .support = Support::kInert,
     .meaning = "Balances experts over ranks.", .reason = kNoExperts},
    {.name = "eplb-config", .group = kCapacity, .type = kJson, .support = Support::kInert,
     .meaning = "Settings of the expert balance.", .reason = kNoExperts},
    {.name = "max-num-seqs", .group = kCapacity, .type = kInt, .fallback = "8",
     .meaning = "Sequences that decode together, 1 to 256."},
    {.name = "num-gpu-blocks-override", .group = kCapacity, .type = kInt, .derived = "by memory", .min = 1,
     .max = 1 << 30, .meaning = "Number of cache blocks, instead of what memory allows."},
    {.name = "max-num-batched-tokens", .group = kCapacity, .type = kInt,
     .derived = "8192; legacy scheduler: 2048, or max-model-len without chunked prefill; clamped to what is valid",
     .min = 1, .max = 1 << 30, .meaning = "Tokens of one step."},
    {.name = "gpu-memory-utilization", .group = kCapacity, .type = kFloat, .fallback = "0.9", .min = 0.01, .max = 1,
     .meaning = "Share of the memory to use; on a CPU, of the memory available at the start."},
    {.name = "disable-custom-all-reduce", .group = kCapacity, .type = kBool, .fallback = "false",
     .support = Support::kInert, .meaning = "No own all-reduce.", .reason = kNoGpu},
    {.name = "enable-custom-all-reduce", .group = kCapacity, .type = kBool, .fallback = "true",
     .support = Support::kInert, .meaning = "Old opt-in for the own all-reduce.", .reason = kNoGpu},
    {.name = "enable-flashinfer-allreduce-fusion", .group = kCapacity, .type = kBool, .fallback = "false",
     .support = Support::kInert, .meaning = "Fused all-reduce.", .reason = kNoGpu},
    {.name = "use-internode-ll-two-stage", .group = kCapacity, .type = kBool, .fallback = "false",
     .support = Support::kInert, .meaning = "Two-stage exchange between nodes.", .reason = kNoExperts},
    {.name = "disable-sequence-parallel-moe", .group = kCapacity, .type = kBool, .fallback = "false",
     .support = Support::kInert, .meaning = "No sequence parallel experts.", .reason = kNoExperts},
    {.name = "shutdown-comm-group-if-worker-idle", .group = kCapacity, .type = kBool, .derived = "true",
     .support = Support::kInert, .meaning = "Ends communicators of idle workers.", .reason = kOneRank},
    {.name = "enable-chunked-moe", .group = kCapacity, .type = kBool, .fallback = "false", .support = Support::kInert,
     .meaning = "Splits expert batches to bound memory.", .reason = "expert batches are bounded already"},
    {.name = "chunked-moe-size", .group = kCapacity, .type = kInt, .fallback = "256", .min = 1, .max = 1 << 30,
     .support = Support::kInert, .meaning = "Tokens of such a part.", .reason = "expert batches are bounded already"},
    {.name = "ep-prefill-use-worst-num-tokens", .group = kCapacity, .type = kBool, .fallback = "false",
     .support = Support::kInert, .meaning = "Sizes expert buffers for the worst case.", .reason = kNoExperts},
    {.name = "ips", .group = kCapacity, .type = kList, .support = Support::kRefused,
     .meaning = "Nodes that share a model.", .reason = "this build runs on one node"},

    {.name = "load-choices", .group = kLoading, .type = kEnum, .fallback = "default_v1",
     .choices = "default|default_v1|dummy",
     .meaning = "default, default_v1: from files; dummy: seeded random weights from config.json alone."},

    {.name = "kv-cache-ratio", .group = kCache, .type = kFloat, .fallback = "0.75", .min = 0.01, .max = 1,
     .meaning = "Legacy scheduler: share of the blocks for prompts."},
    {.name = "static-decode-blocks", .group = kCache, .type = kInt, .derived = "FD_ENC_DEC_BLOCK_NUM (2)", .min = 1,
     .max = 1 << 20, .meaning = "Legacy scheduler: blocks kept for the output of each request."},
    {.name = "prealloc-dec-block-slot-num-threshold", .group = kCache, .type = kInt, .fallback = "12", .min = 0,
     .max = 1 << 20, .meaning = "A decoding sequence gets more blocks when no more than this many places are left."},
    {.name = "swap-space", .group = kCache, .type = kFloat, .min = 0, .support = Support::kInert,
     .meaning = "GiB of host memory for blocks.", .reason = "on a CPU the cache lies in host memory already"},
    {.name = "cache-queue-port", .group = kCache, .type = kIntList, .derived = "none", .support = Support::kInert,
     .meaning = "Port of the cache process.", .reason = "there is no cache process"},
    {.name = "kvcache-storage-backend", .group = kCache, .type = kEnum, .choices = "mooncake|attention_store|file",
     .support = Support::kInert, .meaning = "Storage tier of the cache.", .reason = "this build keeps blocks in memory only"},
    {.name = "write-policy", .group = kCache, .type = kEnum, .fallback = "write_through",
     .choices = "write_through|write_back|write_through_selective", .support = Support::kInert,
     .meaning = "When blocks go to the storage tier.", .reason = "this build keeps blocks in memory only"},

    {.name = "enable-prefix-caching", .group = kPerformance, .type = kBool, .fallback = "true",
     .meaning = "Reuses the cache of equal beginnings of prompts."},
    {.name = "enable-output-caching", .group = kPerformance, .type = kBool, .fallback = "true",
     .meaning = "Generated tokens enter the prefix cache too."},
    {.name = "enable-chunked-prefill", .group = kPerformance, .type = kBool,
     .derived = "true, unless FD_DISABLE_CHUNKED_PREFILL=1", .meaning = "Long prompts run in parts beside decoding."},
    {.name = "max-num-partial-prefills", .group = kPerformance, .type = kInt, .fallback = "1", .min = 1, .max = 1 << 20,
     .meaning = "Legacy scheduler: chunked prompts at a time."},
    {.name = "max-long-partial-prefills", .group = kPerformance, .type = kInt, .fallback = "1", .min = 1, .max = 1 << 20,
     .meaning = "Legacy scheduler: long ones among them."},
    {.name = "long-prefill-token-threshold", .group = kPerformance, .type = kInt, .fallback = "0",
     .derived = "0: max-model-len * 0.04", .min = 0, .max = 1 << 30, .meaning = "Legacy scheduler: a longer prompt is long."},
    {.name = "disable-chunked-mm-input", .group = kPerformance, .type = kBool, .fallback = "false",
     .support = Support::kInert, .meaning = "Never splits a picture.", .reason = "this build reads text only"},
    {.name = "enable-overlap-schedule", .group = kPerformance, .type = kBool, .derived = "always on",
     .support = Support::kInert, .meaning = "Plans the next step while one runs.", .reason = "steps always overlap"},
};
}  // namespace

std::span<const FlagSpec> capacity_flags() { return kFlags; }
}  // namespace tern::app
