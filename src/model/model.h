// A model: immutable weights and a forward pass. What kind of decoder it is, is known behind this interface only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "device/arena.h"
#include "device/communicator.h"
#include "device/device.h"
#include "device/kv_layout.h"
#include "model/batch.h"

namespace tern::model {

struct ModelInfo {
  std::string architecture;  // config.json architectures[0]
  int vocab_size = 0;        // logit columns; ids at or above it are never sampled
  int pooled = 0;  // > 0: a pooling model: forward() leaves a vector of so many values in place of each logit row
  int max_position_embeddings = 0;
  int layers = 0;
  int hidden_size = 0;
  int64_t parameters = 0;
  size_t weight_bytes = 0;  // as packed in memory
  DType activation = DType::kBF16;
  DType cache = DType::kBF16;           // keys and values in the cache
  DType cache_rounded = DType::kF32;    // KvSpec::rounded
  std::string cache_format = {};        // the same and where scales are from, in a line
  std::string formats = {};             // what each part of a quantized model's weights became, in a line; else empty
  std::vector<std::string> notes = {};  // what was decided where files and config.json disagree: a line each

  int outputs() const { return pooled > 0 ? pooled : vocab_size; }  // columns that forward() fills
};

// The memory behind block numbers, one entry per KvSpec of the model (layer groups). Blocks of one layer lie beside
// each other, so that a layer that reads all sequences touches few pages of memory (ERNIE-4.5-0.3B on an H200, a
// step of 256: 2,059 us instead of 2,116).
struct KvCache {
  struct Group {
    KvSpec spec;
    std::vector<char*> layers;  // block b of the group's layer l: layers[l] + b * spec.layer_block_bytes()
    int64_t blocks = 0;

    // All layers in one memory of blocks * spec.block_bytes().
    static Group in(const KvSpec& spec, char* memory, int64_t blocks) {
      Group g{spec, {}, blocks};
      const size_t bytes = spec.layer_block_bytes() * static_cast<size_t>(blocks);
      for (int l = 0; l < spec.layers; ++l) g.layers.push_back(memory + static_cast<size_t>(l) * bytes);
      return g;
    }
  };
  std::vector<Group> groups;
  KvLayerView layer(size_t group, int layer_in_group) const {
    const Group& g = groups[group];
    return {g.layers[static_cast<size_t>(layer_in_group)], g.spec.layer_block_bytes(), g.spec};
  }
};

// Sees named intermediate tensors of a forward pass (verification only; null on the serving path) and may force
// routing.
class Probe {
 public:
  virtual ~Probe() = default;
  // "hidden.0" is the embedding output, "hidden.i" the residual stream after layer i, the last one after the final
  // norm.
  virtual void tensor(std::string_view name, TensorView value) = 0;
  // Scores of the router of MoE layer `layer`, [T, experts] float32, before experts are chosen by them.
  virtual void router(int /*layer*/, TensorView /*scores*/) {}
  // Expert ids chosen in MoE layer `layer`, [T, top_k] int32. Returns true when the probe has overwritten them.
  virtual bool routing(int layer, TensorView ids) = 0;
};

// Experts that are dealt to the ranks of several engines (Shard::engines): those ranks, engine by engine, and what
// each engine brings to this step. All of them run their step together; one may have no tokens.
struct ExpertGroup {
  device::Communicator communicator;
  std::span<const int32_t> tokens;  // by engine; host memory
};
inline constexpr int kMostExpertRanks = 64;

struct ForwardContext {
  const Batch& batch;
  const KvCache& cache;
  device::Stream stream;
  device::Arena& workspace;  // at least workspace_bytes()
  Probe* probe = nullptr;
  device::Communicator communicator = {};  // of a model that is one rank's part
  ExpertGroup experts = {};                // where its experts are dealt to several engines
};

struct WeightMemory;

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  // Layer groups whose blocks look alike, for blocks of `block_size` tokens of this rank.
  virtual std::vector<KvSpec> kv_specs(int block_size) const = 0;
  // Bytes of temporaries that forward() takes for the largest batch of these limits.
  virtual size_t workspace_bytes(const BatchLimits& limits, device::Stream stream) const = 0;
  // Runs the batch and leaves float32 logits [L, outputs()] in `logits` (row stride free); one of several ranks: the
  // columns of its output_part() (ranks.h). All ranks of a group run the same batch;
  // where experts are dealt to several engines, each of those runs its own, without tokens too. Const: may run on any
  // thread that owns the stream, one at a time. Token ids must be resolved (ops::resolve_ids) before.
  virtual Status forward(const ForwardContext& context, TensorView logits) const = 0;
  // Of its weights, for whoever takes and fills it while nothing runs; null: they stay as they are.
  virtual WeightMemory* weight_memory() const { return nullptr; }
};

}  // namespace tern::model
