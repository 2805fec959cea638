// Figures of the PaddleNLP front (paddlenlp-server.md 4.2).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "serve/report/metrics.h"

namespace tern::serve {
namespace {

void append_family(std::string& out, std::string_view name, std::string_view help, std::string_view type) {
  out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void append_resource(std::string& out, std::string_view what, double value) {
  out += fmt::format("inference_server_metrics{{{0}=\"{0}\"}} ", what);
  append_sample(out, value);
  out += '\n';
}

void append_model(std::string& out, std::string_view name, std::string_view help, std::string_view type, double value,
                  std::string_view label = "") {
  append_family(out, name, help, type);
  out += fmt::format("{}{{model=\"model\",version=\"1\"{}}} ", name, label);
  append_sample(out, value);
  out += '\n';
}

}  // namespace

std::string Metrics::paddlenlp_text(const engine::EngineStats& s, int queued, int host_blocks) const {
  std::string out;
  append_family(out, "inference_server_metrics", "Metrics for monitoring inference server status", "gauge");
  // Blocks that only the prefix cache holds can be taken by the next request.
  const int used = s.total_blocks - s.usable_blocks;
  const int most = host_blocks > 0 ? std::min(host_blocks, s.total_blocks) : s.total_blocks;
  const int available = std::max(0, most - used);
  append_resource(out, "batch_size", s.running);
  append_resource(out, "max_batch_size", s.max_num_seqs);
  append_resource(out, "block_num", available);
  append_resource(out, "max_block_num", most);
  append_resource(out, "available_resource", most > 0 ? static_cast<double>(available) / most : 0.0);

  const auto count = [&](Count which) { return static_cast<double>(total(which)); };
  const auto microseconds = [&](Hist hist) {
    double sum = 0;
    for (const auto& shard : shards_) sum += shard->hists_[static_cast<size_t>(hist)]->sum();
    return std::floor(sum * 1e6);
  };
  append_model(out, "nv_inference_request_success", "Number of successful inference requests", "counter",
               count(Count::kSuccess));
  append_model(out, "nv_inference_request_failure", "Number of failed inference requests", "counter",
               count(Count::kFailed), ",reason=\"OTHER\"");
  append_model(out, "nv_inference_count", "Number of inferences performed", "counter", count(Count::kSuccess));
  append_model(out, "nv_inference_exec_count", "Number of model executions performed", "counter",
               static_cast<double>(s.steps));
  append_model(out, "nv_inference_pending_request_count", "Number of requests that wait", "gauge", s.waiting + queued);
  append_model(out, "nv_inference_request_duration_us", "Cumulative request duration in microseconds", "counter",
               microseconds(Hist::kEndToEnd));
  append_model(out, "nv_inference_queue_duration_us", "Cumulative queuing duration in microseconds", "counter",
               microseconds(Hist::kQueue));
  append_model(out, "nv_inference_compute_input_duration_us", "Cumulative duration of prompts in microseconds",
               "counter", microseconds(Hist::kPrefill));
  append_model(out, "nv_inference_compute_infer_duration_us", "Cumulative inference duration in microseconds",
               "counter", microseconds(Hist::kInference));
  append_model(out, "nv_inference_compute_output_duration_us", "Cumulative duration of answers in microseconds",
               "counter", microseconds(Hist::kDecode));
  return out;
}

void append_gpus(std::string& out, const std::vector<GpuFigures>& gpus) {
  struct Family {
    std::string_view name, help, type;
    std::optional<double> GpuFigures::*value;
  };
  static constexpr Family kFamilies[] = {
      {"nv_gpu_utilization", "GPU utilization rate [0.0 - 1.0)", "gauge", &GpuFigures::utilization},
      {"nv_gpu_memory_total_bytes", "GPU total memory, in bytes", "gauge", &GpuFigures::memory_total},
      {"nv_gpu_memory_used_bytes", "GPU used memory, in bytes", "gauge", &GpuFigures::memory_used},
      {"nv_gpu_power_usage", "GPU power usage in watts", "gauge", &GpuFigures::power_usage},
      {"nv_gpu_power_limit", "GPU power management limit in watts", "gauge", &GpuFigures::power_limit},
      {"nv_energy_consumption", "GPU energy consumption in joules since the server started", "counter",
       &GpuFigures::energy}};
  for (const Family& family : kFamilies) {
    if (std::ranges::none_of(gpus, [&](const GpuFigures& gpu) { return (gpu.*family.value).has_value(); })) continue;
    append_family(out, family.name, family.help, family.type);
    for (const GpuFigures& gpu : gpus) {
      const auto& value = gpu.*family.value;
      if (!value) continue;
      out += fmt::format("{}{{gpu_uuid=\"{}\"}} ", family.name, gpu.uuid);
      append_sample(out, *value);
      out += '\n';
    }
  }
}

}  // namespace tern::serve
