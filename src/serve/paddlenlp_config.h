// What the PaddleNLP front asks of the server (paddlenlp-server.md 1, 2), as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tern::serve {

// Of one GPU; what it does not know is left out.
struct GpuFigures {
  std::string uuid;
  std::optional<double> utilization;                // 0 to 1
  std::optional<double> memory_total, memory_used;  // bytes
  std::optional<double> power_usage, power_limit;   // watts
  std::optional<double> energy;                     // joules since the server started
};

struct PaddleNlpConfig {
  int port = -1;          // of requests; 0: the system chooses; below 0: none
  int grpc_port = -1;     // the same, over gRPC
  int metrics_port = -1;  // below 0: none
  // Tokens of a prompt and of an answer; both together: ServeConfig::max_model_len.
  int32_t seq_len_limit = 8192, dec_len_limit = 1024;
  // Blocks of the cache: tokens of one, all of them, those kept for the answer of a new request, the most that one
  // request takes.
  int32_t block_size = 64, total_blocks = 0, answer_blocks = 2, query_blocks = 0;
  int32_t host_blocks = 0;     // of all: what prompts may take, for the figures
  int32_t batch_size = 50;     // sequences that decode together
  int32_t cached_tasks = 128;  // requests that may wait
  bool disable_streaming = false;
  bool raw_text = false;  // `text` becomes tokens as it is, without the chat template
};

}  // namespace tern::serve
