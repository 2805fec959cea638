// From a folder to a Model.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "json/json.h"
#include "model/model.h"
#include "model/quantization.h"
#include "ops/linear.h"

namespace tern::model {

struct Shard {
  int rank = 0;
  int ranks = 1;
  bool expert_parallel = false;  // experts are dealt whole to ranks instead of being cut
  // Engines that deal experts to the ranks of all of them, as many each, and this rank's. All else of the model every
  // engine has for itself.
  int engine = 0, engines = 1;

  int expert_rank() const { return engine * ranks + rank; }
  int expert_ranks() const { return engines * ranks; }
};

struct LoadOptions {
  std::string path;  // folder with config.json and *.safetensors
  std::string config_name = "config.json";
  bool embed = false;  // --convert embed: a generating model's last hidden states are its result
  bool dummy = false;  // --load-choices dummy: seeded random weights from the config alone
  uint64_t dummy_seed = 0;
  json::Object overrides;                     // --model-override: keys of config.json (nested objects are merged)
  DType activation = DType::kBF16;            // kBF16 or kF32
  std::string weight_format;                  // empty: by activation and stored type ("bf16" or "f32")
  const ops::WeightFormat* format = nullptr;  // used instead of the named one: formats that are not built in
  Quantization quantization;                  // formats by part; not beside the two above
  // Verification on a CPU: the quantized cache's values as float32, rounded to what its codes hold.
  bool rounded_cache = false;
  // Where set, asked for every format that `quantization` names: formats that are not built in.
  std::function<const ops::WeightFormat*(const ops::WeightFormat&)> instead;
  bool load_cache = false;  // packed weights are kept in the folder (weights/load_cache.h), where they are quantized
  Shard shard;
  int max_model_len = 0;  // for rope scalings that depend on the length; 0: the config's
  int threads = 0;        // that read and convert for a device without a pool of its own; 0: physical cores
  // Called with bytes done and in all, from any thread, one at a time; for the progress bar.
  std::function<void(size_t, size_t)> progress;
};

// Reads and checks config.json (with overrides), finds the architecture (an unknown one is named beside the known
// ones), checks the tensors (all missing and unexpected names at once, each with the nearest expected one) and packs
// the weights.
Expected<std::unique_ptr<Model>> load_model(const LoadOptions& options, device::Device& device);

// What each of several ranks takes: the one that takes most.
struct RankSummary {
  int count = 1;
  std::vector<std::pair<std::string, size_t>> weight_bytes;  // as in ModelSummary
  size_t kv_bytes_per_token = 0;
};

// What `tern inspect` and --dry-run say without loading weights.
struct ModelSummary {
  std::string architecture;
  int64_t parameters = 0, active_parameters = 0;
  int layers = 0, vocab_size = 0, max_position_embeddings = 0;
  int pooled = 0;  // as in ModelInfo
  std::vector<int32_t> eos_token_ids;
  int32_t bos_token_id = -1;
  std::vector<KvSpec> kv;          // for block_size 64, one rank
  size_t kv_bytes_per_token = 0;   // one rank
  std::string cache_format;        // as in ModelInfo
  bool tied = false;               // the output layer is the embedding
  std::vector<std::string> notes;  // as in ModelInfo
  // By precision: ("bfloat16", n), ("float32", n) and, where one is asked for, the quantization's method.
  std::vector<std::pair<std::string, size_t>> weight_bytes;
  std::string formats;  // as in ModelInfo
  // One rank, and every number of them up to kMostRanks that can share the model; where engines share experts
  // (Shard::engines), the entry of as many ranks is of such an engine.
  std::vector<RankSummary> ranks;
};
inline constexpr int kMostRanks = 8;
// `options.shard.ranks`: those that must be able to share it.
Expected<ModelSummary> summarize_model(const LoadOptions& options);

}  // namespace tern::model
