// The engine: one thread that plans, launches and collects (engine/CONTRACT.md says what each number means when).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "device/communicator.h"
#include "device/device.h"
#include "engine/client.h"
#include "engine/graph_shapes.h"
#include "engine/news_signal.h"
#include "engine/step_trace.h"
#include "model/model.h"
#include "sample/params.h"
#include "sched/scheduler.h"
#include "vision/tower.h"

namespace tern::engine {

class Lockstep;

// Pictures; read only when start() is given a tower. Sizes are limits: a larger item is refused (kTooLarge).
struct VisionConfig {
  int64_t max_item_patches = 0;  // patch rows of the largest item that serve lets in (an image, two frames); required
  int max_item_tokens = 0;       // its placeholders; 0: max_item_patches / merge^2
  // One tower call: smaller pictures, of several requests, are packed up to this.
  int64_t call_patches = 0;  // 0: max_item_patches
  int call_items = 128;
  // Tokens of pictures that one step takes; 0: --max-num-batched-tokens and the largest item. Less lets others' tokens
  // wait less while many pictures arrive, and needs a smaller encoder cache.
  int step_tokens = 0;
  // --max-encoder-cache: rows of encoded pictures kept for the next request, beside what two open steps can need.
  int64_t encoder_cache_tokens = 0;
};

// An engine's place among those that have a copy of the model each (engines.h); the default stands alone.
struct DataParallel {
  int rank = 0, size = 1;
  NewsSignal* news = nullptr;  // told when there is something to poll(); null: this engine alone is polled
  HashKey prefix_key;          // with `news`: of the prefix cache, the same for all
  // This engine's part of the host's memory, in bytes, on a device without memory of its own; 0: all there is.
  size_t memory_total = 0, memory_available = 0;
  Lockstep* lockstep = nullptr;  // of all engines, where they share experts (ranks/lockstep.h)
};

struct EngineConfig {
  sched::SchedulerConfig scheduler;
  std::vector<int32_t> eos_token_ids;
  LogprobsMode logprobs_mode = LogprobsMode::kRawLogprobs;
  int max_logprobs = 20;
  // Number of blocks (fastdeploy.md 6.1).
  int num_blocks_override = 0;      // --num-gpu-blocks-override; 0: by memory
  double memory_utilization = 0.9;  // --gpu-memory-utilization: share of available memory on a CPU
  double prefix_cache_allowance =
      1.0;                   // further blocks for the prefix cache, as a multiple of what all sequences can use
  bool entropy = false;      // --enable-entropy: with each token that of what it was drawn from
  bool kept_tokens = false;  // --enable-keep-sampling-mask: with each token the ids that truncation left
  int64_t most_kept_ids = int64_t{1} << 25;  // of a choice, which ends with an error above it: 128 MiB
  // Repetition early stop (fastdeploy.md 5.6)
  bool early_stop = false;
  int early_stop_window = 3000;
  double early_stop_threshold = 0.99;
  size_t inbox_capacity = 4096;    // requests that wait, beyond the max_num_seqs that run
  size_t outbox_capacity = 65536;  // deltas; a reader that is further behind holds the next step back (CONTRACT.md)
  // Ids at or above are never sampled (padding columns of the logits); 0: the model's vocabulary.
  int sampled_vocab = 0;
  sample::SlotCapacity slot_capacity;
  // Logit rows per step beyond one per sequence, for prompt log-probs: [rows, vocabulary] of float32 each.
  int prompt_logit_rows = 256;
  int mask_threads = 0;  // that compute masks of guided requests; 0: such requests are refused
  VisionConfig vision;
  GraphConfig graphs;
  // --watchdog-timeout: a step that takes longer on a device with work of its own has hung; the engine then fails. 0:
  // never. Devices whose work is done when it has been given have no watchdog: a step may take its time there.
  int64_t watchdog_ns = 30'000'000'000;
  // For tests of the program as a whole (TERN_FAULT, TERN_TEST_PLAN_DELAY_MS): the device meets `fault` in step number
  // `fault_step` (counted from 1), and planning a step takes `plan_delay_ns` longer.
  device::Fault fault = device::Fault::kNone;
  uint64_t fault_step = 0;
  int fault_rank = 0;    // whose device
  int fault_engine = 0;  // of start_engines()
  int64_t plan_delay_ns = 0;
  // Told what each step did when (--trace, benchmarks); outlives the engine. Null: no trace.
  StepTrace* trace = nullptr;
  DataParallel data_parallel;
};

struct BlockNumbers {
  int total = 0;
  int prefill = 0;
  size_t bytes_per_block = 0;
};

// A rank of a group that runs one model together: its part of the model, its device.
struct RankModel {
  const model::Model* model = nullptr;
  device::Device* device = nullptr;
};

class Engine : public EngineClient {
 public:
  // Sizes and allocates the cache, starts the threads. Model, device and tower outlive the engine. Without a
  // tower requests with media are refused. Errors say which flag to change when memory does not hold one sequence.
  static Expected<std::unique_ptr<Engine>> start(const EngineConfig& config, const model::Model& model,
                                                 device::Device& device, const vision::Tower* tower = nullptr);
  // The same over several ranks, which meet in `group`; null: there is one. The tower is on the first one's device.
  static Expected<std::unique_ptr<Engine>> start(const EngineConfig& config, std::span<const RankModel> ranks,
                                                 device::CommunicatorGroup* group, const vision::Tower* tower);
  virtual BlockNumbers blocks() const = 0;
};

}  // namespace tern::engine
