// Everything `serve` needs to know, as values; app fills it from flags, environment and the model folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/sampling_params.h"
#include "content/grammar/grammar_spec.h"
#include "serve/http/cors.h"
#include "serve/net/peer.h"
#include "serve/paddlenlp_config.h"
#include "serve/pooling_config.h"
#include "tls/context.h"

namespace tern::serve {

// Bounds on what a client may send and hold. Sizes in bytes, times in seconds.
struct HttpLimits {
  size_t header_bytes = 32u << 10;         // request line and headers; more: 431
  size_t body_bytes = 64u << 20;           // more: 413
  size_t grpc_message_bytes = 64u << 20;   // of a request over gRPC; more: RESOURCE_EXHAUSTED
  size_t json_depth = 64;                  // nested arrays and objects of a body
  size_t json_nodes = 4u << 20;            // values of a body
  size_t json_free_memory = 16u << 20;     // that its values may always take; larger bodies: three times their length
  size_t memory_bytes = 256u << 20;        // of all requests in flight: bodies, values, waiting prompts; more: 503
  size_t connections = 0;                  // open at once; 0: as many as the file limit allows, less a reserve
  size_t connections_per_address = 0;      // 0: any number
  std::vector<net::Network> trusted;       // addresses of proxies, which such limits spare
  double header_timeout = 10;              // from the first wait for a request's head to its end
  double idle_timeout = 75;                // a kept-alive connection between two requests
  double body_timeout = 30;                // without one byte of an announced body
  double body_total_timeout = 300;         // for a whole body
  double write_stall_timeout = 30;         // unsent bytes of which the client takes none
  size_t write_buffer_bytes = 256u << 10;  // unsent bytes above which tokens wait unformatted
  size_t held_tokens = 64u << 10;          // tokens that may wait so; more: the request is aborted
  int socket_send_buffer = 0;              // SO_SNDBUF; 0: the system's
};

// Bounds on one request.
struct RequestLimits {
  int32_t prompts = 256;     // prompts of one completions request
  int32_t messages = 4096;   // of one chat request
  int32_t n = 128;           // samples per prompt
  int32_t choices = 1024;    // prompts x n
  int32_t stop_strings = 5;  // FD_MAX_STOP_SEQS_NUM
  int32_t stop_tokens = 8;   // FD_STOP_SEQS_MAX_LEN, ids per stop string
  int32_t stop_token_ids = 64;
  int32_t logit_bias = 1024;  // entries
  int32_t bad_words = 1024;   // words and ids
  int32_t tools = 512;
  size_t id_bytes = 256;        // request_id, user
  int32_t stream_group = 4096;  // max_streaming_response_tokens
};

// Pictures and videos of one request. What the model reads is filled in by Server::start from Content.
struct MediaRules {
  bool images = false, videos = false;
  int32_t max_images = 1, max_videos = 1;  // --limit-mm-per-prompt
  double timeout = 120;                    // seconds for all media of a request, from its arrival; more: 408
};

// Sampling values of the model's generation_config.json, where it names them.
struct GenerationDefaults {
  std::optional<double> temperature, top_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int32_t> top_k;
};

struct ServeConfig {
  std::string host = "0.0.0.0";
  int port = 8000;                  // 0: the system chooses (Server::port tells); below 0: none
  std::string uds;                  // a Unix socket of this path in the main port's place; "": none
  std::optional<int> metrics_port;  // nothing or == port: /metrics is on the main port
  int controller_port = -1;         // below 0: none; bound to 127.0.0.1
  int io_threads = 0;               // 0: chosen from the machine
  int cpu_threads = 0;              // JSON, templates, tokenization; 0: chosen from the machine

  std::string served_model_name;  // "": every model name is accepted
  std::string model_path;         // "root" of /v1/models, and its id without a served name
  int32_t max_model_len = 2048;
  int32_t vocab_size = 0;  // ids of the model; prompts must lie below
  GenerationDefaults defaults;
  std::optional<PoolingConfig> pooling;  // nothing: the model generates

  std::vector<std::string> api_keys;        // empty: open
  std::vector<std::string> admin_keys;      // of control routes, which take no other then; empty: those above
  bool api_keys_change = false;             // Server::replace_keys may give others, though never none
  std::shared_ptr<const tls::Context> tls;  // of every TCP port but the controller's; null: they speak plain HTTP
  bool dynamic_weights = false;             // --dynamic-load-weight: the two old weight routes
  bool asleep = false;                      // --load-strategy meta: begins without weights
  bool metrics_open = false;                // /metrics without a key
  bool page = true;                         // the page for people at /
  http::CorsRules cors;                     // of the main port
  int max_concurrency = 2048;               // open requests; more: 429
  int max_connections_to_engine = 1024;     // FD_SUPPORT_MAX_CONNECTIONS, requests inside the engine
  double max_waiting_time = -1;             // seconds for an engine slot; below 0: for ever
  bool abort_on_disconnect = true;          // FD_ENABLE_REQUEST_DISCONNECT_STOP_INFERENCE
  bool original_error_status = false;       // 500 for client mistakes found after validation, as FastDeploy

  bool enable_logprob = false;
  int max_logprobs = 20;                   // -1: the whole vocabulary
  bool prompt_logprobs_allowed = true;     // off while prefix caching is on, as FastDeploy
  bool logit_bias_processor = false;       // LogitBiasLogitsProcessor is among --logits-processors
  bool thinking_budget_processor = false;  // the same of ThinkingBudgetLogitsProcessor
  bool guided = false;                     // guided decoding acts; the next two only then
  content::GrammarOptions grammar;
  std::string thinking_truncate = "</think>";  // FD_LIMIT_THINKING_CONTENT_TRUNCATE_STR: forced where thoughts are cut
  bool allow_client_chat_template = false;
  bool allow_inert = false;          // --allow-inert-flags: fields without effect are no error
  bool mm_output = false;            // --enable-mm-output
  bool prefix_cache = false;         // --enable-prefix-caching: looked up for each request, as traces tell
  bool entropy = false;              // --enable-entropy: written to the log
  bool sampling_mask = false;        // --enable-keep-sampling-mask: shown in choices
  bool reasoning_parser = false;     // --reasoning-parser; set by Server::start from Content, as the next
  bool tool_call_parser = false;     // --tool-call-parser
  bool scripted = false;             // the engine answers from a script and is told the client's last text
  bool skip_special_tokens = false;  // FD_USE_HF_TOKENIZER: answers never show them

  HttpLimits http;
  RequestLimits limits;
  MediaRules media;

  bool log_requests = true;    // FD_LOG_REQUESTS
  int log_requests_level = 0;  // FD_LOG_REQUESTS_LEVEL
  size_t log_max_len = 2048;   // FD_LOG_MAX_LEN

  bool trace_log = false;  // FD_TRACE: the stages of each request, in trace.log
  // Takes the spans of a request that has ended, JSON objects of OTLP with commas between; must not wait. Empty: none.
  std::function<void(std::string)> export_spans;
  bool metric_labels = false;  // FD_ENABLE_METRIC_LABELS: figures carry the model's name as model_id

  std::optional<PaddleNlpConfig> paddlenlp;       // the PaddleNLP front, beside the main port or alone
  std::function<std::vector<GpuFigures>()> gpus;  // for its figures; must not wait. Empty: there is no GPU

  std::string version = TERN_VERSION;
  // What /v1/models calls the model.
  const std::string& model_id() const { return served_model_name.empty() ? model_path : served_model_name; }
  std::string config_info = "{}";                                 // body of /config-info: JSON text
  std::vector<std::pair<std::string, std::string>> cache_config;  // labels of fastdeploy:cache_config_info
};

}  // namespace tern::serve
