#include "app/environment.h"

// Variables that act, and those of the same groups that do not (spec fastdeploy.md 1.12).
namespace tern::app {
namespace {
using enum ValueType;
using enum VariableGroup;
constexpr std::string_view kNoTrace = "this build writes no traces";
constexpr std::string_view kNoReport = "Tern reports no usage to anybody";

constexpr VariableSpec kVariables[] = {
    {.name = "FD_LOG_DIR", .group = kLogging, .fallback = "log", .meaning = "Folder of the log files."},
    {.name = "FD_LOG_LEVEL", .group = kLogging, .type = kEnum, .fallback = "INFO",
     .choices = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|debug|info|warning|warn|error|critical",
     .meaning = "Least level that is logged."},
    {.name = "FD_DEBUG", .group = kLogging, .type = kBool, .fallback = "0", .meaning = "1: level DEBUG."},
    {.name = "FD_LOG_REQUESTS", .group = kLogging, .type = kBool, .fallback = "1", .meaning = "Logs requests."},
    {.name = "FD_LOG_REQUESTS_LEVEL", .group = kLogging, .type = kInt, .fallback = "0", .min = 0, .max = 3,
     .meaning = "How much of them: 0 little to 3 all."},
    {.name = "FD_LOG_MAX_LEN", .group = kLogging, .type = kInt, .fallback = "2048", .min = 16, .max = 1 << 24,
     .meaning = "Longer values in log lines are cut."},
    {.name = "FD_LOG_BACKUP_COUNT", .group = kLogging, .type = kInt, .fallback = "7", .min = 0, .max = 100000,
     .meaning = "Days of log files kept."},
    {.name = "FD_CONSOLE_SCHEDULER_METRICS", .group = kLogging, .type = kBool, .fallback = "1",
     .meaning = "Prints a line about the scheduler while it works."},
    {.name = "FD_CONSOLE_DECODE_LOG_INTERVAL", .group = kLogging, .type = kFloat, .fallback = "5", .min = 0.1,
     .max = 86400, .meaning = "Seconds between those lines."},
    {.name = "FD_TRACE", .group = kLogging, .fallback = "off", .support = Support::kInert, .meaning = "Traces.",
     .reason = kNoTrace},
    {.name = "DO_NOT_TRACK", .group = kLogging, .fallback = "0", .support = Support::kInert,
     .meaning = "No usage reports.", .reason = kNoReport},

    {.name = "FD_MODEL_SOURCE", .group = kSource, .type = kEnum, .fallback = "AISTUDIO",
     .choices = "AISTUDIO|MODELSCOPE|HUGGINGFACE", .meaning = "How hub names are spelled in folders below FD_MODEL_CACHE."},
    {.name = "FD_MODEL_CACHE", .group = kSource, .meaning = "Folder in which hub names are looked up; default: HOME."},
    {.name = "HOME", .group = kSource, .meaning = "Where hub names are looked up without FD_MODEL_CACHE."},

    {.name = "FD_MAX_STOP_SEQS_NUM", .group = kRequests, .type = kInt, .fallback = "5", .min = 0, .max = 1024,
     .meaning = "Stop strings of one request."},
    {.name = "FD_STOP_SEQS_MAX_LEN", .group = kRequests, .type = kInt, .fallback = "8", .min = 1, .max = 1024,
     .meaning = "Tokens of one stop string."},
    {.name = "FD_API_KEY", .group = kRequests, .type = kList, .meaning = "Bearer keys, separated by commas, when --api-key names none."},
    {.name = "FD_SUPPORT_MAX_CONNECTIONS", .group = kRequests, .type = kInt, .fallback = "1024", .min = 1, .max = 1e6,
     .meaning = "Requests inside the engine at a time."},
    {.name = "FD_ENABLE_REQUEST_DISCONNECT_STOP_INFERENCE", .group = kRequests, .type = kBool, .fallback = "1",
     .meaning = "Ends requests whose client has gone."},
    {.name = "FD_LIMIT_THINKING_CONTENT_TRUNCATE_STR", .group = kRequests, .fallback = "</think>",
     .support = Support::kInert, .meaning = "Text forced at reasoning_max_tokens.",
     .reason = "this build does not limit thoughts"},
    {.name = "FD_WORKER_ALIVE_TIMEOUT", .group = kRequests, .fallback = "30", .support = Support::kInert,
     .meaning = "Age of a worker's heartbeat.", .reason = "the engine is in this process and its state is known"},
    {.name = "FD_TOKEN_PROCESSOR_HEALTH_TIMEOUT", .group = kRequests, .fallback = "120", .support = Support::kInert,
     .meaning = "Age of the last token.", .reason = "the engine is in this process and its state is known"},

    {.name = "ENABLE_V1_KVCACHE_SCHEDULER", .group = kScheduling, .type = kBool, .fallback = "1",
     .meaning = "0: the legacy scheduler."},
    {.name = "FD_ENC_DEC_BLOCK_NUM", .group = kScheduling, .type = kInt, .fallback = "2", .min = 1, .max = 1 << 20,
     .meaning = "Blocks added when a decoding sequence runs out of places."},
    {.name = "FD_DISABLE_CHUNKED_PREFILL", .group = kScheduling, .type = kBool, .fallback = "0",
     .meaning = "1: chunked prefill is off unless its flag is given."},
    {.name = "MAX_PREFILL_NUM", .group = kScheduling, .type = kInt, .fallback = "3", .min = 1, .max = 1 << 20,
     .meaning = "Legacy scheduler: prompts of one step."},
    {.name = "FD_RESERVE_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL", .group = kScheduling, .type = kFloat,
     .fallback = "16", .min = 0, .max = 1 << 20, .meaning = "Blocks kept free per running sequence when a new one starts."},
    {.name = "FD_RESERVE_DECAY_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL", .group = kScheduling,
     .type = kFloat, .fallback = "0.025", .min = 0, .max = 1 << 20, .meaning = "How much less with every step."},
    {.name = "FD_RESERVE_MIN_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL", .group = kScheduling,
     .type = kFloat, .fallback = "0", .min = 0, .max = 1 << 20, .meaning = "And never less than this."},
    {.name = "FD_SAVE_OUTPUT_CACHE_FOR_PREEMPTED_REQUEST", .group = kScheduling, .type = kBool, .fallback = "1",
     .meaning = "Blocks of preempted requests stay in the prefix cache."},

    {.name = "FD_SAMPLING_CLASS", .group = kKernels, .type = kEnum, .fallback = "base",
     .choices = "base|base_non_truncated|air|rejection",
     .meaning = "Every value samples the same truncated distribution."},
    {.name = "FD_USE_GET_SAVE_OUTPUT_V1", .group = kKernels, .type = kBool, .fallback = "0",
     .meaning = "1: --max-logprobs may be above 20 or -1."},

    {.name = "TERN_CPU_ISA", .group = VariableGroup::kTern, .type = kEnum, .choices = "scalar|avx2|avx512|avx512bf16",
     .meaning = "Uses the kernels of one instruction set instead of the best."},

    {.name = "TRACES_ENABLE", .group = kLogging, .fallback = "false", .support = Support::kInert, .meaning = "Traces.",
     .reason = kNoTrace},
    {.name = "FD_USAGE_STATS_SERVER", .group = kLogging, .support = Support::kInert, .meaning = "Usage reports.",
     .reason = kNoReport},
    {.name = "FD_USAGE_SOURCE", .group = kLogging, .support = Support::kInert, .meaning = "Usage reports.",
     .reason = kNoReport},
    {.name = "FD_CONFIG_ROOT", .group = kLogging, .support = Support::kInert, .meaning = "Usage reports.",
     .reason = kNoReport},
};
}  // namespace

std::span<const VariableSpec> common_variables() { return kVariables; }
}  // namespace tern::app
