#include "app/environment.h"

// Variables that are accepted without effect (fastdeploy.md 1.12).
namespace tern::app {
namespace {
using enum VariableGroup;

constexpr VariableSpec inert(std::string_view name, VariableGroup group, std::string_view fallback,
                             std::string_view meaning, std::string_view reason) {
  return {.name = name,
          .group = group,
          .fallback = fallback,
          .support = Support::kInert,
          .meaning = meaning,
          .reason = reason};
}
constexpr std::string_view kNoTrace = "this build writes no traces";
constexpr std::string_view kNoDownload = "nothing is downloaded";
constexpr std::string_view kNoGpu = "concerns kernels that Tern does not have";
constexpr std::string_view kNoFeatures = "vision features are computed here";
constexpr std::string_view kOneProcess = "concerns the queues between FastDeploy's processes";
constexpr std::string_view kNoGrammar = "this build has no grammars";
constexpr std::string_view kNoSplit = "this build runs prefill and decode in one place";
constexpr std::string_view kNoStorage = "this build keeps blocks in memory only";
constexpr std::string_view kAlwaysSo = "parts of contexts are always the same";

constexpr VariableSpec kVariables[] = {
    inert("FD_SERVICE_NAME", kLogging, "FastDeploy", "Name in traces.", kNoTrace),
    inert("FD_HOST_NAME", kLogging, "localhost", "Host in traces.", kNoTrace),
    inert("TRACES_EXPORTER", kLogging, "console", "Where traces go.", kNoTrace),
    inert("EXPORTER_OTLP_ENDPOINT", kLogging, "", "Where traces go.", kNoTrace),
    inert("EXPORTER_OTLP_HEADERS", kLogging, "", "Headers of trace exports.", kNoTrace),
    inert("FD_OTLP_EXPORTER_SCHEDULE_DELAY_MILLIS", kLogging, "500", "Delay of trace exports.", kNoTrace),
    inert("FD_OTLP_EXPORTER_MAX_EXPORT_BATCH_SIZE", kLogging, "64", "Size of trace exports.", kNoTrace),

    inert("AISTUDIO_ENDPOINT", kSource, "", "Address of the hub.", kNoDownload),
    inert("DOWNLOAD_SOURCE", kSource, "", "Another hub.", kNoDownload),
    inert("FD_USE_HF_TOKENIZER", kSource, "0", "Which tokenizer library.", "there is one implementation"),
    inert("FD_FOR_TORCH_MODEL_FORMAT", kSource, "0", "Forces the torch layout.", "the layout is told from the tensors"),
    inert("FD_ENABLE_MODEL_LOAD_CACHE", kSource, "0", "Keeps quantized weights on disk.", "weights are not quantized"),
    inert("FD_ENABLE_MODEL_CACHE", kSource, "0", "Keeps quantized weights on disk.", "weights are not quantized"),
    inert("FD_PLUGINS", kSource, "", "Plug-ins to load.", "no Python code runs in this server"),

    inert("FD_ENABLE_MAX_PREFILL", kScheduling, "0", "Several prompts with pictures in a step.",
          "pictures of several requests share a step always"),
    inert("FD_ENABLE_CACHE_TASK", kScheduling, "0", "Cache of tasks.", kOneProcess),
    inert("FD_ENABLE_SWAP_SPACE_CLEARING", kScheduling, "0", "Clears swapped blocks.", kNoStorage),
    inert("FD_CACHE_PROC_EXIT_TIMEOUT", kScheduling, "600", "End of the cache process.", kOneProcess),
    inert("FD_CACHE_PROC_ERROR_COUNT", kScheduling, "10", "Errors of the cache process.", kOneProcess),
    inert("FILE_BACKEND_STORAGE_DIR", kScheduling, "/tmp/fastdeploy", "Folder of the storage tier.", kNoStorage),
    inert("FD_DISABLED_RECOVER", kScheduling, "0", "Legacy scheduler: drops requests when blocks run out.",
          "requests are always recomputed"),
    inert("FD_ENABLE_ASYNC_LLM", kScheduling, "0", "Engine in the server's process.", "it always is"),

    inert("FD_ATTENTION_BACKEND", kKernels, "APPEND_ATTN", "Attention kernel.", kNoGpu),
    inert("FLAGS_flash_attn_version", kKernels, "2", "Flash attention.", kNoGpu),
    inert("FLAGS_max_partition_size", kKernels, "1024", "Parts of long contexts.", kNoGpu),
    inert("FLAGS_weight_only_linear_arch", kKernels, "", "Quantized products.", kNoGpu),
    inert("FD_MOE_BACKEND", kKernels, "cutlass", "Expert kernel.", kNoGpu),
    inert("FD_MOE_MXFP4_BACKEND", kKernels, "flashinfer", "Expert kernel.", kNoGpu),
    inert("FD_NVFP4_GEMM_BACKEND", kKernels, "", "Quantized products.", kNoGpu),
    inert("FD_USE_MACHETE", kKernels, "1", "Quantized products.", kNoGpu),
    inert("FD_USE_DEEP_GEMM", kKernels, "0", "float8 products.", kNoGpu),
    inert("FD_USE_BLACKWELL_GEMM", kKernels, "0", "float8 products.", kNoGpu),
    inert("FD_FP8_QUANT_WITH_POW2SCALE", kKernels, "0", "float8 scales.", kNoGpu),
    inert("FD_CUSTOM_AR_MAX_SIZE_MB", kKernels, "8", "Own all-reduce.", kNoGpu),
    inert("FD_FILL_BITMASK_BATCH", kKernels, "4", "Threads of grammar masks.", kNoGrammar),
    inert("FD_GUIDANCE_DISABLE_ADDITIONAL", kKernels, "1", "Default of additionalProperties.", kNoGrammar),
    inert("FD_LLGUIDANCE_LOG_LEVEL", kKernels, "0", "Log of the grammar library.", kNoGrammar),
    inert("FD_DETERMINISTIC_SPLIT_KV_SIZE", kKernels, "16", "Parts of long contexts.", kAlwaysSo),
    inert("FD_DETERMINISTIC_LOG_MODE", kKernels, "0", "Log of that mode.", kAlwaysSo),
    inert("USE_TBO", kKernels, "0", "Kernel experiment.", kNoGpu),
    inert("USE_FLASH_MLA", kKernels, "0", "Kernel experiment.", kNoGpu),
    inert("DIVIDED_STREAM", kKernels, "0", "Kernel experiment.", kNoGpu),
    inert("FD_USE_PHI_*", kKernels, "0", "Kernel experiments.", kNoGpu),
    inert("SPECULATE_VERIFY_USE_TOPK", kKernels, "0", "Speculation.", "this build decodes one token at a time"),
    inert("SPECULATE_VERIFY_USE_TARGET_SAMPLING", kKernels, "0", "Speculation.",
          "this build decodes one token at a time"),

    inert("KVCACHE_RDMA_NICS", kClusters, "", "Network cards.", kNoSplit),
    inert("FD_PD_CHANGEABLE", kClusters, "0", "Role switching.", kNoSplit),
    inert("PREFILL_CONTINUOUS_REQUEST_DECODE_RESOURCES", kClusters, "1", "Asking for blocks again.", kNoSplit),
    inert("FD_PREFILL_WAIT_DECODE_RESOURCE_SECONDS", kClusters, "30", "Waiting for blocks.", kNoSplit),
    inert("FLAGS_use_pd_disaggregation", kClusters, "0", "Disaggregation.", kNoSplit),
    inert("FLAGS_use_pd_disaggregation_per_chunk", kClusters, "0", "Disaggregation.", kNoSplit),
    inert("FD_ENABLE_PD_RDMA_EAGER_CONNECT", kClusters, "0", "Disaggregation.", kNoSplit),
    inert("FD_PD_REORDER", kClusters, "0", "Disaggregation.", kNoSplit),
    inert("FD_EP_MAX_PREFETCH_TASK_NUM", kClusters, "8", "Expert parallel.", "experts are not spread over ranks"),
    inert("FD_ENABLE_MULTI_API_SERVER", kClusters, "0", "One API server per copy.", kOneProcess),
    {.name = "FD_ENABLE_INTERNAL_ADAPTER",
     .group = kClusters,
     .type = ValueType::kBool,
     .fallback = "0",
     .meaning = "Requests over ZMQ instead of HTTP; only 0 is accepted, because this build speaks HTTP only."},
    inert("FD_ZMQ_RECV_REQUEST_SERVER_PORT*", kClusters, "", "ZMQ ports.", kOneProcess),
    inert("FD_ZMQ_SEND_RESPONSE_SERVER_PORT*", kClusters, "", "ZMQ ports.", kOneProcess),
    inert("FD_ZMQ_CONTROL_CMD_SERVER_PORTS", kClusters, "8202", "ZMQ ports.", kOneProcess),
    inert("FD_ENABLE_RETURN_TEXT", kClusters, "0", "Text over ZMQ.", kOneProcess),
    inert("MOONCAKE_*", kClusters, "", "Storage tier.", kNoStorage),
    inert("FD_ENABLE_V1_UPDATE_WEIGHTS", kClusters, "0", "Weight updates.", "weights cannot be replaced"),
    inert("FD_ENABLE_RL", kClusters, "0", "Training.", "weights cannot be replaced"),
    inert("ENCODE_FEATURE_BOS_AK", kClusters, "", "Prepared vision features.", kNoFeatures),
    inert("ENCODE_FEATURE_BOS_SK", kClusters, "", "Prepared vision features.", kNoFeatures),
    inert("ENCODE_FEATURE_ENDPOINT", kClusters, "", "Prepared vision features.", kNoFeatures),
    inert("FD_ZMQ_SNDHWM", kClusters, "0", "Transport.", kOneProcess),
    inert("FD_DEALER_CONNECTIONS", kClusters, "50", "Transport.", kOneProcess),
    inert("FD_ENGINE_TASK_QUEUE_WITH_SHM", kClusters, "0", "Transport.", kOneProcess),
    inert("ZMQ_SEND_BATCH_DATA", kClusters, "1", "Transport.", kOneProcess),
    inert("FD_ENABLE_E2W_TENSOR_CONVERT", kClusters, "0", "Transport.", kOneProcess),
    {.name = "COMPRESSION_RATIO",
     .group = kClusters,
     .support = Support::kRefused,
     .meaning = "Scales positions.",
     .reason = "--model-override {\"rope_scaling\": ...} does it"},
    {.name = "ROPE_THETA",
     .group = kClusters,
     .support = Support::kRefused,
     .meaning = "Base of the rope.",
     .reason = "--model-override {\"rope_theta\": ...} does it"},
    inert("FD_JOB_ID", kClusters, "", "Name of a job.", kOneProcess),
    inert("FD_TP_GROUP_GID_OFFSET", kClusters, "1000", "Communicators.", kOneProcess),
    inert("INFERENCE_MSG_QUEUE_ID", kClusters, "0", "System V queue.", kOneProcess),
    inert("UNCACHE_WORKER_STDOUT", kClusters, "", "Output of workers.", kOneProcess),
    inert("FD_CACHE_PARAMS", kClusters, "0", "Cache of parameters.", "weights are mapped from files"),
};
}  // namespace

std::span<const VariableSpec> inert_variables() { return kVariables; }
}  // namespace tern::app
