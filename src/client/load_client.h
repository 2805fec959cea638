// A load generator: streamed requests over HTTP, many at a time, with the times a client sees. It has a loop and
// sockets of its own: what libcurl takes per event would be counted as the server's (docs/dependencies.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "json/json.h"

namespace tern::client {

struct LoadResult;

struct LoadPlan {
  std::string url = "http://127.0.0.1:8000";
  std::string endpoint = "/v1/completions";
  std::string api_key;
  std::string ca_file;  // certificates to trust for https, PEM; "": the system's
  int requests = 64;
  int concurrency = 16;
  double rate = 0;         // requests per second, spaced at random; 0: as fast as concurrency allows
  double last_rate = 0;    // of the last request, when it is another; 0: `rate` throughout
  bool geometric = false;  // on the way there the rate is multiplied by the same for each request; else added to
  double burstiness = 1;   // shape of the gamma distribution of spaces; 1: Poisson
  bool texts = false;      // keeps what was said
  std::vector<std::string> headers;  // "name: value"
  uint64_t seed = 1;
  std::function<std::string(int index)> body;  // JSON with "stream": true
  // Further servers, without paths; connections are shared out evenly.
  std::vector<std::string> others;
  // Request `index` is sent when the one before it has been answered; null: none is.
  std::function<bool(int index)> follows;
  // Told when a request has ended, before the next one's body is asked for; null: nobody is.
  std::function<void(int index, const LoadResult& result)> ended;
};

struct LoadResult {
  bool ok = false;
  int status = 0;
  std::string error;
  double first = 0;              // seconds from sending to the first token
  double total = 0;              // seconds from sending to the end
  std::vector<float> gaps;       // seconds between chunks
  std::vector<double> arrivals;  // arrival_time of the chunks: seconds at the server since the request came
  int chunks = 0;                // with text or ids
  int prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  std::string text, thoughts;               // with LoadPlan::texts
  json::Value first_metrics, last_metrics;  // "metrics" of chunks (collect_metrics); null: none came
};

struct LoadReport {
  std::vector<LoadResult> results;
  double seconds = 0;
  double cpu_seconds = 0;  // of this process meanwhile: near `seconds`, the generator itself is what is measured
};

// Runs the plan. Errors: a bad URL. What goes wrong with single requests stands in their results.
Expected<LoadReport> run_load(const LoadPlan& plan);

// The `share` (0 to 1) quantile with linear interpolation; 0 of nothing. Sorts `values`.
double quantile(std::vector<double>& values, double share);
// Counts, rates, and mean, median and percentiles of TTFT, TPOT, gaps and whole times, in milliseconds.
json::Object summarize(const LoadReport& report);
std::string summary_text(const json::Object& summary);

}  // namespace tern::client
