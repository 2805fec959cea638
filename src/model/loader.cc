#include "model/loader.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/arch/registry.h"
#include "model/config/config_reader.h"
#include "model/decoder.h"
#include "model/files/checkpoint.h"
#include "model/weights/pack.h"
#include "model/weights/weight_plan.h"
#include "model/weights/weight_source.h"

namespace tern::model {
namespace {

Expected<DecoderSpec> spec_of(const LoadOptions& options) {
  TERN_ASSIGN_OR_RETURN(const json::Object config, read_config(options.path, options.config_name, options.overrides));
  return read_spec(config);
}

ModelInfo info_of(const DecoderSpec& spec, const ParameterCount& count, size_t bytes, DType activation) {
  return {.architecture = spec.architecture,
          .vocab_size = spec.vocab_size,
          .max_position_embeddings = spec.max_position,
          .layers = spec.layers,
          .hidden_size = spec.hidden_size,
          .parameters = count.all,
          .weight_bytes = bytes,
          .activation = activation};
}

Status fill(const LoadOptions& options, const DecoderSpec& spec, const WeightPlan& plan, const Checkpoint& checkpoint,
            const PackOptions& pack, device::Device& device, DecoderWeights& weights) {
  if (options.dummy) return pack_weights(plan, DummySource(plan.parameters, options.dummy_seed), pack, device, weights);
  const bool cut = flatten_text_config(options.overrides).contains("num_hidden_layers");
  const ResolveOptions resolve{spec.layers, spec.mtp_layers, cut, spec.tower_names, {}};
  TERN_ASSIGN_OR_RETURN(std::vector<Stored> stored, resolve_parameters(plan.parameters, checkpoint, resolve));
  TERN_RETURN_IF_ERROR(pack_weights(plan, CheckpointSource(plan.parameters, std::move(stored)), pack, device, weights));
  return checkpoint.check();
}

Expected<WeightPlan> plan_of(const LoadOptions& options, const DecoderSpec& spec, Presences& presences,
                             DecoderWeights& weights) {
  presences.head_apart = !options.quantization.head.empty();
  TERN_ASSIGN_OR_RETURN(WeightPlan plan, plan_weights(spec, presences, options.shard, weights));
  TERN_RETURN_IF_ERROR(leave_out(options.quantization.ignore, plan));
  return plan;
}

// Bytes by precision. Sizes are those of a CPU, which has every format.
Status weigh(const LoadOptions& options, const WeightPlan& plan, ModelSummary& s) {
  for (const DType activation : {DType::kBF16, DType::kF32}) {
    LoadOptions o = options;
    o.activation = activation;
    o.weight_format.clear(), o.format = nullptr, o.quantization = {};
    TERN_ASSIGN_OR_RETURN(const PackOptions pack, pack_options(o, device::DeviceKind::kCpu));
    s.weight_bytes.emplace_back(dtype_name(activation), packed_bytes(plan, pack));
  }
  if (!options.quantization.any()) return {};
  TERN_ASSIGN_OR_RETURN(const PackOptions pack, pack_options(options, device::DeviceKind::kCpu));
  s.weight_bytes.emplace_back(options.quantization.method, packed_bytes(plan, pack));
  s.formats = formats_line(plan, pack);
  return {};
}

}  // namespace

Expected<std::unique_ptr<Model>> load_model(const LoadOptions& options, device::Device& device) {
  TERN_ASSIGN_OR_RETURN(DecoderSpec spec, spec_of(options));
  TERN_ASSIGN_OR_RETURN(const PackOptions pack, pack_options(options, device.info().kind));
  Checkpoint checkpoint;
  Presences presences = default_presences(spec);
  if (!options.dummy) {
    TERN_ASSIGN_OR_RETURN(checkpoint, Checkpoint::open(options.path));
    presences = detect_presences(spec, checkpoint);
    TERN_RETURN_IF_ERROR(checkpoint.check());
  }
  auto weights = std::make_unique<DecoderWeights>();
  TERN_ASSIGN_OR_RETURN(const WeightPlan plan, plan_of(options, spec, presences, *weights));
  TERN_ASSIGN_OR_RETURN(const ParameterCount count, count_parameters(spec, plan));
  TERN_RETURN_IF_ERROR(fill(options, spec, plan, checkpoint, pack, device, *weights));
  const RopeTable table = make_rope_table(spec.rope, options.max_model_len);
  ModelInfo info = info_of(spec, count, weights->bytes, options.activation);
  if (options.quantization.any()) info.formats = formats_line(plan, pack);
  if (!presences.output.note.empty()) info.notes.push_back(presences.output.note);
  TERN_ASSIGN_OR_RETURN(std::unique_ptr<Decoder> decoder, Decoder::make(std::move(spec), table, std::move(weights),
                                                                        std::move(info), options.shard, device));
  return std::unique_ptr<Model>(std::move(decoder));
}

Expected<ModelSummary> summarize_model(const LoadOptions& options) {
  TERN_ASSIGN_OR_RETURN(const DecoderSpec spec, spec_of(options));
  Presences presences = default_presences(spec);
  if (!options.dummy && has_weights(options.path)) {
    TERN_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(options.path));
    presences = detect_presences(spec, checkpoint);
    TERN_RETURN_IF_ERROR(checkpoint.check());
  }
  DecoderWeights places;
  TERN_ASSIGN_OR_RETURN(const WeightPlan plan, plan_of(options, spec, presences, places));
  TERN_ASSIGN_OR_RETURN(const ParameterCount count, count_parameters(spec, plan));
  ModelSummary s;
  if (!presences.output.note.empty()) s.notes.push_back(presences.output.note);
  s.tied = presences.output.tied;
  s.architecture = spec.architecture;
  s.parameters = count.all;
  s.active_parameters = count.active;
  s.layers = spec.layers;
  s.vocab_size = spec.vocab_size;
  s.max_position_embeddings = spec.max_position;
  s.eos_token_ids = spec.eos_token_ids;
  s.bos_token_id = spec.bos_token_id;
  s.kv = {decoder_kv_spec(spec, options.shard, options.activation, device::DeviceKind::kCpu, 64)};
  for (const KvSpec& kv : s.kv) s.kv_bytes_per_token += kv.block_bytes() / static_cast<size_t>(kv.block_size);
  TERN_RETURN_IF_ERROR(weigh(options, plan, s));
  return s;
}

}  // namespace tern::model
