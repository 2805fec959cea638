// What flags, variables and the model folder came to: the values that each part of the program takes. A flag that acts
// shows here under another value (tests/cli/test_effects.py holds that).
#include "app/config/settings.h"

namespace tern::app {
namespace {

template <typename T>
json::Array list(const std::vector<T>& values) {
  return json::Array(values.begin(), values.end());
}

json::Object describe_scheduler(const sched::SchedulerConfig& c) {
  json::Object o = {
      {"version", c.v1 ? "v1" : "legacy"},        {"block_size", c.block_size},
      {"max_num_seqs", c.max_num_seqs},           {"max_num_batched_tokens", c.max_num_batched_tokens},
      {"max_model_len", c.max_model_len},         {"chunked_prefill", c.chunked_prefill},
      {"prefix_caching", c.prefix_caching},       {"output_caching", c.output_caching},
      {"enc_dec_block_num", c.enc_dec_block_num}, {"disable_chunked_mm_input", c.disable_chunked_mm_input}};
  if (c.v1) {
    o["prealloc_dec_block_slot_num_threshold"] = c.prealloc_dec_block_slot_num_threshold;
    o["reserve_output_blocks"] = c.reserve_output_blocks;
    o["reserve_decay"] = c.reserve_decay;
    o["reserve_min"] = c.reserve_min;
    o["save_output_cache_for_preempted"] = c.save_output_cache_for_preempted;
    return o;
  }
  o["kv_cache_ratio"] = c.kv_cache_ratio;
  o["max_num_partial_prefills"] = c.max_num_partial_prefills;
  o["max_long_partial_prefills"] = c.max_long_partial_prefills;
  o["long_prefill_token_threshold"] = c.long_prefill_token_threshold;
  o["max_prefill_num"] = c.max_prefill_num;
  return o;
}

json::Object describe_engine(const Settings& s) {
  const engine::EngineConfig& c = s.engine;
  json::Object o = {{"num_blocks_override", c.num_blocks_override},
                    {"memory_utilization", c.memory_utilization},
                    {"prefix_cache_allowance", c.prefix_cache_allowance},
                    {"logprobs_mode", static_cast<int>(c.logprobs_mode)},
                    {"max_logprobs", c.max_logprobs},
                    {"entropy", c.entropy},
                    {"kept_tokens", c.kept_tokens},
                    {"early_stop", c.early_stop},
                    {"early_stop_window", c.early_stop_window},
                    {"early_stop_threshold", c.early_stop_threshold},
                    {"watchdog_seconds", static_cast<double>(c.watchdog_ns) / 1e9},
                    {"mask_threads", c.mask_threads},
                    {"trace", s.trace},
                    {"scripted", s.scripted},
                    {"reasoning_parser", s.reasoning_parser},
                    {"tool_call_parser", s.tool_call_parser}};
  o["graphs"] = {{"use", c.graphs.use},
                 {"only_prefill", c.graphs.only_prefill},
                 {"sizes", list(c.graphs.sizes)},
                 {"prefill_sizes", list(c.graphs.prefill_sizes)},
                 {"max_prefill", c.graphs.max_prefill}};
  if (c.fault != device::Fault::kNone)
    o["fault"] = {{"kind", static_cast<int>(c.fault)},
                  {"step", c.fault_step},
                  {"rank", c.fault_rank},
                  {"engine", c.fault_engine}};
  if (c.plan_delay_ns != 0) o["plan_delay_ms"] = static_cast<double>(c.plan_delay_ns) / 1e6;
  return o;
}

json::Object describe_quantization(const model::Quantization& q) {
  return {{"method", q.method},
          {"dense", q.dense},
          {"experts", q.experts},
          {"picture_experts", q.picture_experts},
          {"head", q.head},
          {"ignore", list(q.ignore)},
          {"pow2_scales", q.pow2_scales}};
}

json::Object describe_load(const model::LoadOptions& o) {
  return {{"path", o.path},           {"config_name", o.config_name},
          {"dummy", o.dummy},         {"dummy_seed", o.dummy_seed},
          {"overrides", o.overrides}, {"precision", o.activation == DType::kF32 ? "float32" : "bfloat16"},
          {"threads", o.threads},     {"quantization", describe_quantization(o.quantization)},
          {"embed", o.embed},         {"load_cache", o.load_cache}};
}

json::Object describe_device(const DeviceSettings& d) {
  constexpr const char* kChoices[] = {"auto", "cpu", "cuda"};
  return {{"choice", kChoices[static_cast<size_t>(d.choice)]},
          {"cpu", {{"threads", d.cpu.threads}, {"pin", d.cpu.pin}, {"isa", d.cpu_isa}}},
          {"cuda",
           {{"ordinal", d.cuda.ordinal},
            {"arch_limit", d.cuda.arch_limit},
            {"shared_memory_limit", d.cuda.shared_memory_limit},
            {"microbatches", d.cuda.microbatches},
            {"cublaslt", d.cuda.cublaslt},
            {"deterministic", d.cuda.deterministic},
            {"pdl", d.cuda.pdl},
            {"search_folders", list(d.cuda.search_folders)},
            {"more_folders", list(d.cuda.more_folders)},
            {"blas_cache_file", d.cuda.blas_cache_file}}}};
}

json::Object describe_media(const Settings& s) {
  const content::MediaOptions& o = s.media.options;
  json::Object out = {{"max_images", s.serve.media.max_images},
                      {"max_videos", s.serve.media.max_videos},
                      {"timeout", s.serve.media.timeout},
                      {"processor_kwargs", s.media.processor_kwargs},
                      {"encoder_cache_tokens", s.media.encoder_cache_tokens},
                      {"processor_cache_gib", o.processor_cache_gib},
                      {"apply_exif", o.apply_exif},
                      {"threads", o.threads},
                      {"request_bytes", o.request_bytes},
                      {"total_bytes", o.total_bytes},
                      {"request_file_bytes", o.request_file_bytes},
                      {"total_file_bytes", o.total_file_bytes},
                      {"max_waiting", o.max_waiting}};
  out["fetch"] = {{"connect_timeout", o.fetch.connect_timeout},
                  {"total_timeout", o.fetch.total_timeout},
                  {"tries", o.fetch.tries},
                  {"max_redirects", o.fetch.max_redirects},
                  {"allow_private", o.fetch.allow_private},
                  {"allow_http", o.fetch.allow_http},
                  {"local_root", o.fetch.local_root},
                  {"ca_file", o.fetch.ca_file}};
  out["fetch"].as_object()["allowed_domains"] = list(o.fetch.allowed_domains);
  out["picture"] = {{"bytes", o.decode.bytes}, {"pixels", o.decode.pixels}};
  out["video"] = {{"bytes", o.video.max_bytes},
                  {"pixels", o.video.max_pixels},
                  {"frames", o.video.max_frames},
                  {"seconds", o.video.max_seconds},
                  {"decode_timeout", o.video.wall_seconds},
                  {"memory", o.video.memory_bytes},
                  {"decoder", o.video_helper},
                  {"font", o.font_file}};
  return out;
}

json::Value describe_tls(const TlsFiles& files) {
  if (!files.wanted()) return nullptr;
  return {{"certificate", files.certificate},
          {"key", files.key},
          {"client_ca", files.client_ca},
          {"client_certificates", static_cast<int>(files.clients)}};
}

json::Object describe_server(const Settings& s) {
  const serve::ServeConfig& c = s.serve;
  json::Object o = {{"host", c.host},
                    {"port", c.port},
                    {"uds", c.uds},
                    {"controller_port", c.controller_port},
                    {"io_threads", c.io_threads},
                    {"cpu_threads", c.cpu_threads},
                    {"served_model_name", c.served_model_name},
                    {"api_keys", c.api_keys.size()},
                    {"admin_api_keys", c.admin_keys.size()},
                    {"api_key_file", s.access.key_file},
                    {"dynamic_load_weight", c.dynamic_weights},
                    {"starts_asleep", c.asleep},
                    {"weights_root", s.weights_root},
                    {"metrics_open", c.metrics_open},
                    {"tls", describe_tls(s.access.tls)},
                    {"page", c.page},
                    {"allow_credentials", c.cors.credentials},
                    {"max_concurrency", c.max_concurrency},
                    {"max_connections_to_engine", c.max_connections_to_engine},
                    {"max_waiting_time", c.max_waiting_time},
                    {"abort_on_disconnect", c.abort_on_disconnect},
                    {"skip_special_tokens", c.skip_special_tokens},
                    {"original_error_status", c.original_error_status},
                    {"enable_logprob", c.enable_logprob},
                    {"logit_bias_processor", c.logit_bias_processor},
                    {"chat_template", s.chat_template},
                    {"allow_client_chat_template", c.allow_client_chat_template},
                    {"allow_inert", c.allow_inert},
                    {"mm_output", c.mm_output},
                    {"entropy", c.entropy},
                    {"sampling_mask", c.sampling_mask},
                    {"exit_with_stdin", s.exit_with_stdin},
                    {"drain_seconds", s.drain_seconds}};
  o["guided"] = {{"on", c.guided},
                 {"white_space", !c.grammar.tight},
                 {"additional_properties", !c.grammar.closed},
                 {"thinking_budget_processor", c.thinking_budget_processor},
                 {"thinking_truncate", c.thinking_truncate}};
  o["allowed_origins"] = list(c.cors.origins);
  o["allowed_methods"] = list(c.cors.methods);
  o["allowed_headers"] = list(c.cors.headers);
  if (c.metrics_port) o["metrics_port"] = *c.metrics_port;
  return o;
}

json::Object describe_pooling(const serve::PoolingConfig& c) {
  constexpr const char* kRows[] = {"last", "first", "mean", "all"};  // of PooledRows
  json::Object o = {{"rewards", c.rewards},
                    {"rows", kRows[static_cast<size_t>(c.rows)]},
                    {"normalize", c.normalize},
                    {"softmax", c.softmax},
                    {"labels", c.labels.size()}};
  if (c.dimensions) o["dimensions"] = *c.dimensions;
  if (c.step_tag_id) o["step_tag_id"] = *c.step_tag_id;
  return o;
}

json::Object describe_limits(const serve::ServeConfig& c) {
  const serve::HttpLimits& h = c.http;
  const serve::RequestLimits& r = c.limits;
  return {{"header_bytes", h.header_bytes},
          {"body_bytes", h.body_bytes},
          {"grpc_message_bytes", h.grpc_message_bytes},
          {"json_depth", h.json_depth},
          {"json_nodes", h.json_nodes},
          {"json_free_memory", h.json_free_memory},
          {"memory_bytes", h.memory_bytes},
          {"connections", h.connections},
          {"connections_per_address", h.connections_per_address},
          {"trusted_networks", h.trusted.size()},
          {"header_timeout", h.header_timeout},
          {"idle_timeout", h.idle_timeout},
          {"body_timeout", h.body_timeout},
          {"body_total_timeout", h.body_total_timeout},
          {"write_stall_timeout", h.write_stall_timeout},
          {"write_buffer_bytes", h.write_buffer_bytes},
          {"held_tokens", h.held_tokens},
          {"socket_send_buffer", h.socket_send_buffer},
          {"prompts", r.prompts},
          {"messages", r.messages},
          {"n", r.n},
          {"samples", r.choices},
          {"stop_strings", r.stop_strings},
          {"stop_tokens", r.stop_tokens},
          {"stop_token_ids", r.stop_token_ids},
          {"logit_bias", r.logit_bias},
          {"bad_words", r.bad_words},
          {"tools", r.tools},
          {"id_bytes", r.id_bytes},
          {"stream_group", r.stream_group}};
}

// Headers may hold a key: their number is shown.
json::Object describe_spans(const SpanSettings& s) {
  return {{"wanted", s.wanted},     {"endpoint", s.endpoint}, {"headers", s.headers.size()},
          {"delay_ms", s.delay_ms}, {"batch", s.batch},       {"service", s.service},
          {"host", s.host}};
}

json::Object describe_log(const Settings& s) {
  constexpr const char* kLevels[] = {"debug", "info", "warning", "error"};
  return {{"folder", s.log.folder},
          {"level", kLevels[static_cast<size_t>(s.log.level)]},
          {"backup_days", s.log.backup_days},
          {"scheduler_line", s.log.scheduler_line},
          {"scheduler_interval", s.log.scheduler_interval},
          {"requests", s.serve.log_requests},
          {"requests_level", s.serve.log_requests_level},
          {"max_len", s.serve.log_max_len},
          {"trace", s.serve.trace_log},
          {"spans", describe_spans(s.spans)},
          {"metric_labels", s.serve.metric_labels}};
}

}  // namespace

void describe_parts(const Settings& s, json::Object& out) {
  out["scheduler"] = describe_scheduler(s.engine.scheduler);
  out["engine"] = describe_engine(s);
  out["weights"] = describe_load(s.load);
  out["device"] = describe_device(s.device);
  out["ranks"] = {{"count", s.ranks.count},
                  {"expert_parallel", s.ranks.expert_parallel},
                  {"forced", s.ranks.forced},
                  {"optional", s.ranks.optional}};
  out["data_parallel"] = {
      {"size", s.data_parallel.size}, {"first", s.data_parallel.first}, {"count", s.data_parallel.count}};
  if (s.serve.pooling) out["pooling"] = describe_pooling(*s.serve.pooling);
  if (s.media.wanted) out["media"] = describe_media(s);
  out["server"] = describe_server(s);
  out["limits"] = describe_limits(s.serve);
  out["log"] = describe_log(s);
}

}  // namespace tern::app
