#include "app/flags/environment.h"

// Variables that have no effect, and those that are refused (fastdeploy.md 1.12, and what FastDeploy's sources have
// besides).
namespace tern::app {
namespace {
using enum VariableGroup;

constexpr VariableSpec harmless(std::string_view name, VariableGroup group, std::string_view fallback,
                                std::string_view meaning, std::string_view reason) {
  return {.name = name,
          .group = group,
          .fallback = fallback,
          .support = Support::kHarmless,
          .meaning = meaning,
          .reason = reason};
}
// A switch that is off by default and promises something when it is on.
constexpr VariableSpec inert_switch(std::string_view name, VariableGroup group, std::string_view meaning,
                                    std::string_view reason) {
  return {.name = name,
          .group = group,
          .type = ValueType::kBool,
          .fallback = "0",
          .support = Support::kInert,
          .meaning = meaning,
          .reason = reason};
}
constexpr VariableSpec refused(std::string_view name, std::string_view meaning, std::string_view reason) {
  return {.name = name, .group = kClusters, .support = Support::kRefused, .meaning = meaning, .reason = reason};
}

constexpr std::string_view kNoReport = "Tern reports no usage to anybody";
constexpr std::string_view kNoKernel = "concerns kernels that Tern does not have";
constexpr std::string_view kNoFeatures = "vision features are computed here";
constexpr std::string_view kOneProcess = "concerns the queues between FastDeploy's processes";
constexpr std::string_view kNoSplit = "this build runs prefill and decode in one place";
constexpr std::string_view kNoExperts = "experts have the tokens of all ranks; there is no exchange to tune";
constexpr std::string_view kNoStorage = "this build keeps blocks in the memory of the device only";
constexpr std::string_view kAlwaysSo = "parts of contexts are always the same";
constexpr std::string_view kOneToken = "this build decodes one token at a time";
constexpr std::string_view kKnown = "the engine is in this process and its state is known";
constexpr std::string_view kUpdated = "weights can be updated without it";
constexpr std::string_view kOtherDevice = "concerns devices that Tern does not compute on";

constexpr VariableSpec kVariables[] = {
    harmless("DO_NOT_TRACK", kLogging, "0", "No usage reports.", kNoReport),
    harmless("FD_USAGE_STATS_SERVER", kLogging, "", "Usage reports.", kNoReport),
    harmless("FD_USAGE_SOURCE", kLogging, "", "Usage reports.", kNoReport),
    harmless("FD_CONFIG_ROOT", kLogging, "", "Usage reports.", kNoReport),
    harmless("FD_ENABLE_OBJGRAPH_DEBUG", kLogging, "", "Counts Python's objects.",
             "no Python code runs in this server"),

    harmless("FD_FOR_TORCH_MODEL_FORMAT", kSource, "0", "Forces the torch layout.",
             "the layout is told from the tensors"),
    harmless("FD_ENABLE_MODEL_CACHE", kSource, "0", "Keeps quantized weights on disk.",
             "FD_ENABLE_MODEL_LOAD_CACHE is what does so"),
    harmless("FD_USE_FASTSAFETENSOR", kSource, "0", "Another reader of safetensors.", "there is one implementation"),
    harmless("FD_CPU_USE_BF16", kSource, "False", "Precision on a CPU.", "--dtype sets it"),
    {.name = "FD_PLUGINS",
     .group = kSource,
     .support = Support::kInert,
     .meaning = "Plug-ins to load.",
     .reason = "no Python code runs in this server"},

    harmless("FD_WORKER_ALIVE_TIMEOUT", kRequests, "30", "Age of a worker's heartbeat.", kKnown),
    harmless("FD_TOKEN_PROCESSOR_HEALTH_TIMEOUT", kRequests, "120", "Age of the last token.", kKnown),

    harmless("ENABLE_V1_KVCACHE_MANAGER", kScheduling, "0", "Which manager of blocks.", "there is one implementation"),
    harmless("FD_ENABLE_MAX_PREFILL", kScheduling, "0", "Several prompts with pictures in a step.",
             "pictures of several requests share a step always"),
    harmless("FD_ENABLE_CACHE_TASK", kScheduling, "0", "Cache of tasks.", kOneProcess),
    harmless("FD_ENABLE_SWAP_SPACE_CLEARING", kScheduling, "0", "Clears swapped blocks.", kNoStorage),
    harmless("FD_CACHE_PROC_EXIT_TIMEOUT", kScheduling, "600", "End of the cache process.", kOneProcess),
    harmless("FD_CACHE_PROC_ERROR_COUNT", kScheduling, "10", "Errors of the cache process.", kOneProcess),
    harmless("FILE_BACKEND_STORAGE_DIR", kScheduling, "/tmp/fastdeploy", "Folder of the storage tier.", kNoStorage),
    inert_switch("FD_DISABLED_RECOVER", kScheduling, "Legacy scheduler: drops requests when blocks run out.",
                 "such requests are always recomputed"),
    harmless("FD_ENABLE_ASYNC_LLM", kScheduling, "0", "Engine in the server's process.", "it always is"),

    {.name = "FD_SAMPLING_CLASS",
     .group = kKernels,
     .type = ValueType::kEnum,
     .fallback = "base",
     .choices = "base|base_non_truncated|air|rejection",
     .support = Support::kHarmless,
     .meaning = "Which kernel samples.",
     .reason = "every value samples the same truncated distribution"},
    {.name = "FD_ATTENTION_BACKEND",
     .group = kKernels,
     .fallback = "APPEND_ATTN",
     .support = Support::kHarmless,
     .meaning = "Attention kernel.",
     .reason = "attention is exact in this build, and has one kernel for each device",
     .refused = "PLAS_ATTENTION|MOBA_ATTENTION"},
    harmless("FLAGS_flash_attn_version", kKernels, "2", "Flash attention.", kNoKernel),
    harmless("FLAGS_max_partition_size", kKernels, "1024", "Parts of long contexts.", kNoKernel),
    harmless("FLAGS_weight_only_linear_arch", kKernels, "", "Quantized products.", kNoKernel),
    harmless("FD_MOE_BACKEND", kKernels, "cutlass", "Expert kernel.", kNoKernel),
    harmless("FD_MOE_MXFP4_BACKEND", kKernels, "flashinfer", "Expert kernel.", kNoKernel),
    harmless("FD_MOE_PROB_IN_ADVANCE", kKernels, "0", "Expert kernel.", kNoKernel),
    harmless("FD_NVFP4_GEMM_BACKEND", kKernels, "", "Quantized products.", kNoKernel),
    harmless("FD_NVFP4_MOE_BACKEND", kKernels, "", "Quantized products.", kNoKernel),
    harmless("FD_NVFP4_LOAD_BLOCKSCALE_LEAVE", kKernels, "0", "Layout of scales.", kNoKernel),
    harmless("FD_USE_MACHETE", kKernels, "1", "Quantized products.", kNoKernel),
    harmless("FD_USE_DEEP_GEMM", kKernels, "0", "float8 products.", kNoKernel),
    harmless("FD_USE_BLACKWELL_GEMM", kKernels, "0", "float8 products.", kNoKernel),
    harmless("FD_CUSTOM_AR_MAX_SIZE_MB", kKernels, "8", "Own all-reduce.",
             "ranks add up in shared memory, GPUs in each other's, whatever the size"),
    harmless("FD_FILL_BITMASK_BATCH", kKernels, "4", "Threads of grammar masks.",
             "they follow from the number of cores"),
    harmless("FD_LLGUIDANCE_LOG_LEVEL", kKernels, "0", "Log of the grammar library.",
             "what cannot be enforced is said in the request's error"),
    harmless("FD_DETERMINISTIC_SPLIT_KV_SIZE", kKernels, "16", "Parts of long contexts.", kAlwaysSo),
    harmless("FD_DETERMINISTIC_LOG_MODE", kKernels, "0", "Log of that mode.", kAlwaysSo),
    harmless("USE_TBO", kKernels, "0", "Kernel experiment.", kNoKernel),
    harmless("USE_FLASH_MLA", kKernels, "0", "Kernel experiment.", kNoKernel),
    harmless("DIVIDED_STREAM", kKernels, "0", "Kernel experiment.", kNoKernel),
    harmless("FD_USE_PHI_*", kKernels, "0", "Kernel experiments.", kNoKernel),
    harmless("FD_SiluAndMul_USE_PHI_SWIGLU", kKernels, "0", "Kernel experiment.", kNoKernel),
    harmless("FD_TRITON_KERNEL_CACHE_DIR", kKernels, "", "Folder of compiled kernels.", kNoKernel),
    harmless("SPECULATE_VERIFY_USE_TOPK", kKernels, "0", "Detail of --speculative-config.", kOneToken),
    harmless("SPECULATE_VERIFY_USE_TARGET_SAMPLING", kKernels, "0", "Detail of --speculative-config.", kOneToken),
    harmless("FD_HPU_*", kKernels, "", "Intel Gaudi.", kOtherDevice),
    harmless("FD_XPU_*", kKernels, "", "Kunlun XPU.", kOtherDevice),
    harmless("FD_GCU_*", kKernels, "", "Enflame GCU.", kOtherDevice),
    harmless("FD_METAX_*", kKernels, "", "MetaX.", kOtherDevice),
    harmless("FD_ILUVATAR_*", kKernels, "", "Iluvatar.", kOtherDevice),
    harmless("FD_MOE_QUANT_MULTI_PROCESS_GROUP_SIZE", kKernels, "8", "Enflame GCU.", kOtherDevice),
    harmless("FD_BUILDING_ARCS", kKernels, "[]", "GPUs that FastDeploy is built for.", "Tern is built already"),

    inert_switch("FD_PD_CHANGEABLE", kClusters, "Role switching.", kNoSplit),
    inert_switch("FLAGS_use_pd_disaggregation", kClusters, "Disaggregation.", kNoSplit),
    inert_switch("FLAGS_use_pd_disaggregation_per_chunk", kClusters, "Disaggregation.", kNoSplit),
    harmless("KVCACHE_RDMA_NICS", kClusters, "", "Network cards.", kNoSplit),
    harmless("PREFILL_CONTINUOUS_REQUEST_DECODE_RESOURCES", kClusters, "1", "Asking for blocks again.", kNoSplit),
    harmless("FD_PREFILL_WAIT_DECODE_RESOURCE_SECONDS", kClusters, "30", "Waiting for blocks.", kNoSplit),
    harmless("PREFILL_NODE_ONE_STEP_STOP", kClusters, "0", "When a prefill server stops.", kNoSplit),
    harmless("FD_ENABLE_PD_RDMA_EAGER_CONNECT", kClusters, "0", "Detail of --splitwise-role.", kNoSplit),
    harmless("FD_PD_REORDER", kClusters, "0", "Detail of --splitwise-role.", kNoSplit),
    harmless("FD_OFFLINE_PERF_TEST_FOR_PD", kClusters, "0", "Detail of --splitwise-role.", kNoSplit),
    harmless("FD_EP_MAX_PREFETCH_TASK_NUM", kClusters, "8", "Detail of --enable-expert-parallel.", kNoExperts),
    harmless("FD_EP_BATCHED_TOKEN_TIMEOUT", kClusters, "0.1", "Detail of --enable-expert-parallel.", kNoExperts),
    harmless("FD_USE_PFCC_DEEP_EP", kClusters, "0", "Exchange of experts' tokens.", kNoExperts),
    {.name = "FD_ENABLE_INTERNAL_ADAPTER",
     .group = kClusters,
     .type = ValueType::kBool,
     .fallback = "0",
     .support = Support::kHarmless,
     .meaning = "Requests over ZMQ instead of HTTP.",
     .reason = "this build speaks HTTP only",
     .refused = "true"},
    harmless("FD_ZMQ_RECV_REQUEST_SERVER_PORT*", kClusters, "", "ZMQ ports.", kOneProcess),
    harmless("FD_ZMQ_SEND_RESPONSE_SERVER_PORT*", kClusters, "", "ZMQ ports.", kOneProcess),
    harmless("FD_ZMQ_CONTROL_CMD_SERVER_PORTS", kClusters, "8202", "ZMQ ports.", kOneProcess),
    harmless("FD_ENABLE_RETURN_TEXT", kClusters, "0", "Text over ZMQ.", kOneProcess),
    harmless("MOONCAKE_*", kClusters, "", "Storage tier.", kNoStorage),
    harmless("FD_ENABLE_V1_UPDATE_WEIGHTS", kClusters, "0", "Weight updates.", kUpdated),
    inert_switch("FD_ENABLE_RL", kClusters, "Rope and expert gates in the precision of training.",
                 "this build computes them in one precision"),
    harmless("ENCODE_FEATURE_BOS_AK", kClusters, "", "Prepared vision features.", kNoFeatures),
    harmless("ENCODE_FEATURE_BOS_SK", kClusters, "", "Prepared vision features.", kNoFeatures),
    harmless("ENCODE_FEATURE_ENDPOINT", kClusters, "", "Prepared vision features.", kNoFeatures),
    harmless("FD_ZMQ_SNDHWM", kClusters, "0", "Transport.", kOneProcess),
    harmless("FD_DEALER_CONNECTIONS", kClusters, "50", "Transport.", kOneProcess),
    harmless("FD_ENGINE_TASK_QUEUE_WITH_SHM", kClusters, "0", "Transport.", kOneProcess),
    harmless("FD_USE_AGGREGATE_SEND", kClusters, "0", "Transport.", kOneProcess),
    harmless("FMQ_CONFIG_JSON", kClusters, "", "Transport.", kOneProcess),
    harmless("ZMQ_SEND_BATCH_DATA", kClusters, "1", "Transport.", kOneProcess),
    harmless("FD_ENABLE_E2W_TENSOR_CONVERT", kClusters, "0", "Transport.", kOneProcess),
    refused("COMPRESSION_RATIO", "Scales positions.", "--model-override {\"rope_scaling\": ...} does it"),
    refused("ROPE_THETA", "Base of the rope.", "--model-override {\"rope_theta\": ...} does it"),
    harmless("FD_JOB_ID", kClusters, "", "Name of a job.", "nothing of this server is named by a job"),
    harmless("FD_TP_GROUP_GID_OFFSET", kClusters, "1000", "Communicators.", kOneProcess),
    harmless("INFERENCE_MSG_QUEUE_ID", kClusters, "0", "System V queue.", kOneProcess),
    harmless("UNCACHE_WORKER_STDOUT", kClusters, "0", "Output of workers.", kOneProcess),
    {.name = "FD_CACHE_PARAMS",
     .group = kClusters,
     .fallback = "none",
     .support = Support::kInert,
     .meaning = "Folder of the scales of a quantized cache.",
     .reason = "this build keeps the cache in the precision of --dtype",
     .neutral = "0"},
};
}  // namespace

std::span<const VariableSpec> idle_variables() { return kVariables; }
}  // namespace tern::app
