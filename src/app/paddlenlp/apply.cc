#include <algorithm>

#include "app/paddlenlp/paddlenlp.h"

namespace tern::app {
namespace {

struct OldName {
  std::string_view now;
  std::initializer_list<std::string_view> before;
};

const std::string* find_value(const Environment::Pairs& pairs, std::string_view name) {
  for (const auto& [key, value] : pairs) {
    if (key == name && !value.empty()) return &value;
  }
  return nullptr;
}

void set_value(Environment::Pairs& pairs, std::string_view name, std::string value) {
  std::erase_if(pairs, [&](const auto& pair) { return pair.first == name; });
  pairs.emplace_back(name, std::move(value));
}

}  // namespace

void apply_paddlenlp(const PaddleNlp& p, FlagSet& flags, Environment& environment) {
  const auto fill = [&flags](std::string_view name, json::Value value) {
    if (!flags.given(name)) flags.set(name, std::move(value), Source::kEnvironment);
  };
  fill("model", json::Value(p.model_dir));
  fill("model-config-name", json::Value(p.config_name));
  fill("dtype", json::Value(p.dtype));
  fill("io-threads", p.http_workers);
  fill("max-model-len", p.max_seq_len);
  fill("max-num-seqs", p.batch_size);
  fill("block-size", p.block_size);
  fill("num-gpu-blocks-override", p.total_block_num);
  fill("timeout-graceful-shutdown", 300);
  if (environment.given("MP_NUM")) fill("tensor-parallel-size", p.mp_num);
  if (!environment.boolean("ENABLE_V1_KVCACHE_SCHEDULER")) {
    fill("kv-cache-ratio", std::min(p.block_ratio, 1.0));
    fill("static-decode-blocks", p.enc_dec_block_num);
    if (!environment.given("MAX_PREFILL_NUM")) environment.set("MAX_PREFILL_NUM", p.max_prefill_batch);
  }
  if (!environment.given("FD_MAX_STOP_SEQS_NUM")) environment.set("FD_MAX_STOP_SEQS_NUM", p.stop_seqs);
  if (!environment.given("FD_STOP_SEQS_MAX_LEN")) environment.set("FD_STOP_SEQS_MAX_LEN", p.stop_seq_tokens);
}

Environment::Pairs script_environment(Environment::Pairs pairs, const std::string& model_name) {
  const OldName kOldNames[] = {{"HEALTH_HTTP_PORT", {"HTTP_PORT"}},
                               {"METRICS_HTTP_PORT", {"METRICS_PORT"}},
                               {"SERVICE_GRPC_PORT", {"GRPC_PORT"}},
                               {"INTER_PROC_PORT", {"INTER_QUEUE_PORT", "INFER_QUEUE_PORT"}},
                               {"SERVICE_HTTP_PORT", {"PUSH_MODE_HTTP_PORT"}}};
  for (const OldName& name : kOldNames) {
    for (const std::string_view old : name.before) {
      if (const std::string* value = find_value(pairs, old)) {
        const std::string kept = *value;
        set_value(pairs, name.now, kept);
        break;
      }
    }
  }
  for (const VariableSpec& spec : paddlenlp_variables()) {
    if (!spec.script.empty() && find_value(pairs, spec.name) == nullptr) {
      set_value(pairs, spec.name, std::string(spec.script));
    }
  }
  const std::string* nodes = find_value(pairs, "MP_NNODE");
  if (nodes == nullptr || *nodes == "1") {
    set_value(pairs, "HOST_IP", "127.0.0.1");
    set_value(pairs, "POD_0_IP", "127.0.0.1");
  }
  if (!model_name.empty()) {
    set_value(pairs, "model_name", model_name);
    std::string folder = *find_value(pairs, "MODEL_DIR");
    if (folder.back() != '/') folder += '/';
    set_value(pairs, "MODEL_DIR", folder + model_name);
  }
  return pairs;
}

json::Object describe_paddlenlp(const PaddleNlp& p) {
  return {{"model_dir", p.model_dir},
          {"config_name", p.config_name},
          {"model_name", p.model_name},
          {"tag", p.tag},
          {"health_http_port", p.health_port},
          {"metrics_http_port", p.metrics_port},
          {"service_http_port", p.http_port},
          {"service_grpc_port", p.grpc_port},
          {"inter_proc_port", p.inter_proc_port},
          {"http_workers", p.http_workers},
          {"max_seq_len", p.max_seq_len},
          {"seq_len_limit", p.seq_len_limit},
          {"dec_len_limit", p.dec_len_limit},
          {"max_dec_len", p.max_dec_len},
          {"batch_size", p.batch_size},
          {"block_size", p.block_size},
          {"block_bs", p.block_bs},
          {"block_ratio", p.block_ratio},
          {"enc_dec_block_num", p.enc_dec_block_num},
          {"max_query_block_num", p.max_query_block_num},
          {"dec_token_num", p.dec_token_num},
          {"total_block_num", p.total_block_num},
          {"max_block_num", p.max_block_num},
          {"device_block_num", p.total_block_num - p.max_block_num},
          {"num_total_token", p.total_block_num * p.block_size},
          {"max_prefill_batch", p.max_prefill_batch},
          {"max_cached_task_num", p.cached_tasks},
          {"dtype", p.dtype},
          {"disable_streaming", p.disable_streaming},
          {"use_warmup", p.warmup},
          {"use_hf_tokenizer", p.raw_text},
          {"max_stop_seqs_num", p.stop_seqs},
          {"stop_seqs_max_len", p.stop_seq_tokens},
          {"custom_health_checker", p.custom_health},
          {"check_health_interval", p.health_interval},
          {"mp_num", p.mp_num},
          {"mp_nnode", p.nodes},
          {"warnings", json::Array(p.warnings.begin(), p.warnings.end())}};
}

}  // namespace tern::app
