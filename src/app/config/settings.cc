#include "app/config/settings.h"
#include "app/config/cors_settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/config/fault_settings.h"
#include "app/config/graph_settings.h"
#include "app/config/inert.h"
#include "app/config/pooling_settings.h"
#include "app/config/trace_settings.h"
#include "app/flags/json_text.h"
#include "app/hub/find_folder.h"
#include "base/machine/cpus.h"

namespace tern::app {
namespace {

LogprobsMode logprobs_mode(const std::string& name) {
  if (name == "raw_logits") return LogprobsMode::kRawLogits;
  if (name == "processed_logprobs") return LogprobsMode::kProcessedLogprobs;
  if (name == "processed_logits") return LogprobsMode::kProcessedLogits;
  return LogprobsMode::kRawLogprobs;
}

sched::SchedulerConfig scheduler_config(const FlagSet& flags, const Environment& environment) {
  sched::SchedulerConfig c;
  c.block_size = flags.integer32("block-size");
  c.max_num_seqs = flags.integer32("max-num-seqs");
  c.max_num_batched_tokens = flags.integer32("max-num-batched-tokens");
  c.max_model_len = flags.integer32("max-model-len");
  c.chunked_prefill = flags.boolean("enable-chunked-prefill");
  c.prefix_caching = flags.boolean("enable-prefix-caching");
  c.disable_chunked_mm_input = flags.boolean("disable-chunked-mm-input");
  c.v1 = environment.boolean("ENABLE_V1_KVCACHE_SCHEDULER");
  c.output_caching = flags.boolean("enable-output-caching") && c.v1;
  c.prealloc_dec_block_slot_num_threshold = flags.integer32("prealloc-dec-block-slot-num-threshold");
  c.enc_dec_block_num =
      c.v1 ? static_cast<int>(environment.integer("FD_ENC_DEC_BLOCK_NUM")) : flags.integer32("static-decode-blocks");
  c.reserve_output_blocks = environment.number("FD_RESERVE_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL");
  c.reserve_decay = environment.number("FD_RESERVE_DECAY_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL");
  c.reserve_min = environment.number("FD_RESERVE_MIN_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL");
  c.save_output_cache_for_preempted = environment.boolean("FD_SAVE_OUTPUT_CACHE_FOR_PREEMPTED_REQUEST");
  c.kv_cache_ratio = flags.number("kv-cache-ratio");
  c.max_num_partial_prefills = flags.integer32("max-num-partial-prefills");
  c.max_long_partial_prefills = flags.integer32("max-long-partial-prefills");
  c.long_prefill_token_threshold = flags.integer32("long-prefill-token-threshold");
  c.max_prefill_num = static_cast<int>(environment.integer("MAX_PREFILL_NUM"));
  return c;
}

engine::EngineConfig engine_config(const FlagSet& flags, const Environment& environment, const ModelFacts& model) {
  engine::EngineConfig c;
  c.scheduler = scheduler_config(flags, environment);
  c.eos_token_ids = model.eos_token_ids;
  c.logprobs_mode = logprobs_mode(flags.text("logprobs-mode"));
  // Answers may leave out tokens of equal text, and ask for twice as many.
  c.max_logprobs = 2 * std::min(flags.integer32("max-logprobs"), 1 << 29);
  c.num_blocks_override = flags.has("num-gpu-blocks-override") ? flags.integer32("num-gpu-blocks-override") : 0;
  c.memory_utilization = flags.number("gpu-memory-utilization");
  c.prefix_cache_allowance = flags.number("prefix-cache-allowance");
  if (flags.text("guided-decoding-backend") != "off") {
    c.mask_threads = std::clamp(usable_cpus() / 2, 1, 8);
  }
  c.entropy = flags.boolean("enable-entropy");
  c.kept_tokens = flags.boolean("enable-keep-sampling-mask");
  c.early_stop = flags.boolean("enable-early-stop");
  if (const json::Object* stop = flags.get("early-stop-config").if_object()) {  // validate() has checked its types
    if (const auto on = json::get_bool(*stop, "enable_early_stop"); on.ok() && *on) c.early_stop = **on;
    if (const auto window = json::get_int(*stop, "window_size"); window.ok() && *window) {
      c.early_stop_window = static_cast<int>(**window);
    }
    if (const auto threshold = json::get_double(*stop, "threshold"); threshold.ok() && *threshold) {
      c.early_stop_threshold = **threshold;
    }
  }
  return c;
}

model::LoadOptions load_options(const FlagSet& flags, const Environment& environment, const ModelFacts& model) {
  model::LoadOptions o;
  o.path = model.folder;
  o.config_name = flags.text("model-config-name");
  o.dummy = flags.text("load-choices") == "dummy";
  o.dummy_seed = static_cast<uint64_t>(flags.integer("seed"));
  if (const json::Object* overrides = flags.get("model-override").if_object()) o.overrides = *overrides;
  if (auto q = model::read_quantization(flags.get("quantization"), model.architecture); q.ok()) {  // validated
    o.quantization = std::move(*q);
  }
  if (environment.boolean("FD_FP8_QUANT_WITH_POW2SCALE")) o.quantization.pow2_scales = true;
  o.load_cache = environment.boolean("FD_ENABLE_MODEL_LOAD_CACHE");
  o.activation = flags.text("dtype") == "float32" ? DType::kF32 : DType::kBF16;
  o.max_model_len = flags.integer32("max-model-len");
  o.threads = flags.has("cpu-threads") ? flags.integer32("cpu-threads") : 0;
  return o;
}

void fill_limits(const FlagSet& flags, const Environment& environment, serve::ServeConfig& c) {
  auto bytes = [&](std::string_view name) { return static_cast<size_t>(flags.integer(name)); };
  c.http = {.header_bytes = bytes("max-header-bytes"),
            .body_bytes = bytes("max-body-bytes"),
            .grpc_message_bytes = bytes("max-grpc-message-bytes"),
            .json_depth = bytes("max-json-depth"),
            .json_nodes = bytes("max-json-values"),
            .json_free_memory = bytes("json-values-bytes"),
            .memory_bytes = bytes("max-request-memory"),
            .connections = bytes("max-connections"),
            .connections_per_address = bytes("max-connections-per-address"),
            .trusted = {},
            .header_timeout = flags.number("header-timeout"),
            .idle_timeout = flags.number("idle-timeout"),
            .body_timeout = flags.number("body-timeout"),
            .body_total_timeout = flags.number("body-total-timeout"),
            .write_stall_timeout = flags.number("write-stall-timeout"),
            .write_buffer_bytes = bytes("write-buffer-bytes"),
            .held_tokens = bytes("max-held-tokens"),
            .socket_send_buffer = flags.integer32("socket-send-buffer")};
  for (const std::string& text : flags.texts("trusted-proxies")) {
    if (auto network = serve::net::parse_network(text); network.ok()) c.http.trusted.push_back(*network);  // validated
  }
  c.limits = {.prompts = flags.integer32("max-prompts"),
              .messages = flags.integer32("max-messages"),
              .n = flags.integer32("max-n"),
              .choices = flags.integer32("max-samples"),
              .stop_strings = static_cast<int32_t>(environment.integer("FD_MAX_STOP_SEQS_NUM")),
              .stop_tokens = static_cast<int32_t>(environment.integer("FD_STOP_SEQS_MAX_LEN")),
              .stop_token_ids = flags.integer32("max-stop-token-ids"),
              .logit_bias = flags.integer32("max-logit-bias"),
              .bad_words = flags.integer32("max-bad-words"),
              .tools = flags.integer32("max-tools"),
              .id_bytes = bytes("max-request-id-bytes"),
              .stream_group = flags.integer32("max-stream-group")};
}

serve::ServeConfig serve_config(const FlagSet& flags, const Environment& environment, const ModelFacts& model) {
  serve::ServeConfig c;
  c.host = flags.text("host");
  c.uds = flags.text("uds");
  c.port = c.uds.empty() ? flags.integer32("port") : -1;
  if (flags.has("metrics-port")) c.metrics_port = flags.integer32("metrics-port");
  c.controller_port = flags.integer32("controller-port");
  c.io_threads = flags.has("io-threads") ? flags.integer32("io-threads") : 0;
  c.cpu_threads = flags.has("http-threads") ? flags.integer32("http-threads") : 0;
  c.served_model_name = flags.text("served-model-name");
  c.model_path = flags.text("model");
  c.max_model_len = flags.integer32("max-model-len");
  c.vocab_size = static_cast<int32_t>(model.vocab_size);
  c.defaults = model.generation;
  c.metrics_open = flags.boolean("metrics-open");
  c.page = flags.boolean("page");
  c.cors = *cors_settings(flags);  // validate() has checked it
  c.max_concurrency = flags.integer32("max-concurrency");
  c.max_connections_to_engine = static_cast<int>(environment.integer("FD_SUPPORT_MAX_CONNECTIONS"));
  c.max_waiting_time = flags.number("max-waiting-time");
  c.abort_on_disconnect = environment.boolean("FD_ENABLE_REQUEST_DISCONNECT_STOP_INFERENCE");
  c.skip_special_tokens = environment.boolean("FD_USE_HF_TOKENIZER");
  c.original_error_status = flags.boolean("original-error-status");
  c.enable_logprob = flags.boolean("enable-logprob");
  c.max_logprobs = flags.integer32("max-logprobs");
  const auto processors = flags.texts("logits-processors");
  c.logit_bias_processor = std::find(processors.begin(), processors.end(), kLogitBias) != processors.end();
  c.thinking_budget_processor = std::ranges::find(processors, kThinkingBudget) != processors.end();
  c.guided = flags.text("guided-decoding-backend") != "off";
  c.grammar = {.tight = flags.boolean("guided-decoding-disable-any-whitespace"),
               .closed = environment.boolean("FD_GUIDANCE_DISABLE_ADDITIONAL")};
  c.thinking_truncate = environment.text("FD_LIMIT_THINKING_CONTENT_TRUNCATE_STR");
  c.allow_client_chat_template = flags.boolean("allow-request-chat-template");
  c.allow_inert = flags.boolean("allow-inert-flags");
  c.mm_output = flags.boolean("enable-mm-output");
  c.prefix_cache = flags.boolean("enable-prefix-caching");
  c.entropy = flags.boolean("enable-entropy");
  c.sampling_mask = flags.boolean("enable-keep-sampling-mask");
  if (const json::Object* limits = flags.get("limit-mm-per-prompt").if_object()) {  // validate() has checked its types
    if (const auto images = json::get_int(*limits, "image"); images.ok() && *images)
      c.media.max_images = static_cast<int32_t>(**images);
    if (const auto videos = json::get_int(*limits, "video"); videos.ok() && *videos)
      c.media.max_videos = static_cast<int32_t>(**videos);
  }
  c.media.timeout = flags.number("media-timeout");
  fill_limits(flags, environment, c);
  c.log_requests = environment.boolean("FD_LOG_REQUESTS");
  c.log_requests_level = static_cast<int>(environment.integer("FD_LOG_REQUESTS_LEVEL"));
  c.log_max_len = static_cast<size_t>(environment.integer("FD_LOG_MAX_LEN"));
  c.metric_labels = environment.boolean("FD_ENABLE_METRIC_LABELS");
  for (const char* name :
       {"block-size", "gpu-memory-utilization", "num-gpu-blocks-override", "kv-cache-ratio", "static-decode-blocks",
        "prealloc-dec-block-slot-num-threshold", "enable-prefix-caching", "enable-output-caching",
        "enable-chunked-prefill", "max-num-seqs", "max-num-batched-tokens"}) {
    c.cache_config.emplace_back(with_underscores(name), flags.has(name) ? flags.text(name) : "None");
  }
  return c;
}

void take_paddlenlp(PaddleNlp p, bool alone, Settings& s, std::vector<std::string>& warnings) {
  warnings.insert(warnings.end(), p.warnings.begin(), p.warnings.end());
  if (s.environment.given("MP_NUM") && p.mp_num != s.ranks.count) {
    warnings.push_back(
        fmt::format("MP_NUM={} has no effect: --tensor-parallel-size {} says how many ranks share the model", p.mp_num,
                    s.ranks.count));
  }
  const auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
  const sched::SchedulerConfig& c = s.engine.scheduler;
  s.serve.paddlenlp = serve::PaddleNlpConfig{.port = p.http_port > 0 ? p.http_port : -1,
                                             .grpc_port = p.grpc_port > 0 ? p.grpc_port : -1,
                                             .metrics_port = p.metrics_port > 0 ? p.metrics_port : -1,
                                             .seq_len_limit = narrow(p.seq_len_limit),
                                             .dec_len_limit = narrow(p.dec_len_limit),
                                             .block_size = c.block_size,
                                             .total_blocks = s.engine.num_blocks_override,
                                             .answer_blocks = narrow(p.enc_dec_block_num),
                                             .query_blocks = narrow(p.max_query_block_num),
                                             .host_blocks = narrow(c.v1 ? p.total_block_num : p.max_block_num),
                                             .batch_size = c.max_num_seqs * s.data_parallel.count,
                                             .cached_tasks = narrow(p.cached_tasks),
                                             .disable_streaming = p.disable_streaming,
                                             .raw_text = p.raw_text};
  if (alone) s.serve.port = -1;
  s.openai_port = !alone;
  s.paddlenlp = std::move(p);
}

// After the ports are known: a port that would stay open to eavesdroppers is named.
Status take_certificates(Settings& s, std::vector<std::string>& warnings) {
  if (!s.access.tls.wanted()) return {};
  const auto refuse = [](const char* what) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("--ssl-certfile: {}", what), "ssl-certfile");
  };
  const auto& nlp = s.serve.paddlenlp;
  const bool other = nlp && (nlp->port >= 0 || nlp->grpc_port >= 0 || nlp->metrics_port >= 0);
  if (!s.serve.uds.empty() && !other) return refuse("no port is opened with --uds, and a Unix socket speaks no TLS");
  TERN_ASSIGN_OR_RETURN(s.serve.tls, s.access.tls.load(warnings));
  return {};
}

// A server that is told its number is one of several, of one engine each.
DataParallelSettings data_parallel_settings(const FlagSet& flags, const Environment& environment) {
  DataParallelSettings s;
  s.size = flags.integer32("data-parallel-size");
  const bool one = flags.given("local-data-parallel-id") || environment.boolean("FD_ENABLE_MULTI_API_SERVER");
  s.first = one ? flags.integer32("local-data-parallel-id") : 0;
  s.count = one ? 1 : s.size;
  return s;
}

LogSettings log_settings(const Environment& environment) {
  LogSettings s;
  s.folder = environment.text("FD_LOG_DIR");
  std::string level = environment.text("FD_LOG_LEVEL");
  std::transform(level.begin(), level.end(), level.begin(), [](unsigned char c) { return std::tolower(c); });
  if (level == "debug") s.level = LogLevel::kDebug;
  if (level.starts_with("warn")) s.level = LogLevel::kWarning;
  if (level == "error" || level == "critical") s.level = LogLevel::kError;
  if (environment.boolean("FD_DEBUG")) s.level = LogLevel::kDebug;
  s.backup_days = static_cast<int>(environment.integer("FD_LOG_BACKUP_COUNT"));
  s.scheduler_line = environment.boolean("FD_CONSOLE_SCHEDULER_METRICS");
  s.scheduler_interval = environment.number("FD_CONSOLE_DECODE_LOG_INTERVAL");
  return s;
}

// Last of all checks: mistakes are named before what is right but has no effect.
Status settle_inert(Settings& s, std::vector<std::string>& warnings) {
  const std::vector<Idle> inert = idle_given(s.flags, s.environment, Support::kInert);
  if (inert.empty()) return {};
  if (!s.flags.boolean("allow-inert-flags")) return inert_error(inert);
  for (const Idle& idle : inert) {
    s.inert.push_back(idle.name);
    warnings.push_back(fmt::format("{} has no effect: {}", idle.name, idle.reason));
  }
  return {};
}

// The line that names what has no effect and is not missed; "" when nothing such was given.
std::string harmless_line(const FlagSet& flags, const Environment& environment) {
  std::vector<std::string> names;
  for (const Idle& idle : idle_given(flags, environment, Support::kHarmless)) {
    names.push_back(fmt::format("{} ({})", idle.name, idle.reason));
  }
  return names.empty() ? "" : fmt::format("accepted without effect: {}", fmt::join(names, "; "));
}

// Who controls the server, and what of its weights can be.
void take_control(Settings& s) {
  s.serve.admin_keys = s.access.admin_keys;
  s.serve.dynamic_weights = s.flags.boolean("dynamic-load-weight");
  s.serve.asleep = s.flags.text("load-strategy") == "meta";
  s.weights_root = s.flags.text("weights-root");
}

}  // namespace

Expected<Settings> resolve(FlagSet flags, Environment environment, const ModelFacts& model,
                           std::optional<PaddleNlp> paddlenlp, bool alone) {
  std::vector<std::string> warnings;
  derive(flags, environment, model, warnings);
  TERN_RETURN_IF_ERROR(validate(flags, environment));
  if (alone && !flags.text("uds").empty()) {
    return make_error(ErrorCode::kInvalidArgument, "--uds takes the place of --port, which is not opened here", "uds");
  }
  if (const std::string line = harmless_line(flags, environment); !line.empty()) warnings.push_back(line);
  if (const std::string line = idle_media_line(flags, model); !line.empty()) warnings.push_back(line);
  if (const auto names = of_other_scheduler(flags, environment); !names.empty()) {
    const bool v1 = environment.boolean("ENABLE_V1_KVCACHE_SCHEDULER");
    warnings.push_back(
        fmt::format("without effect, since ENABLE_V1_KVCACHE_SCHEDULER is {}: {}", v1 ? 1 : 0, fmt::join(names, ", ")));
  }
  for (const std::string& name : environment.unknown()) warnings.push_back(name + " is no variable that Tern knows");

  Settings s;
  s.flags = std::move(flags);
  s.environment = std::move(environment);
  s.model = model;
  s.tokenizer_folder = s.flags.has("tokenizer") ? find_folder(s.flags.text("tokenizer"), s.environment) : model.folder;
  s.chat_template = s.flags.text("chat-template");
  const device::CpuOptions cpu = {.threads = s.flags.has("cpu-threads") ? s.flags.integer32("cpu-threads") : 0,
                                  .pin = s.flags.boolean("cpu-pin")};
  TERN_ASSIGN_OR_RETURN(s.device, device_settings(s.flags.text("device"), cpu, s.environment));
  s.ranks = {s.flags.integer32("tensor-parallel-size"), s.flags.boolean("enable-expert-parallel"),
             s.environment.boolean("TERN_TEST_RANKS"), s.flags.source("tensor-parallel-size") == Source::kEnvironment};
  s.data_parallel = data_parallel_settings(s.flags, s.environment);
  s.load = load_options(s.flags, s.environment, model);
  s.engine = engine_config(s.flags, s.environment, model);
  TERN_ASSIGN_OR_RETURN(s.engine.graphs, graph_settings(s.flags));
  TERN_RETURN_IF_ERROR(fault_settings(s.flags, s.environment, s.engine));
  s.serve = serve_config(s.flags, s.environment, model);
  if (paddlenlp) take_paddlenlp(*std::move(paddlenlp), alone, s, warnings);
  TERN_ASSIGN_OR_RETURN(s.access, Access::from(s.flags));
  TERN_ASSIGN_OR_RETURN(s.serve.api_keys, s.access.keys(warnings));
  take_control(s);
  s.serve.api_keys_change = !s.access.key_file.empty();
  TERN_RETURN_IF_ERROR(take_certificates(s, warnings));
  TERN_RETURN_IF_ERROR(read_pooling_settings(s));
  s.media = media_settings(s.flags, model);
  TERN_RETURN_IF_ERROR(read_trace_settings(s.environment, s));
  TERN_RETURN_IF_ERROR(settle_inert(s, warnings));
  s.log = log_settings(s.environment);
  s.trace = s.flags.text("trace");
  s.reasoning_parser = s.flags.text("reasoning-parser");
  s.tool_call_parser = s.flags.text("tool-call-parser");
  s.scripted = s.flags.text("scripted");
  s.serve.scripted = !s.scripted.empty();
  s.exit_with_stdin = s.flags.boolean("exit-with-stdin");
  s.drain_seconds = s.flags.number("timeout-graceful-shutdown");
  s.warnings = std::move(warnings);
  s.serve.config_info = json_line(describe(s));
  return s;
}

}  // namespace tern::app
