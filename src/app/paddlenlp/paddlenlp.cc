#include "app/paddlenlp/paddlenlp.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/checked.h"

namespace tern::app {
namespace {

constexpr int64_t kMostSlots = 256;
constexpr int64_t kMostRanks = 8;  // of one node
constexpr int64_t kLongestRecord = 3600;

Error fatal(std::string message, std::string_view param) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message), std::string(param));
}

// The old name wins (1.2); -1 when neither has a value.
int port_of(const Environment& e, std::string_view now, std::initializer_list<std::string_view> before) {
  for (const std::string_view old : before) {
    if (e.given(old)) return static_cast<int>(e.integer(old));
  }
  return e.get(now).is_null() ? -1 : static_cast<int>(e.integer(now));
}

Status take_ports(const Environment& e, PaddleNlp& p) {
  p.health_port = port_of(e, "HEALTH_HTTP_PORT", {"HTTP_PORT"});
  p.metrics_port = port_of(e, "METRICS_HTTP_PORT", {"METRICS_PORT"});
  p.http_port = port_of(e, "SERVICE_HTTP_PORT", {"PUSH_MODE_HTTP_PORT"});
  p.grpc_port = port_of(e, "SERVICE_GRPC_PORT", {"GRPC_PORT"});
  p.inter_proc_port = port_of(e, "INTER_PROC_PORT", {"INTER_QUEUE_PORT", "INFER_QUEUE_PORT"});
  p.http_workers = static_cast<int>(e.integer("PUSH_MODE_HTTP_WORKERS"));
  p.custom_health = e.boolean("USE_CUSTOM_HEALTH_CHECKER");
  if (p.http_port > 0 && p.grpc_port < 0) {
    return fatal("SERVICE_GRPC_PORT cannot be None, while SERVICE_HTTP_PORT>0", "SERVICE_GRPC_PORT");
  }
  if (p.http_workers < 1) {
    return fatal(fmt::format("PUSH_MODE_HTTP_WORKERS ({}) must be positive", p.http_workers), "PUSH_MODE_HTTP_WORKERS");
  }
  if (p.health_port < 1 && p.custom_health) return fatal("HTTP_PORT must be set", "HEALTH_HTTP_PORT");
  if (p.http_port < 1 && p.grpc_port < 1) {
    return fatal("neither SERVICE_HTTP_PORT nor SERVICE_GRPC_PORT is set: nobody could send a request",
                 "SERVICE_GRPC_PORT");
  }
  const std::pair<std::string_view, int> ports[] = {{"HEALTH_HTTP_PORT", p.health_port},
                                                    {"METRICS_HTTP_PORT", p.metrics_port},
                                                    {"SERVICE_GRPC_PORT", p.grpc_port},
                                                    {"SERVICE_HTTP_PORT", p.http_port}};
  for (const auto& one : ports) {
    for (const auto& other : ports) {
      if (one.first < other.first && one.second > 0 && one.second == other.second) {
        return fatal(fmt::format("{} and {} are both {}", one.first, other.first, one.second), one.first);
      }
    }
  }
  return {};
}

std::vector<std::string> split_addresses(const std::string& text) {
  std::vector<std::string> out;
  for (const std::string_view part : split(text, ',')) {
    const size_t begin = part.find_first_not_of(' '), end = part.find_last_not_of(' ');
    if (begin != std::string_view::npos) out.emplace_back(part.substr(begin, end - begin + 1));
  }
  return out;
}

// Section 6. What several nodes say about themselves is checked even though no other takes part: each ends here.
Status take_nodes(const Environment& e, PaddleNlp& p) {
  p.mp_num = e.integer("MP_NUM");
  p.nodes = e.integer("MP_NNODE");
  if (p.mp_num % p.nodes != 0) {
    return fatal(fmt::format("mp_num: {} should be divisible by nnode: {}", p.mp_num, p.nodes), "MP_NUM");
  }
  p.master = p.nodes == 1 || e.text("POD_0_IP") == e.text("HOST_IP");
  if (p.nodes > 1) {
    const std::vector<std::string> all = split_addresses(e.text("POD_IPS"));
    if (all.empty()) return fatal("POD_IPS must be set when MP_NNODE is above 1", "POD_IPS");
    for (const char* name : {"POD_0_IP", "HOST_IP"}) {
      if (std::find(all.begin(), all.end(), e.text(name)) == all.end()) {
        return fatal(fmt::format("{} {} is not one of POD_IPS ({})", name, e.text(name), fmt::join(all, ",")), name);
      }
    }
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("MP_NNODE={} is not available: all ranks of this build are on one node; set MP_NNODE=1 "
                    "and start the master alone (the answers are the same)",
                    p.nodes),
        "MP_NNODE");
  }
  if (p.mp_num > kMostRanks) {
    return fatal(fmt::format("MP_NUM {} is more than the {} ranks of a node", p.mp_num, kMostRanks), "MP_NUM");
  }
  return {};
}

// One key of the model's configuration that replaces a value (1.4); null counts as absent.
Status override_with(const json::Object& config, std::string_view key, int64_t least, int64_t& value) {
  TERN_ASSIGN_OR_RETURN(const auto found, json::get_int(config, key));
  if (!found) return {};
  if (*found < least || *found > (1 << 30)) {
    return make_error(ErrorCode::kCorrupt, fmt::format("config.json: {} is {}", key, *found));
  }
  value = *found;
  return {};
}

Status take_model(const Environment& e, const PaddleNlpModel& model, PaddleNlp& p) {
  TERN_RETURN_IF_ERROR(override_with(model.config, "infer_model_block_size", 1, p.block_size));
  TERN_ASSIGN_OR_RETURN(const auto exported, json::get_int(model.config, "infer_model_max_seq_len"));
  TERN_RETURN_IF_ERROR(override_with(model.config, "infer_model_max_seq_len", 16, p.max_seq_len));
  // An original checkpoint names no export length; its positions are the limit then.
  if (!exported && model.positions >= 16) p.max_seq_len = std::min(p.max_seq_len, model.positions);
  TERN_ASSIGN_OR_RETURN(const auto dtype, json::get_string(model.config, "infer_model_dtype"));
  if (dtype) p.dtype = *dtype;
  const json::Value* cache = json::find(model.config, "infer_model_cachekv_int8_type");
  if (cache != nullptr && !cache->is_null()) {
    return make_error(ErrorCode::kUnsupported,
                      "config.json: infer_model_cachekv_int8_type asks for a KV cache of 8 bits, which this build does "
                      "not have; export the model without it");
  }
  TERN_ASSIGN_OR_RETURN(const auto version, json::get_string(model.config, "paddlenlp_version"));
  if (version && !p.tag.empty() && version->find(p.tag) == std::string::npos) {
    p.warnings.push_back(fmt::format("the model was exported by PaddleNLP {}, but tag is {}", *version, p.tag));
  }
  TERN_ASSIGN_OR_RETURN(const auto method, json::get_string(model.config, "speculate_method"));
  if (method && *method != "None" && !e.given("SPECULATE_METHOD")) {
    p.warnings.push_back(
        fmt::format("the model names speculate_method {}: this build generates one token per step", *method));
  }
  return {};
}

void settle_limits(PaddleNlp& p) {
  if (p.seq_len_limit > p.max_seq_len) {
    p.warnings.push_back(
        fmt::format("The loading model requires len(input_ids) <= {}, now reset MAX_SEQ_LEN.", p.max_seq_len));
    p.seq_len_limit = p.max_seq_len;
  }
  if (p.dec_len_limit > p.max_seq_len) {
    p.warnings.push_back(
        fmt::format("The loading model requires MAX_DEC_LEN <= {}, now reset MAX_DEC_LEN.", p.max_seq_len));
    p.dec_len_limit = p.max_seq_len;
  }
}

Status derive_blocks(const Environment& e, PaddleNlp& p) {
  p.enc_dec_block_num = p.block_ratio >= 1.0 ? ceil_div(p.max_dec_len, p.block_size) : e.integer("ENC_DEC_BLOCK_NUM");
  p.max_query_block_num = ceil_div(std::max(p.max_dec_len, p.max_seq_len), p.block_size);
  p.dec_token_num = p.enc_dec_block_num * p.block_size;
  const double total = p.block_bs * static_cast<double>(p.max_query_block_num);
  if (!(total >= 1 && total < 1e9)) {
    return fatal(fmt::format("BLOCK_BS {} gives {} blocks of the cache", p.block_bs, total), "BLOCK_BS");
  }
  p.total_block_num = static_cast<int64_t>(total);
  p.max_block_num = static_cast<int64_t>(static_cast<double>(p.total_block_num) * p.block_ratio);
  if (e.boolean("DISABLE_CAPACITY_CHECKER")) return {};
  // Upstream compares text with a number and never checks; here they are warnings.
  const int64_t output = (p.total_block_num - p.max_block_num) * p.block_size + p.dec_token_num;
  const int64_t input = p.max_block_num * p.block_size - p.dec_token_num;
  if (output < p.dec_len_limit) {
    p.warnings.push_back(
        fmt::format("The available output token number of the service is {}, which is less than the setting "
                    "MAX_DEC_LEN:{}. ",
                    output, p.dec_len_limit));
  }
  if (input < p.seq_len_limit) {
    p.warnings.push_back(
        fmt::format("The available input token number of the service is {}, which is less than the setting "
                    "MAX_SEQ_LEN:{}. ",
                    input, p.seq_len_limit));
  }
  return {};
}

// Where the model and its configuration lie.
Status take_folder(const Environment& e, PaddleNlp& p) {
  p.model_dir = e.text("MODEL_DIR");
  while (p.model_dir.size() > 1 && p.model_dir.back() == '/') p.model_dir.pop_back();
  p.config_name = e.text("CONFIG_JSON_FILE");
  if (const std::string path = e.text("FD_MODEL_CONFIG_PATH"); !path.empty()) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos || path.substr(0, slash) != p.model_dir) {
      return fatal(fmt::format("FD_MODEL_CONFIG_PATH {} is no file of MODEL_DIR {}", path, p.model_dir),
                   "FD_MODEL_CONFIG_PATH");
    }
    p.config_name = path.substr(slash + 1);
  }
  return {};
}

Status take_names(const Environment& e, PaddleNlp& p) {
  if (const std::string device = e.text("DEVICE"); device != "GPU") {
    return fatal("unsupported device type: " + device, "DEVICE");
  }
  TERN_RETURN_IF_ERROR(take_folder(e, p));
  p.model_name = e.text("model_name");
  p.tag = e.text("tag");
  p.dtype = e.text("DTYPE");
  return {};
}

Status take_numbers(const Environment& e, PaddleNlp& p) {
  p.max_seq_len = p.seq_len_limit = e.integer("MAX_SEQ_LEN");
  p.max_dec_len = p.dec_len_limit = e.integer("MAX_DEC_LEN");
  p.batch_size = e.integer("BATCH_SIZE");
  p.block_size = e.integer("BLOCK_SIZE");
  p.block_bs = e.number("BLOCK_BS");
  p.block_ratio = e.number("BLOCK_RATIO");
  p.max_prefill_batch = e.integer("MAX_PREFILL_BATCH");
  p.cached_tasks = e.integer("MAX_CACHED_TASK_NUM");
  p.stop_seqs = e.integer("MAX_STOP_SEQS_NUM");
  p.stop_seq_tokens = e.integer("STOP_SEQS_MAX_LEN");
  p.disable_streaming = e.boolean("DISABLE_STREAMING");
  p.warmup = e.boolean("USE_WARMUP");
  p.raw_text = e.boolean("USE_HF_TOKENIZER");
  p.health_interval = e.number("CHECK_HEALTH_INTERVAL");
  if (p.batch_size > kMostSlots) {
    return fatal(fmt::format("The parameter `max_batch_size` is not allowed to exceed {}, but now it's {}.", kMostSlots,
                             p.batch_size),
                 "BATCH_SIZE");
  }
  if (p.max_prefill_batch <= 0) {
    return fatal(fmt::format("MAX_PREFILL_BATCH ({}) must be greater than 0", p.max_prefill_batch),
                 "MAX_PREFILL_BATCH");
  }
  if (e.integer("RECORD_TIME_INTERVAL") >= kLongestRecord) {
    return fatal("The RECORD_TIME_INTERVAL cannot exceed 3600.", "RECORD_TIME_INTERVAL");
  }
  return {};
}

Status settle_dtype(PaddleNlp& p) {
  if (p.dtype == "bfloat16" || p.dtype == "float32") return {};
  if (p.dtype != "float16") {
    return fatal(fmt::format("DTYPE {} is none of bfloat16, float16 and float32", p.dtype), "DTYPE");
  }
  p.warnings.emplace_back("DTYPE float16: values are rounded to bfloat16 (DTYPE=float32 keeps them)");
  p.dtype = "bfloat16";
  return {};
}

}  // namespace

Expected<Environment> paddlenlp_environment(const Environment::Pairs& pairs) {
  for (const auto& [name, value] : pairs) {
    if (name == "MODEL_DIR" && value.empty()) return fatal("The parameter MODEL_DIR is None.", "MODEL_DIR");
  }
  return Environment::from(pairs, paddlenlp_variables());
}

Expected<PaddleNlpFolder> paddlenlp_folder(const Environment& environment) {
  PaddleNlp p;
  TERN_RETURN_IF_ERROR(take_folder(environment, p));
  return PaddleNlpFolder{std::move(p.model_dir), std::move(p.config_name)};
}

Expected<PaddleNlp> resolve_paddlenlp(const Environment& environment, const PaddleNlpModel& model) {
  PaddleNlp p;
  TERN_RETURN_IF_ERROR(take_names(environment, p));
  TERN_RETURN_IF_ERROR(take_nodes(environment, p));
  TERN_RETURN_IF_ERROR(take_ports(environment, p));
  TERN_RETURN_IF_ERROR(take_numbers(environment, p));
  TERN_RETURN_IF_ERROR(take_model(environment, model, p));
  TERN_RETURN_IF_ERROR(settle_dtype(p));
  settle_limits(p);
  TERN_RETURN_IF_ERROR(derive_blocks(environment, p));
  return p;
}

}  // namespace tern::app
