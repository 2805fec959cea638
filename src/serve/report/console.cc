// Lines for the console.
#include <fmt/format.h>

#include "serve/server.h"

namespace tern::serve {

std::string startup_lines(const ServeConfig& config, int port, int metrics_port) {
  if (!config.uds.empty()) return fmt::format("INFO:     Running on unix:{} (Press CTRL+C to quit)", config.uds);
  const int metrics = metrics_port > 0 ? metrics_port : port;
  return fmt::format(
      "Launching metrics service at {3}://{0}:{2}/metrics\n"
      "Launching chat completion service at {3}://{0}:{1}/v1/chat/completions\n"
      "Launching completion service at {3}://{0}:{1}/v1/completions\n"
      "INFO:     Uvicorn running on {3}://{0}:{1} (Press CTRL+C to quit)",
      config.host, port, metrics, config.tls != nullptr ? "https" : "http");
}

std::string scheduler_line(const engine::EngineStats& before, const engine::EngineStats& now, double seconds) {
  const uint64_t prompt = now.prompt_tokens - before.prompt_tokens,
                 generated = now.generated_tokens - before.generated_tokens;
  if (prompt == 0 && generated == 0 && now.running == 0 && now.waiting == 0) return {};
  const double blocks = now.total_blocks;
  const double usage = blocks > 0 ? 1.0 - now.usable_blocks / blocks : 0.0;  // as gpu_cache_usage_perc
  const double hits = static_cast<double>(now.prefix_hit_tokens - before.prefix_hit_tokens);
  const double per = seconds > 0 ? 1.0 / seconds : 0.0;
  const uint64_t steps = now.steps - before.steps, replayed = now.graph_steps - before.graph_steps;
  const std::string graphs =
      replayed == 0
          ? ""
          : fmt::format(", graphs {:.1f} %", 100.0 * static_cast<double>(replayed) / static_cast<double>(steps));
  return fmt::format(
      "Scheduler: running {}, waiting {}, preempted {}, prefill {:.1f} tokens/s ({:.0f} cached), decode {:.1f} "
      "tokens/s, "
      "token usage {:.2f}{}",
      now.running, now.waiting, now.preempted_waiting, static_cast<double>(prompt) * per, hits,
      static_cast<double>(generated) * per, usage, graphs);
}

bool open_to_everyone(const ServeConfig& config) {
  return config.api_keys.empty() && config.uds.empty() && config.host != "localhost" &&
         !config.host.starts_with("127.") && config.host != "::1";
}

}  // namespace tern::serve
