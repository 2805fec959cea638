// `tern bench serve`: FastDeploy's benchmark of a running server (fastdeploy.md 11.4, 11.5).
#pragma once

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "app/options.h"
#include "bench/requests/dataset.h"
#include "client/load_client.h"
#include "json/json.h"

namespace tern::bench {

struct ServeBench {
  client::LoadPlan plan;
  // Where to.
  std::string base_url, host = "127.0.0.1", endpoint, backend;
  int port = 8000, ready_seconds = 0;
  // What is asked.
  std::string model = "default", served_name, tokenizer, tokenizer_mode = "auto", dataset_name, dataset_path;
  int prompts = 1000, concurrency = 0, input_len = 1024, output_len = 0, vocab = 1000, prefix_len = 0;
  double range_ratio = 0;
  bool multi_turn = false, shuffle = false, no_oversample = false, ignore_eos = false, keep_eos = false,
       token_ids = false, metrics = false;
  // How it is asked.
  double temperature = -1, top_p = -1, min_p = -1, repetition_penalty = -1;  // below 0: not said
  int top_k = -2, logprobs = -1;
  std::string hyperparameters, extra_body;
  double extra_share = 1;  // of the requests that send it
  json::Object hyper, extra;
  double rate = std::numeric_limits<double>::infinity();
  std::string ramp;
  int ramp_start = -1, ramp_end = -1;
  // What is said of it.
  std::string label, percentile_metrics = "ttft,tpot,itl", metric_percentiles = "99", result_folder, result_file;
  std::vector<std::string> goodput, metadata, headers, adapters, servers;
  bool save = false, save_detailed = false, append = false, json = false, debug = false;
  // Without an effect, or refused.
  bool beam = false, profile = false, remote_code = false, no_bar = false, no_stream = false;

  std::map<std::string, double> goals;  // of --goodput, in milliseconds
  std::vector<double> percentiles;
  std::vector<Sample> samples;  // of a file
  struct Turn {
    size_t sample = 0, begin = 0, end = 0;  // messages [begin, end) of the sample are new to it
  };
  std::vector<Turn> turns;             // of --multi-turn, one a request
  std::vector<json::Array> histories;  // of each sample: what was said so far

  const Sample& sample_of(int index) const {
    return samples[multi_turn ? turns[static_cast<size_t>(index)].sample : static_cast<size_t>(index)];
  }

  bool random() const { return dataset_name == "random"; }
  bool chats() const { return backend == "openai-chat"; }
};

void add_serve_options(app::Options& parser, ServeBench& bench);
// Checks what was given and fills what follows from it: the plan without bodies, samples, goals. Errors: one sentence.
Status prepare_serve(ServeBench& bench);
// The body of a request. Of a later turn: the answers so far stand in it.
std::string serve_body(ServeBench& bench, int index);
// Spread evenly over the requests.
bool sends_extra(const ServeBench& bench, int index);

// FastDeploy's figures of a run, with its names.
struct ServeResult {
  std::string text;     // the table
  json::Object values;  // what its result file holds of the run
};
ServeResult serve_result(const ServeBench& bench, const client::LoadReport& report);
// Writes the file of --save-result and --append-result. Errors: kIo.
Status save_result(const ServeBench& bench, const json::Object& values);

}  // namespace tern::bench
