#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "app/flags/environment.h"
#include "app/flags/flags.h"
#include "app/flags/yaml_file.h"
#include "app/hub/find_folder.h"
#include "bench/serve/serve_bench.h"
#include "content/text/tokenizer.h"

namespace tern::bench {
namespace {

Error wrong(std::string what, const char* flag) {
  return make_error(ErrorCode::kInvalidArgument, std::move(what), flag);
}

Status refuse(const ServeBench& o) {
  if (o.beam) return wrong("--use-beam-search: there is no beam search", "use-beam-search");
  if (o.profile) return wrong("--profile: the server has no profiler; tern serve --trace writes its steps", "profile");
  if (o.remote_code) return wrong("--trust-remote-code: no Python code runs in this program", "trust-remote-code");
  if (!o.adapters.empty()) return wrong("--lora-modules: this build loads no adapters", "lora-modules");
  if (o.tokenizer_mode != "auto") return wrong("--tokenizer-mode: there is one, auto", "tokenizer-mode");
  if (o.ignore_eos && o.keep_eos) return wrong("--ignore-eos and --no-ignore-eos: one of them", "ignore-eos");
  return {};
}

Status read_dataset(ServeBench& o) {
  if (o.dataset_name.empty()) o.dataset_name = o.dataset_path.empty() ? "random" : "EBChat";
  if (o.random() && !o.dataset_path.empty())
    return wrong("--dataset-path needs --dataset-name EBChat, EB or sharegpt", "dataset-path");
  if (!o.random() && o.dataset_path.empty())
    return wrong(fmt::format("--dataset-name {} needs --dataset-path", o.dataset_name), "dataset-path");
  if (o.backend.empty()) o.backend = o.random() || o.dataset_name == "EB" ? "openai" : "openai-chat";
  if (o.random()) {
    constexpr int kOutput = 128;  // as the published benchmark
    if (o.output_len == 0) o.output_len = kOutput;
    return {};
  }
  std::unique_ptr<content::Tokenizer> tokenizer;
  if (!o.tokenizer.empty()) {
    TERN_ASSIGN_OR_RETURN(const app::Environment environment, app::Environment::from(app::Environment::of_process()));
    const std::string folder = app::find_folder(o.tokenizer, environment);
    if (folder.empty())
      return make_error(ErrorCode::kNotFound, fmt::format("there is no folder {}", o.tokenizer), "tokenizer");
    TERN_ASSIGN_OR_RETURN(tokenizer, content::Tokenizer::load(folder));
  }
  TERN_ASSIGN_OR_RETURN(o.samples, read_samples({.name = o.dataset_name,
                                                 .path = o.dataset_path,
                                                 .count = o.prompts,
                                                 .seed = o.plan.seed,
                                                 .shuffle = o.shuffle,
                                                 .oversample = !o.no_oversample,
                                                 .output_len = o.output_len,
                                                 .tokenizer = tokenizer.get()}));
  o.prompts = static_cast<int>(o.samples.size());
  return {};
}

// A request for each message of a user.
Status read_turns(ServeBench& o) {
  if (!o.multi_turn) return {};
  if (o.random() || !o.chats()) return wrong("--multi-turn needs a data set of chats", "multi-turn");
  for (size_t i = 0; i < o.samples.size(); ++i) {
    const json::Array& messages = o.samples[i].messages;
    size_t begin = 0;
    for (size_t k = 0; k < messages.size(); ++k) {
      const json::Object* message = messages[k].if_object();
      const json::Value* role = message != nullptr ? json::find(*message, "role") : nullptr;
      if (role == nullptr || *role != "user") continue;
      o.turns.push_back({i, begin, k + 1});
      begin = k + 1;
    }
  }
  if (o.turns.empty()) return wrong("--multi-turn: no message of the data set is a user's", "multi-turn");
  o.histories.resize(o.samples.size());
  return {};
}

Status read_fields(ServeBench& o) {
  if (!o.hyperparameters.empty()) {
    TERN_ASSIGN_OR_RETURN(o.hyper, app::read_yaml_object(o.hyperparameters, "hyperparameter-path"));
  }
  if (o.extra_body.empty()) return {};
  auto value = json::parse(o.extra_body);
  if (!value.ok() || !value->is_object()) return wrong("--extra-body is no JSON object", "extra-body");
  o.extra = std::move(value->get_object());
  return {};
}

Status read_ramp(ServeBench& o) {
  client::LoadPlan& plan = o.plan;
  if (!(o.rate > 0)) return wrong("--request-rate: above 0, or inf for no spacing", "request-rate");
  plan.rate = std::isinf(o.rate) ? 0 : o.rate;
  if (o.ramp.empty()) {
    if (o.ramp_start >= 0 || o.ramp_end >= 0)
      return wrong("--ramp-up-start-rps and --ramp-up-end-rps need --ramp-up-strategy", "ramp-up-strategy");
    return {};
  }
  if (!std::isinf(o.rate)) return wrong("--ramp-up-strategy: --request-rate has no meaning beside it", "request-rate");
  if (o.ramp_start < 0 || o.ramp_end < 1 || o.ramp_start > o.ramp_end)
    return wrong("--ramp-up-strategy needs --ramp-up-start-rps and a higher --ramp-up-end-rps", "ramp-up-start-rps");
  plan.geometric = o.ramp == "exponential";
  if (plan.geometric && o.ramp_start == 0) return wrong("--ramp-up-start-rps 0 cannot grow", "ramp-up-start-rps");
  plan.rate = o.ramp_start, plan.last_rate = o.ramp_end;
  return {};
}

Expected<double> number(std::string_view text, const char* flag) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return wrong(fmt::format("--{}: {} is no number", flag, text), flag);
  return value;
}

Status read_wishes(ServeBench& o) {
  for (const std::string_view text : app::split(o.metric_percentiles, ',')) {
    TERN_ASSIGN_OR_RETURN(const double percent, number(text, "metric-percentiles"));
    if (percent < 0 || percent > 100) return wrong("--metric-percentiles: from 0 to 100", "metric-percentiles");
    o.percentiles.push_back(percent);
  }
  for (const std::string& pair : o.goodput) {
    const size_t colon = pair.find(':');
    const std::string name = pair.substr(0, colon);
    if (colon == std::string::npos || (name != "ttft" && name != "tpot" && name != "e2el"))
      return wrong(fmt::format("--goodput {}: ttft, tpot or e2el, a colon and milliseconds", pair), "goodput");
    TERN_ASSIGN_OR_RETURN(o.goals[name], number(std::string_view(pair).substr(colon + 1), "goodput"));
  }
  for (const std::string& pair : o.metadata) {
    if (pair.find('=') == std::string::npos) return wrong(fmt::format("--metadata {}: KEY=VALUE", pair), "metadata");
  }
  for (const std::string& pair : o.headers) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || pair.find_first_of("\r\n") != std::string::npos)
      return wrong(fmt::format("--header {}: KEY=VALUE", pair), "header");
    o.plan.headers.push_back(pair.substr(0, equals) + ": " + pair.substr(equals + 1));
  }
  return {};
}

void add_requests(app::Options& parser, ServeBench& o) {
  parser.add_option("--dataset-name", o.dataset_name, "random ids, or a file; without it by --dataset-path")
      .one_of({"random", "EBChat", "EB", "sharegpt"});
  parser.add_option("--dataset-path", o.dataset_path,
                    "EBChat: JSON lines of {\"messages\", \"max_tokens\"}; EB: of texts; sharegpt: conversations");
  parser.add_option("--num-prompts,--requests", o.prompts, "Requests in all")
      .capture_default_str()
      .range(1, 10'000'000);
  parser.add_option("--input-len,--random-input-len", o.input_len, "Tokens of a random prompt")
      .capture_default_str()
      .range(1, 1 << 22);
  parser
      .add_option("--output-len,--random-output-len,--sharegpt-output-len", o.output_len,
                  "Tokens of an answer, in place of the data set's; random: 128")
      .range(1, 1 << 22);
  parser
      .add_option("--prefix-len,--random-prefix-len", o.prefix_len,
                  "Further tokens in front, the same in all random prompts")
      .capture_default_str()
      .range(0, 1 << 22);
  parser
      .add_option("--range-ratio,--random-range-ratio", o.range_ratio, "Lengths of random requests vary by this share")
      .capture_default_str()
      .range(0.0, 1.0);
  parser.add_option("--vocab", o.vocab, "Random ids are below this").capture_default_str().range(6, 1 << 30);
  parser.add_option("--tokenizer", o.tokenizer, "Model folder whose tokenizer measures sharegpt's answers");
  parser.add_option("--tokenizer-mode", o.tokenizer_mode, "There is one").capture_default_str();
  parser.add_option("--seed", o.plan.seed, "Of prompts, their order and spacing").capture_default_str();
  parser.add_flag("--shuffle", o.shuffle, "Another order of the file's requests");
  parser.add_flag("--multi-turn", o.multi_turn,
                  "Chats are led turn by turn: each behind the model's own answers to those before");
  parser.add_flag("--no-oversample", o.no_oversample, "Fewer requests where the file has fewer");
  parser.add_flag("--no-stream", o.no_stream, "Files are read as a whole in any case");
}

void add_fields(app::Options& parser, ServeBench& o) {
  parser.add_option("--model", o.model, "Model to name in requests").capture_default_str();
  parser.add_option("--served-model-name", o.served_name, "The same, where --model is a path");
  parser.add_option("--temperature", o.temperature, "Of sampling; of files without it 0, else the server's");
  parser.add_option("--top-p", o.top_p, "Of sampling");
  parser.add_option("--top-k", o.top_k, "Of sampling");
  parser.add_option("--min-p", o.min_p, "Of sampling");
  parser.add_option("--repetition-penalty", o.repetition_penalty, "Of sampling");
  parser.add_option("--logprobs", o.logprobs, "Log-probs of so many tokens with each").range(0, 1000);
  parser.add_flag("--ignore-eos", o.ignore_eos, "Answers have their full length; so have random ones");
  parser.add_flag("--no-ignore-eos", o.keep_eos, "Random answers may end early");
  parser.add_flag("--token-ids", o.token_ids, "Asks for token ids, for models whose ids are no text");
  parser.add_flag("--pd-metrics", o.metrics, "Asks for the server's own times of each request (collect_metrics)");
  parser.add_option("--hyperparameter-path", o.hyperparameters, "YAML file of further fields of the requests");
  parser.add_option("--extra-body", o.extra_body,
                    "JSON object: further fields of the requests; null takes a field out");
  parser
      .add_option("--extra-share", o.extra_share,
                  "Share of the requests that send them; below 1 the others' times are also printed alone")
      .capture_default_str()
      .range(0.0, 1.0);
  parser.add_flag("--use-beam-search", o.beam, "Refused: there is no beam search");
  parser.add_option("--lora-modules", o.adapters, "Refused: this build loads no adapters");
  parser.add_flag("--trust-remote-code", o.remote_code, "Refused: no Python code runs in this program");
}

void add_traffic(app::Options& parser, ServeBench& o) {
  parser.add_option("--backend", o.backend, "openai-chat: chats; openai: completions; without it by the data set")
      .one_of({"openai-chat", "openai"});
  parser.add_option("--base-url,--url", o.base_url, "Address of the server, in place of --host and --port");
  parser.add_option("--host", o.host, "Host of the server").capture_default_str();
  parser.add_option("--port", o.port, "Port of the server").capture_default_str().range(1, 65535);
  parser.add_option("--ip-list", o.servers,
                    "HOST:PORT,...: several servers in place of --host and --port, evenly used");
  parser.add_option("--endpoint", o.endpoint, "Route; without it by the backend");
  parser.add_option("--api-key", o.plan.api_key, "Bearer key");
  parser.add_option("--ca-file", o.plan.ca_file, "Certificates to trust for https (PEM) instead of the system's");
  parser.add_option("--header", o.headers, "Further headers, KEY=VALUE");
  parser.add_option("--max-concurrency,--concurrency", o.concurrency, "Open at a time; without it all")
      .range(1, 60'000);
  parser.add_option("--request-rate", o.rate, "Requests per second, spaced at random; inf: no spacing")
      .capture_default_str();
  parser.add_option("--burstiness", o.plan.burstiness, "Below 1 spaces are less even than Poisson's, above 1 more")
      .capture_default_str()
      .range(1e-3, 1e6);
  parser.add_option("--ramp-up-strategy", o.ramp, "How the rate grows from the first to the last request")
      .one_of({"linear", "exponential"});
  parser.add_option("--ramp-up-start-rps", o.ramp_start, "Requests per second at the begin").range(0, 1'000'000);
  parser.add_option("--ramp-up-end-rps", o.ramp_end, "Requests per second at the end").range(1, 1'000'000);
  parser.add_option("--ready-check-timeout-sec", o.ready_seconds, "Waits so long for the server's /health")
      .capture_default_str()
      .range(0, 86'400);
}

void add_results(app::Options& parser, ServeBench& o) {
  parser
      .add_option("--percentile-metrics", o.percentile_metrics,
                  "Of ttft, tpot, itl, e2el, s_ttft, s_itl, s_e2el, s_decode, input_len, s_input_len, output_len")
      .capture_default_str();
  parser.add_option("--metric-percentiles", o.metric_percentiles, "Percentiles of them").capture_default_str();
  parser.add_option("--goodput", o.goodput, "Goals of a good request, ttft:MS, tpot:MS, e2el:MS");
  parser.add_flag("--save-result", o.save, "Writes a file of the result");
  parser.add_flag("--save-detailed", o.save_detailed, "With figures and texts of every request");
  parser.add_flag("--append-result", o.append, "Adds the result to the file");
  parser.add_option("--result-dir", o.result_folder, "Folder of that file");
  parser.add_option("--result-filename", o.result_file, "Name of that file");
  parser.add_option("--label", o.label, "Begin of its name; without it the backend");
  parser.add_option("--metadata", o.metadata, "Further values of that file, KEY=VALUE");
  parser.add_flag("--json", o.json, "Prints one JSON object, with other figures");
  parser.add_flag("--debug", o.debug, "Prints every request's body on stderr");
  parser.add_flag("--disable-tqdm", o.no_bar, "There is no progress bar in any case");
  parser.add_flag("--profile", o.profile, "Refused: tern serve --trace writes the server's steps");
}

}  // namespace

void add_serve_options(app::Options& parser, ServeBench& o) {
  o.plan.seed = 0;
  add_traffic(parser, o);
  add_requests(parser, o);
  add_fields(parser, o);
  add_results(parser, o);
}

Status prepare_serve(ServeBench& o) {
  TERN_RETURN_IF_ERROR(refuse(o));
  TERN_RETURN_IF_ERROR(read_wishes(o));
  TERN_RETURN_IF_ERROR(read_ramp(o));
  TERN_RETURN_IF_ERROR(read_fields(o));
  TERN_RETURN_IF_ERROR(read_dataset(o));
  TERN_RETURN_IF_ERROR(read_turns(o));
  constexpr int kMostSockets = 60'000;
  client::LoadPlan& plan = o.plan;
  plan.url = o.base_url.empty() ? fmt::format("http://{}:{}", o.host, o.port) : o.base_url;
  plan.endpoint = !o.endpoint.empty() ? o.endpoint : o.chats() ? "/v1/chat/completions" : "/v1/completions";
  if (!o.servers.empty()) {
    if (!o.base_url.empty()) return wrong("--ip-list and --base-url: one of them", "ip-list");
    for (const std::string& list : o.servers) {
      for (const std::string_view server : app::split(list, ','))
        plan.others.push_back(fmt::format("http://{}", server));
    }
    if (plan.others.empty()) return wrong("--ip-list names no server", "ip-list");
    plan.url = plan.others.front();
    plan.others.erase(plan.others.begin());
  }
  plan.requests = o.multi_turn ? static_cast<int>(o.turns.size()) : o.prompts;
  plan.concurrency = std::min(o.concurrency > 0 ? o.concurrency : o.prompts, kMostSockets);
  plan.texts = o.save_detailed || o.multi_turn;
  if (!o.multi_turn) return {};
  plan.follows = [&o](int index) {
    const auto i = static_cast<size_t>(index);
    return o.turns[i].sample == o.turns[i - 1].sample;
  };
  plan.ended = [&o](int index, const client::LoadResult& result) {
    o.histories[o.turns[static_cast<size_t>(index)].sample].push_back(
        json::Object{{"role", "assistant"}, {"content", result.text}});
  };
  return {};
}

}  // namespace tern::bench
