#include "app/flags/environment.h"

// Variables of PaddleNLP's server (paddlenlp-server.md 1.1): `fallback` is what the code takes, `script` what
// start_server exports.
namespace tern::app {
namespace {
using enum ValueType;
using enum VariableGroup;

constexpr std::string_view kOneNode = "all ranks are on one node";
constexpr std::string_view kOneProcess = "engine and server are one process";
constexpr std::string_view kUnread = "no answer of PaddleNLP's server depends on it either";
constexpr std::string_view kOneToken = "this build generates one token per step";

constexpr VariableSpec number(std::string_view name, std::string_view fallback, std::string_view script, double min,
                              std::string_view meaning) {
  return {.name = name,
          .group = kPaddleNlp,
          .type = kInt,
          .fallback = fallback,
          .min = min,
          .max = 1 << 30,
          .meaning = meaning,
          .script = script};
}
constexpr VariableSpec port(std::string_view name, std::string_view fallback, std::string_view script,
                            std::string_view meaning) {
  VariableSpec spec = number(name, fallback, script, -1, meaning);
  spec.max = 65535;
  return spec;
}
constexpr VariableSpec text(std::string_view name, std::string_view fallback, std::string_view script,
                            std::string_view meaning) {
  return {.name = name, .group = kPaddleNlp, .fallback = fallback, .meaning = meaning, .script = script};
}
constexpr VariableSpec on_off(std::string_view name, std::string_view meaning) {
  return {.name = name, .group = kPaddleNlp, .type = kBool, .fallback = "0", .meaning = meaning};
}
constexpr VariableSpec idle(Support support, VariableSpec spec, std::string_view reason,
                            std::string_view neutral = {}) {
  spec.support = support;
  spec.reason = reason;
  spec.neutral = neutral;
  return spec;
}
constexpr VariableSpec harmless(std::string_view name, std::string_view script, std::string_view meaning,
                                std::string_view reason) {
  return idle(Support::kHarmless, text(name, "", script, meaning), reason);
}

constexpr VariableSpec legacy(VariableSpec spec) {
  spec.scheduler = "legacy";
  return spec;
}
constexpr VariableSpec real(std::string_view name, std::string_view fallback, std::string_view script,
                            std::string_view meaning) {
  VariableSpec spec = number(name, fallback, script, 0, meaning);
  spec.type = kFloat;
  spec.max = 1e6;
  return spec;
}

constexpr VariableSpec kVariables[] = {
    text("MODEL_DIR", "/opt/output/Serving/models", "/models", "Folder of the model."),
    text("model_name", "", "", "A static model to be fetched into MODEL_DIR before its files are read."),
    text("tag", "", "3.0.0.b4", "Release whose static models are fetched."),
    text("PADDLENLP_STATIC_MODEL_URL", "https://paddlenlp.bj.bcebos.com/models/static", "",
         "Where static models are fetched from; file:// too. Tern's own variable."),
    on_off("MD5_CHECK", "1: files that a fetch finds in place are compared with their sums, too."),
    text("CONFIG_JSON_FILE", "config.json", "config.json", "Name of the model's configuration within MODEL_DIR."),
    text("FD_MODEL_CONFIG_PATH", "", "", "Path of the model's configuration; it must lie in MODEL_DIR."),
    text("DEVICE", "GPU", "", "GPU: the GPU where there is one, else the CPU (--device says which)."),
    number("MP_NUM", "8", "1", 1,
           "Ranks that share the model (--tensor-parallel-size), where it is set. On fewer GPUs or cores one runs."),
    number("MP_NNODE", "1", "1", 1, "Nodes; more than one are refused."),
    text("POD_IPS", "", "", "Addresses of all nodes, separated by commas."),
    text("POD_0_IP", "127.0.0.1", "", "Address of the master, which is one of POD_IPS."),
    text("HOST_IP", "127.0.0.1", "", "Address of this node."),
    port("HEALTH_HTTP_PORT", "", "8110", "Health. Required."),
    port("HTTP_PORT", "", "", "The same; wins when both are set, as do the other old names."),
    port("SERVICE_HTTP_PORT", "-1", "9965", "Requests over HTTP; below 1: none."),
    port("PUSH_MODE_HTTP_PORT", "", "", "The same."),
    port("SERVICE_GRPC_PORT", "", "8811", "Requests over gRPC. Required beside SERVICE_HTTP_PORT; 0: none."),
    port("GRPC_PORT", "", "", "The same."),
    port("METRICS_HTTP_PORT", "", "8722", "Figures for Prometheus; without it: none."),
    port("METRICS_PORT", "", "", "The same."),
    idle(Support::kHarmless, port("INTER_PROC_PORT", "56666", "8813", "Queue between processes."), kOneProcess),
    idle(Support::kHarmless, port("INTER_QUEUE_PORT", "", "", "The same."), kOneProcess),
    idle(Support::kHarmless, port("INFER_QUEUE_PORT", "", "", "The same."), kOneProcess),
    number("PUSH_MODE_HTTP_WORKERS", "1", "4", -(1 << 30), "Threads that move bytes of connections."),
    on_off("DISABLE_STREAMING", "1: every request gets its last message alone, with all tokens."),
    number("MAX_SEQ_LEN", "8192", "8192", 16,
           "Tokens of a prompt, and of prompt and answer where the model says less."),
    number("MAX_DEC_LEN", "1024", "8192", 1, "Tokens of an answer."),
    number("BATCH_SIZE", "50", "20", 1, "Sequences that decode together; at most 256."),
    real("BLOCK_BS", "50", "4", "Size of the cache in prompts of full length."),
    number("BLOCK_SIZE", "64", "", 1, "Tokens of a cache block."),
    legacy(real("BLOCK_RATIO", "0.75", "0.75", "Share of the blocks that prompts may take.")),
    legacy(number("ENC_DEC_BLOCK_NUM", "2", "4", 1, "Blocks kept for the answer of a request that starts.")),
    legacy(number("MAX_PREFILL_BATCH", "1", "4", -(1 << 30), "Prompts of one step.")),
    number("MAX_CACHED_TASK_NUM", "128", "", 1, "Requests that may wait; more are refused."),
    text("DTYPE", "bfloat16", "", "bfloat16 or float32; float16 is computed in bfloat16."),
    idle(Support::kInert, number("USE_CACHE_KV_INT8", "0", "", 0, "KV cache of 8 bits."),
         "exports that need it are refused; kv_cache_quant_type of --quantization has such a cache", "0"),
    idle(Support::kInert, number("USE_CACHE_KV_INT4", "0", "", 0, "KV cache of 4 bits."),
         "this build keeps keys and values as computed", "0"),
    harmless("DISTRIBUTED_CONFIG", "", "Ranks and devices.", kOneNode),
    harmless("SERVER_WAITTING_TIME", "25", "Seconds another node waits for the master.", kOneNode),
    harmless("FIRST_TOKEN_ID", "", "First id of a sequence.", kUnread),
    harmless("BAD_TOKENS", "", "Ids that are never sampled.", kUnread),
    harmless("STOP_THRESHOLD", "0", "A limit of older releases.", kUnread),
    harmless("RETURN_FULL_HIDDEN_STATES", "", "Hidden states for a draft model.", kOneToken),
    on_off("USE_WARMUP", "1: answers requests of full length before the ports open."),
    on_off("USE_HF_TOKENIZER", "1: `text` becomes tokens as it is, without the chat template."),
    harmless("USE_FAST_TOKENIZER", "", "Another tokenizer of the same ids.",
             "there is one tokenizer, with the same ids"),
    number("MAX_STOP_SEQS_NUM", "5", "", 0, "Stop sequences of one request."),
    number("STOP_SEQS_MAX_LEN", "8", "", 1, "Tokens of one stop sequence."),
    {.name = "USE_CUSTOM_HEALTH_CHECKER",
     .group = kPaddleNlp,
     .type = kBool,
     .fallback = "1",
     .meaning = "0: health that fails has status 400 and no body, as Triton's own."},
    real("CHECK_HEALTH_INTERVAL", "10", "",
         "Seconds without a turn of the engine's loop after which it counts as hung."),
    harmless("SHM_UUID", "", "Suffix of shared memory.", kOneProcess),
    harmless("ENGINE_MAX_NEED_NUM", "", "Requests that a worker takes at once.", kOneProcess),
    idle(Support::kHarmless,
         number("RECORD_TIME_INTERVAL", "600", "", 0, "Seconds between records of times; below 3600."),
         "times stand in /metrics"),
    on_off("DISABLE_CAPACITY_CHECKER", "1: no warning when the cache cannot hold the longest prompt or answer."),
    on_off("OUTPUT_LOG_TO_CONSOLE", "1: start_server writes what the server prints to log/console.log."),
    idle(Support::kInert, text("SPECULATE_METHOD", "", "", "Speculative decoding."), kOneToken, "None"),
    idle(Support::kInert, text("SPECULATE_MODEL_PATH", "", "", "Draft model."), kOneToken),
    harmless("SPECULATE_MODEL_QUANT_TYPE", "", "Weights of the draft model.", kOneToken),
    harmless("SPECULATE_MAX_DRAFT_TOKEN_NUM", "", "Tokens of a draft.", kOneToken),
    harmless("SPECULATE_MAX_NGRAM_SIZE", "", "Longest match with the prompt.", kOneToken),
    harmless("USE_DYNAMIC_GRAPH", "", "Takes original checkpoints.", "original checkpoints are what this build reads"),
    harmless("FASTDEPLOY_MODEL_URL", "", "Where the client library finds the server.", "clients read it"),
};
}  // namespace

std::span<const VariableSpec> paddlenlp_variables() { return kVariables; }
}  // namespace tern::app
