#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <random>

#include "app/flags/json_text.h"
#include "app/options.h"
#include "app/report.h"
#include "bench/bench.h"
#include "client/load_client.h"

namespace tern::bench {
namespace {

struct ServeBench {
  client::LoadPlan plan;
  std::string model = "default", dataset;
  int input_len = 128, output_len = 128, vocab = 1000, prefix_len = 0;
  double range_ratio = 0;
  double temperature = -1, top_p = -1, repetition_penalty = -1;  // below 0: as the server has it
  bool json = false, ignore_eos = true, token_ids = false;
  std::string extra_body;  // JSON object
  double extra_share = 1;  // of the requests that send it
  json::Object extra;
};

// Messages of a line-by-line data set: {"messages": [...]} or a list of messages.
Expected<std::vector<json::Value>> read_dataset(const std::string& path, int count) {
  std::ifstream file(path);
  if (!file) return make_error(ErrorCode::kNotFound, fmt::format("{} cannot be read", path), "dataset-path");
  std::vector<json::Value> items;
  for (std::string line; static_cast<int>(items.size()) < count && std::getline(file, line);) {
    if (line.empty()) continue;
    TERN_ASSIGN_OR_RETURN(json::Value value, json::parse(line));
    const json::Object* object = value.if_object();
    const json::Value* messages = object != nullptr ? json::find(*object, "messages") : &value;
    if (messages == nullptr || !messages->is_array()) {
      return make_error(ErrorCode::kCorrupt, fmt::format("{}: line {} has no messages", path, items.size() + 1),
                        "dataset-path");
    }
    json::Value kept = *messages;
    items.push_back(std::move(kept));
  }
  if (items.empty()) return make_error(ErrorCode::kInvalidArgument, path + " has no lines", "dataset-path");
  return items;
}

// Spread evenly over the requests.
bool sends_extra(const ServeBench& o, int index) {
  return !o.extra.empty() && std::floor((index + 1) * o.extra_share) > std::floor(index * o.extra_share);
}

json::Object common_body(const ServeBench& o, int index) {
  json::Object body{{"model", o.model}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
  if (o.temperature >= 0) body["temperature"] = o.temperature;
  if (o.top_p >= 0) body["top_p"] = o.top_p;
  if (o.repetition_penalty >= 0) body["repetition_penalty"] = o.repetition_penalty;
  if (o.ignore_eos) body["ignore_eos"] = true;
  if (o.token_ids) body["return_token_ids"] = true;
  body["max_tokens"] = o.output_len;
  if (!sends_extra(o, index)) return body;
  for (const auto& [key, value] : o.extra) {
    if (value.is_null()) {
      body.erase(key);
    } else {
      body[key] = value;
    }
  }
  return body;
}

// Prompts of random ids; the first prefix_len are the same in all.
std::string random_body(const ServeBench& o, int index) {
  std::mt19937_64 shared(o.plan.seed), own(o.plan.seed * 1'000'003 + static_cast<uint64_t>(index) + 1);
  std::uniform_int_distribution<int> id(5, o.vocab - 1);
  auto spread = [&](int length) {
    const double ratio = std::uniform_real_distribution<double>(1 - o.range_ratio, 1 + o.range_ratio)(own);
    return std::max(1, static_cast<int>(length * ratio));
  };
  json::Array prompt;
  for (int i = 0; i < o.prefix_len; ++i) prompt.push_back(id(shared));
  const int length = o.range_ratio > 0 ? spread(o.input_len) : o.input_len;
  for (int i = 0; i < length; ++i) prompt.push_back(id(own));
  json::Object body = common_body(o, index);
  body["prompt"] = std::move(prompt);
  if (o.range_ratio > 0) body["max_tokens"] = spread(o.output_len);
  return json::dump(body);
}

void add_fields(app::Options& parser, ServeBench& o) {
  parser.add_option("--temperature", o.temperature, "Temperature of sampling");
  parser.add_option("--top-p", o.top_p, "Of sampling");
  parser.add_option("--repetition-penalty", o.repetition_penalty, "Of sampling");
  parser.add_option("--extra-body", o.extra_body,
                    "JSON object: further fields of the requests; null takes a field out");
  parser
      .add_option("--extra-share", o.extra_share,
                  "Share of the requests that send them; below 1 the others' times are also printed alone")
      .capture_default_str()
      .range(0.0, 1.0);
}

Status read_extra(ServeBench& o) {
  if (o.extra_body.empty()) return {};
  auto value = json::parse(o.extra_body);
  if (!value.ok() || !value->is_object()) {
    return make_error(ErrorCode::kInvalidArgument, "--extra-body is no JSON object", "extra-body");
  }
  o.extra = std::move(value->get_object());
  return {};
}

// The requests that sent nothing extra: what the others cost them.
json::Object summarize_plain(const ServeBench& o, const client::LoadReport& report) {
  client::LoadReport plain{.results = {}, .seconds = report.seconds, .cpu_seconds = report.cpu_seconds};
  for (size_t i = 0; i < report.results.size(); ++i) {
    if (!sends_extra(o, static_cast<int>(i))) plain.results.push_back(report.results[i]);
  }
  return client::summarize(plain);
}

int print_summary(const ServeBench& o, const client::LoadReport& report) {
  json::Object summary = client::summarize(report);
  std::string text = client::summary_text(summary);
  if (!o.extra.empty() && o.extra_share < 1) {
    summary["without_extra"] = summarize_plain(o, report);
    text += "\nwithout --extra-body:\n" + client::summary_text(summary.at("without_extra").get_object());
  }
  fmt::print("{}", o.json ? app::json_line(summary) + "\n" : text);
  return summary.at("failed").as_int64() == 0 ? 0 : app::kFailureExit;
}

}  // namespace

int run_bench_serve(const std::vector<std::string>& args) {
  app::Options parser("Sends streamed requests to a server and prints the times a client sees", "tern bench serve");
  ServeBench o;
  client::LoadPlan& plan = o.plan;
  parser.add_option("--url,--base-url", plan.url, "Address of the server").capture_default_str();
  parser.add_option("--model", o.model, "Model to name in requests").capture_default_str();
  parser.add_option("--api-key", plan.api_key, "Bearer key");
  parser.add_option("--ca-file", plan.ca_file, "Certificates to trust for https (PEM) instead of the system's");
  parser.add_option("--requests,--num-prompts", plan.requests, "Requests in all")
      .capture_default_str()
      .range(1, 10'000'000);
  parser.add_option("--concurrency,--max-concurrency", plan.concurrency, "Open at a time")
      .capture_default_str()
      .range(1, 60'000);
  parser.add_option("--request-rate", plan.rate, "Requests per second, spaced at random; 0: no spacing")
      .capture_default_str()
      .non_negative();
  parser.add_option("--input-len,--random-input-len", o.input_len, "Prompt tokens")
      .capture_default_str()
      .range(1, 1 << 22);
  parser.add_option("--output-len,--random-output-len", o.output_len, "Answer tokens")
      .capture_default_str()
      .range(1, 1 << 22);
  parser.add_option("--prefix-len", o.prefix_len, "Further prompt tokens that all requests share")
      .capture_default_str()
      .range(0, 1 << 22);
  parser.add_option("--range-ratio,--random-range-ratio", o.range_ratio, "Lengths vary by this share")
      .capture_default_str()
      .range(0.0, 1.0);
  parser.add_option("--vocab", o.vocab, "Random ids are below this").capture_default_str().range(6, 1 << 30);
  add_fields(parser, o);
  parser.add_option("--dataset-path", o.dataset, "JSON lines with messages, sent as chats instead of random prompts");
  parser.add_option("--seed", plan.seed, "Of prompts and spacing").capture_default_str();
  parser.add_flag("!--no-ignore-eos", o.ignore_eos, "Lets answers end early");
  parser.add_flag("--token-ids", o.token_ids, "Asks for token ids, for models whose ids are no text");
  parser.add_flag("--json", o.json, "Prints one JSON object");
  if (const auto status = app::parse_options(parser, args)) return *status;

  if (const Status read = read_extra(o); !read.ok()) return app::report(read.error());
  std::vector<json::Value> chats;
  plan.body = [&](int index) { return random_body(o, index); };
  if (!o.dataset.empty()) {
    auto items = read_dataset(o.dataset, plan.requests);
    if (!items.ok()) return app::report(items.error());
    chats = std::move(items).value();
    plan.endpoint = "/v1/chat/completions";
    plan.body = [&](int index) {
      json::Object body = common_body(o, index);
      body["messages"] = chats[static_cast<size_t>(index) % chats.size()];
      return json::dump(body);
    };
  }
  const auto result = client::run_load(plan);
  if (!result.ok()) return app::report(result.error());
  return print_summary(o, *result);
}

}  // namespace tern::bench
