// FastDeploy's figures of a run, with its names. Times of the server (s_) come from arrival_time of the chunks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "app/flags/flags.h"
#include "bench/serve/serve_bench.h"

namespace tern::bench {
namespace {

using Values = std::vector<double>;

struct Series {
  Values ttft, tpot, itl, e2el, s_ttft, s_itl, s_e2el, s_decode, cached, prompt, output;
  int64_t completed = 0, good = 0, input_tokens = 0, output_tokens = 0;
};

int output_of(const client::LoadResult& r) { return r.completion_tokens > 0 ? r.completion_tokens : r.chunks; }

// The first token's arrival_time counts from the request's arrival, those behind it from the start of inference: spaces
// and speed begin at the second.
void add_server_times(const client::LoadResult& r, Series& s) {
  if (r.arrivals.empty()) return;
  s.s_ttft.push_back(r.arrivals.front());
  s.s_e2el.push_back(r.arrivals.back());
  for (size_t i = 2; i < r.arrivals.size(); ++i) s.s_itl.push_back(r.arrivals[i] - r.arrivals[i - 1]);
  if (r.arrivals.size() < 3 || output_of(r) < 3) return;
  const double span = r.arrivals.back() - r.arrivals[1];
  if (span > 0) s.s_decode.push_back((output_of(r) - 2) / span);
}

bool meets(const ServeBench& o, double ttft, double tpot, double e2el) {
  const auto met = [&](const char* name, double seconds) {
    const auto goal = o.goals.find(name);
    return goal == o.goals.end() || 1e3 * seconds <= goal->second;
  };
  return met("ttft", ttft) && met("tpot", tpot) && met("e2el", e2el);
}

Series series_of(const ServeBench& o, const client::LoadReport& report) {
  Series s;
  for (const client::LoadResult& r : report.results) {
    if (!r.ok) continue;
    const int tokens = output_of(r);
    const double tpot = tokens > 1 ? (r.total - r.first) / (tokens - 1) : 0;
    ++s.completed;
    s.good += meets(o, r.first, tpot, r.total) ? 1 : 0;
    s.input_tokens += r.prompt_tokens, s.output_tokens += tokens;
    s.ttft.push_back(r.first), s.e2el.push_back(r.total);
    if (tokens > 1) s.tpot.push_back(tpot);
    s.itl.insert(s.itl.end(), r.gaps.begin(), r.gaps.end());
    s.cached.push_back(r.cached_tokens), s.prompt.push_back(r.prompt_tokens), s.output.push_back(tokens);
    add_server_times(r, s);
  }
  return s;
}

struct Metric {
  const char *key, *name, *title;
  Values Series::*values;
  bool time;  // printed in milliseconds
};
// In the order in which they are printed. "input_len" holds cached tokens there, too.
constexpr Metric kMetrics[] = {
    {"s_decode", "Decode", "解码速度(tok/s)", &Series::s_decode, false},
    {"ttft", "TTFT", "Time to First Token", &Series::ttft, true},
    {"s_ttft", "S_TTFT", "Infer Time to First Token", &Series::s_ttft, true},
    {"tpot", "TPOT", "Time per Output Token (excl. 1st token)", &Series::tpot, true},
    {"itl", "ITL", "Inter-token Latency", &Series::itl, true},
    {"s_itl", "S_ITL", "Infer Inter-token Latency", &Series::s_itl, true},
    {"e2el", "E2EL", "End-to-end Latency", &Series::e2el, true},
    {"s_e2el", "S_E2EL", "Infer End-to-end Latency", &Series::s_e2el, true},
    {"input_len", "Cached Tokens", "Cached Tokens", &Series::cached, false},
    {"s_input_len", "Input Length", "Infer Input Length", &Series::prompt, false},
    {"output_len", "Output Length", "Output Length", &Series::output, false},
};

double mean(const Values& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation(const Values& values) {
  const double middle = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - middle) * (value - middle);
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

void add_line(std::string& text, const std::string& name, const std::string& value) {
  text += fmt::format("{:<40} {:<10}\n", name, value);
}

void add_metric(const ServeBench& o, const Metric& metric, Values values, ServeResult& out) {
  const double unit = metric.time ? 1e3 : 1;
  const std::string key = std::string(metric.key) + (metric.time ? "_ms" : "");
  const std::string behind = std::string(metric.name) + (metric.time ? " (ms):" : ":");
  const auto put = [&](const std::string& word, const std::string& said, double value) {
    out.values[word + "_" + key] = unit * value;
    if (!said.empty()) add_line(out.text, said + " " + behind, fmt::format("{:.2f}", unit * value));
  };
  out.text += fmt::format("{:-^50}\n", metric.title);
  put("mean", "Mean", mean(values));
  put("median", "Median", client::quantile(values, 0.5));
  put("std", "", deviation(values));
  for (const double percent : o.percentiles)
    put(fmt::format("p{}", percent), fmt::format("P{}", percent), client::quantile(values, percent / 100));
}

// Spans between times that the server sent (--pd-metrics), in seconds.
void add_server_spans(const client::LoadReport& report, json::Object& values) {
  struct Span {
    const char *name, *end, *begin;
  };
  for (const Span& span :
       {Span{"prefill_prepare_cost_time", "inference_start_time", "arrival_time"},
        Span{"preprocess_cost_time", "scheduler_recv_req_time", "arrival_time"},
        Span{"cache_in_scheduler_cost_time", "engine_get_req_time", "scheduler_recv_req_time"},
        Span{"prefill_first_token_infer_cost_time", "engine_recv_first_token_time", "inference_start_time"}}) {
    Values all;
    for (const client::LoadResult& r : report.results) {
      const json::Object* metrics = r.first_metrics.if_object();
      if (!r.ok || metrics == nullptr) continue;
      const auto end = json::get_double(*metrics, span.end), begin = json::get_double(*metrics, span.begin);
      if (end.ok() && begin.ok() && *end && *begin) all.push_back(**end - **begin);
    }
    values[std::string("mean_") + span.name] = mean(all);
    values[std::string("median_") + span.name] = client::quantile(all, 0.5);
  }
}

void add_details(const ServeBench& o, const client::LoadReport& report, json::Object& values) {
  json::Array cached, prompt, output, ttft, itl, asked, said, thoughts, errors;
  for (size_t i = 0; i < report.results.size(); ++i) {
    const client::LoadResult& r = report.results[i];
    cached.push_back(r.cached_tokens), prompt.push_back(r.prompt_tokens), output.push_back(r.ok ? output_of(r) : 0);
    ttft.push_back(r.first);
    itl.push_back(json::Array(r.gaps.begin(), r.gaps.end()));
    asked.emplace_back(o.random() ? "" : last_text(o.sample_of(static_cast<int>(i))));
    said.emplace_back(r.text), thoughts.emplace_back(r.thoughts), errors.emplace_back(r.error);
  }
  values["input_lens"] = std::move(cached), values["infer_input_lens"] = std::move(prompt);
  values["output_lens"] = std::move(output), values["ttfts"] = std::move(ttft), values["itls"] = std::move(itl);
  values["input_texts"] = std::move(asked), values["generated_texts"] = std::move(said);
  values["reasoning_contents"] = std::move(thoughts), values["errors"] = std::move(errors);
}

std::string rate_text(double rate) {
  if (std::isinf(rate)) return "inf";
  std::string text;
  json::append_double(text, rate);
  return text;
}

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &local));
}

// What stands in front of the figures.
json::Object head(const ServeBench& o, const std::string& date) {
  json::Object out{{"date", date},
                   {"endpoint_type", o.backend},
                   {"label", o.label.empty() ? json::Value(nullptr) : json::Value(o.label)},
                   {"model_id", o.model},
                   {"tokenizer_id", o.tokenizer.empty() ? o.model : o.tokenizer},
                   {"num_prompts", o.prompts}};
  for (const std::string& pair : o.metadata) out[pair.substr(0, pair.find('='))] = pair.substr(pair.find('=') + 1);
  out["request_rate"] = std::isinf(o.rate) ? json::Value("inf") : json::Value(o.rate);
  out["burstiness"] = o.plan.burstiness;
  out["max_concurrency"] = o.concurrency > 0 ? json::Value(o.concurrency) : json::Value(nullptr);
  if (!o.ramp.empty()) {
    out["ramp_up_strategy"] = o.ramp;
    out["ramp_up_start_rps"] = o.ramp_start, out["ramp_up_end_rps"] = o.ramp_end;
  }
  return out;
}

std::string file_name(const ServeBench& o, const std::string& date) {
  const std::string traffic = o.ramp.empty() ? rate_text(o.rate) + "qps"
                                             : fmt::format("ramp-up-{}-{}qps-{}qps", o.ramp, o.ramp_start, o.ramp_end);
  return fmt::format("{}-{}{}-{}-{}.json", o.label.empty() ? o.backend : o.label, traffic,
                     o.concurrency > 0 ? fmt::format("-concurrency{}", o.concurrency) : "",
                     o.model.substr(o.model.rfind('/') == std::string::npos ? 0 : o.model.rfind('/') + 1), date);
}

}  // namespace

ServeResult serve_result(const ServeBench& o, const client::LoadReport& report) {
  const Series s = series_of(o, report);
  const double seconds = std::max(report.seconds, 1e-9);
  const auto rate = [&](int64_t count) { return static_cast<double>(count) / seconds; };
  ServeResult out;
  out.text = fmt::format("{:=^50}\n", " Serving Benchmark Result ");
  add_line(out.text, "Successful requests:", fmt::format("{}", s.completed));
  add_line(out.text, "Benchmark duration (s):", fmt::format("{:.2f}", report.seconds));
  add_line(out.text, "Total input tokens:", fmt::format("{}", s.input_tokens));
  add_line(out.text, "Total generated tokens:", fmt::format("{}", s.output_tokens));
  add_line(out.text, "Request throughput (req/s):", fmt::format("{:.3f}", rate(s.completed)));
  if (!o.goals.empty()) add_line(out.text, "Request goodput (req/s):", fmt::format("{:.2f}", rate(s.good)));
  add_line(out.text, "Output token throughput (tok/s):", fmt::format("{:.2f}", rate(s.output_tokens)));
  add_line(out.text, "Total Token throughput (tok/s):", fmt::format("{:.2f}", rate(s.input_tokens + s.output_tokens)));
  json::Object& values = out.values;
  values = {{"duration", report.seconds},
            {"completed", s.completed},
            {"total_input_tokens", s.input_tokens},
            {"total_output_tokens", s.output_tokens},
            {"request_throughput", rate(s.completed)},
            {"request_goodput:", o.goals.empty() ? json::Value(nullptr) : json::Value(rate(s.good))},
            {"output_throughput", rate(s.output_tokens)},
            {"total_token_throughput", rate(s.input_tokens + s.output_tokens)}};
  if (o.save_detailed) add_details(o, report, values);
  const auto wanted = app::split(o.percentile_metrics, ',');
  for (const Metric& metric : kMetrics) {
    if (std::find(wanted.begin(), wanted.end(), metric.key) != wanted.end())
      add_metric(o, metric, s.*metric.values, out);
  }
  if (o.metrics) add_server_spans(report, values);
  out.text += std::string(50, '=') + "\n";
  return out;
}

Status save_result(const ServeBench& o, const json::Object& values) {
  const std::string date = now();
  json::Object out = head(o, date);
  for (const auto& [key, value] : values) out[key] = value;
  std::string path = o.result_file.empty() ? file_name(o, date) : o.result_file;
  if (!o.result_folder.empty()) {
    std::error_code ignored;
    std::filesystem::create_directories(o.result_folder, ignored);
    path = o.result_folder + "/" + path;
  }
  std::ofstream file(path, o.append ? std::ios::binary | std::ios::app : std::ios::binary);
  if (o.append && file && file.tellp() > 0) file << "\n";
  file << json::dump(out);
  file.close();
  return file ? Status() : make_error(ErrorCode::kIo, fmt::format("cannot write {}", path), "result-filename");
}

}  // namespace tern::bench
