// The environment of PaddleNLP's server as values (paddlenlp-server.md 1): old names, overrides by the model's
// config.json, derived quantities, checks. Nothing here reads the process's environment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/flags/environment.h"
#include "app/flags/flag_set.h"
#include "base/error.h"
#include "json/json.h"

namespace tern::app {

struct PaddleNlp {
  int health_port = -1, metrics_port = -1, http_port = -1, grpc_port = -1, inter_proc_port = -1;  // below 1: none
  int http_workers = 1;
  std::string model_dir, config_name;
  std::string model_name, tag;

  int64_t max_seq_len = 8192;    // prompt and answer
  int64_t seq_len_limit = 8192;  // prompt
  int64_t dec_len_limit = 1024;  // answer
  int64_t max_dec_len = 1024;    // what quantities are derived from; no model lowers it
  int64_t batch_size = 50, block_size = 64, max_prefill_batch = 1, cached_tasks = 128;
  double block_bs = 50, block_ratio = 0.75;
  int64_t enc_dec_block_num = 2, max_query_block_num = 0, dec_token_num = 0;
  int64_t total_block_num = 0, max_block_num = 0;  // of the second: ids that prompts may take

  std::string dtype;
  bool disable_streaming = false, warmup = false, raw_text = false;
  int64_t stop_seqs = 5, stop_seq_tokens = 8;
  double health_interval = 10;  // seconds
  bool custom_health = true;
  std::vector<std::string> warnings;  // one line each

  int64_t mp_num = 1, nodes = 1;
  bool master = true;
};

// What `paddlenlp` asks of the model's config.json; 0: the file names no number of positions.
struct PaddleNlpModel {
  json::Object config;
  int64_t positions = 0;
};

// Tern's variables and paddlenlp_variables(). An empty MODEL_DIR is an error, other empty variables are unset.
Expected<Environment> paddlenlp_environment(const Environment::Pairs& pairs);

// MODEL_DIR, and the name of the model's configuration in it.
struct PaddleNlpFolder {
  std::string path, config_name;
};
Expected<PaddleNlpFolder> paddlenlp_folder(const Environment& environment);

// `environment` is of paddlenlp_environment(). Errors: the server's own texts where it has them (1.5).
Expected<PaddleNlp> resolve_paddlenlp(const Environment& environment, const PaddleNlpModel& model);

// Flags and variables of Tern that follow from it; what the user gave as flags stays.
void apply_paddlenlp(const PaddleNlp& p, FlagSet& flags, Environment& environment);

// The environment that start_server makes of the user's: new names filled from old ones, its own defaults for the rest.
// `model_name`: its argument, or "".
Environment::Pairs script_environment(Environment::Pairs pairs, const std::string& model_name);

json::Object describe_paddlenlp(const PaddleNlp& p);

}  // namespace tern::app
