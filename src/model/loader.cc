#include "model/loader.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/decoder.h"
#include "model/opened_folder.h"
#include "model/ranks.h"
#include "model/reload.h"
#include "model/weights/load_cache.h"
#include "model/weights/pack.h"
#include "model/weights/weight_plan.h"

namespace tern::model {
namespace {

ModelInfo info_of(const DecoderSpec& spec, const ParameterCount& count, size_t bytes, DType activation) {
  return {.architecture = spec.architecture,
          .vocab_size = spec.vocab_size,
          .pooled = spec.pooled(),
          .max_position_embeddings = spec.max_position,
          .layers = spec.layers,
          .hidden_size = spec.hidden_size,
          .parameters = count.all,
          .weight_bytes = bytes,
          .activation = activation,
          .cache = activation};
}

// With a load cache: from it, or made and kept there. `note`: what became of it.
Status fill_kept(const OpenedFolder& o, const WeightPlan& plan, const WeightSource& source, const PackOptions& pack,
                 device::Device& device, DecoderWeights& weights, std::string& note) {
  TERN_RETURN_IF_ERROR(place_plan(plan, pack, device, weights.memory));
  LoadCache cache(o, plan, pack, device);
  const bool found = cache.read(weights.memory.data(), weights.memory.bytes);
  if (!found && !cache.note().empty()) {  // what was read of it is no clean memory
    weights.memory = {};
    TERN_RETURN_IF_ERROR(place_plan(plan, pack, device, weights.memory));
  }
  if (!found) {
    TERN_RETURN_IF_ERROR(fill_plan(plan, source, pack, device));
    TERN_RETURN_IF_ERROR(o.check());
    cache.write(weights.memory.data(), weights.memory.bytes);
  }
  note = cache.note();
  return {};
}

Status fill(const OpenedFolder& o, WeightPlan& plan, const PackOptions& pack, device::Device& device,
            DecoderWeights& weights, std::string& note) {
  TERN_ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> source, o.source(plan));
  TERN_RETURN_IF_ERROR(take_stored_formats(*source, o.options, device.info().kind, plan));
  const bool made = o.options.quantization.any() && !o.options.instead && !o.checkpoint.tensors().empty();
  if (made && o.options.load_cache) return fill_kept(o, plan, *source, pack, device, weights, note);
  TERN_RETURN_IF_ERROR(pack_weights(plan, *source, pack, device, weights));
  return o.check();
}

// Bytes by precision. Sizes are those of a CPU, which has every format. `formats`: what became of the weights.
Expected<std::vector<std::pair<std::string, size_t>>> weigh(const OpenedFolder& opened, WeightPlan& plan,
                                                            std::string& formats) {
  std::vector<std::pair<std::string, size_t>> bytes;
  for (const DType activation : {DType::kBF16, DType::kF32}) {
    LoadOptions o = opened.options;
    o.activation = activation;
    o.weight_format.clear(), o.format = nullptr, o.quantization = {};
    TERN_ASSIGN_OR_RETURN(const PackOptions pack, pack_options(o, device::DeviceKind::kCpu));
    bytes.emplace_back(dtype_name(activation), packed_bytes(plan, pack));
  }
  if (!opened.options.quantization.any() && !opened.files.codes) return bytes;
  TERN_ASSIGN_OR_RETURN(const PackOptions pack, pack_options(opened.options, device::DeviceKind::kCpu));
  if (opened.codes() != nullptr) {
    TERN_ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> source, opened.source(plan));
    TERN_RETURN_IF_ERROR(take_stored_formats(*source, opened.options, device::DeviceKind::kCpu, plan));
  }
  bytes.emplace_back(opened.files.codes ? opened.files.codes->method : opened.options.quantization.method,
                     packed_bytes(plan, pack));
  formats = formats_line(plan, pack);
  return bytes;
}

// What the cache holds, by Quantization::cache.
struct CacheChoice {
  DType type = DType::kBF16;
  CacheScales scales;  // of this rank
  std::string line;
};

Expected<CacheChoice> choose_cache(const OpenedFolder& o) {
  const std::string& asked = o.options.quantization.cache;
  const DType activation = o.options.activation;
  if (asked.empty()) return CacheChoice{activation, {}, dtype_name(activation)};
  const AttentionSpec& a = o.spec.attention;
  const auto refused = [&](std::string why) {
    return make_error(ErrorCode::kUnsupported, fmt::format("kv_cache_quant_type {}: {}", asked, why), "quantization");
  };
  if (a.kind == AttentionKind::kMla)
    return refused("the cache of latent attention (MLA) keeps the activation type; leave it out");
  if (a.head_dim % 16 != 0 || a.head_dim > 512)
    return refused(fmt::format("heads of {} values are not built, multiples of 16 up to 512 are", a.head_dim));
  CacheChoice c{asked == "int8" ? DType::kI8 : DType::kF8E4M3, {}, asked + ", a scale per token and head"};
  // block_wise_fp8 has no scales that are known before.
  if (asked == "block_wise_fp8") return c;
  const KvSpec spec{.dtype = c.type};
  const int spare = o.cut() ? 1 << 20 : o.spec.mtp_layers;
  const CacheScaleShape shape{o.spec.layers, spare, a.kv_heads, a.head_dim, spec.code_bound()};
  TERN_ASSIGN_OR_RETURN(const CacheScales all, find_cache_scales(o.options.path, o.checkpoint, shape));
  TERN_ASSIGN_OR_RETURN(c.scales, slice_cache_scales(all, shape, o.options.shard));
  if (!all.source.empty())
    c.line = fmt::format("{}, scales per {} from {}", asked, all.channels ? "channel" : "head", all.source);
  return c;
}

Hash128 hash_of(const CacheScales& scales) {
  std::vector<float> all = scales.k;
  all.insert(all.end(), scales.v.begin(), scales.v.end());
  return siphash128({}, all.data(), all.size() * sizeof(float));
}

class DecoderReload final : public Reload {
 public:
  DecoderReload(OpenedFolder opened, device::Device& device, WeightMemory& memory)
      : opened_(std::move(opened)), device_(device), memory_(memory) {}

  Status open() {
    TERN_RETURN_IF_ERROR(check_same_config(opened_.config, memory_.config));
    TERN_ASSIGN_OR_RETURN(const CacheChoice cache, choose_cache(opened_));
    if (!(hash_of(cache.scales) == memory_.scales)) {
      return make_error(ErrorCode::kUnsupported, "the scales of the quantized cache are others than those in use",
                        "model_path");
    }
    TERN_ASSIGN_OR_RETURN(pack_, pack_options(opened_.options, device_.info().kind));
    TERN_ASSIGN_OR_RETURN(plan_, opened_.plan(places_));
    TERN_ASSIGN_OR_RETURN(source_, opened_.source(plan_));
    TERN_RETURN_IF_ERROR(take_stored_formats(*source_, opened_.options, device_.info().kind, plan_));
    return place_again(plan_, pack_, memory_);
  }
  Status fill() override {
    Status filled = fill_again(plan_, *source_, pack_, device_, memory_);
    if (filled.ok()) filled = opened_.check();
    if (!filled.ok()) (void)memory_.give_back();
    return filled;
  }

 private:
  OpenedFolder opened_;
  device::Device& device_;
  WeightMemory& memory_;
  DecoderWeights places_;
  PackOptions pack_;
  WeightPlan plan_;
  std::unique_ptr<WeightSource> source_;
};

// `type`: of keys and values.
size_t kv_bytes(const OpenedFolder& o, DType type) {
  const KvSpec kv = decoder_kv_spec(o.spec, o.options.shard, type, device::DeviceKind::kCpu, 64);
  return kv.block_bytes() / static_cast<size_t>(kv.block_size);
}

// Of the first of so many ranks, which has the whole biases and the most of the vocabulary.
Expected<RankSummary> summarize_rank(OpenedFolder& o, const Shard& shard, DType cache) {
  const int count = shard.ranks;
  o.options.shard = shard;
  DecoderWeights places;
  TERN_ASSIGN_OR_RETURN(WeightPlan plan, o.plan(places));
  std::string formats;
  RankSummary r{.count = count};
  TERN_ASSIGN_OR_RETURN(r.weight_bytes, weigh(o, plan, formats));
  r.kv_bytes_per_token = kv_bytes(o, cache);
  return r;
}

}  // namespace

Expected<std::unique_ptr<Model>> load_model(const LoadOptions& options, device::Device& device) {
  TERN_ASSIGN_OR_RETURN(OpenedFolder o, OpenedFolder::open(options, true));
  TERN_RETURN_IF_ERROR(check_ranks(o.spec, options.shard.expert_parallel, options.shard.ranks, options.shard.engines));
  TERN_ASSIGN_OR_RETURN(const PackOptions pack, pack_options(o.options, device.info().kind));
  TERN_ASSIGN_OR_RETURN(const CacheChoice cache, choose_cache(o));
  auto weights = std::make_unique<DecoderWeights>();
  TERN_ASSIGN_OR_RETURN(WeightPlan plan, o.plan(*weights));
  TERN_ASSIGN_OR_RETURN(const ParameterCount count, count_parameters(o.spec, plan));
  std::string kept;  // what became of the load cache
  TERN_RETURN_IF_ERROR(fill(o, plan, pack, device, *weights, kept));
  const RopeTable table = make_rope_table(o.spec.rope, options.max_model_len);
  ModelInfo info = info_of(o.spec, count, weights->memory.bytes, options.activation);
  weights->memory.config = o.config;
  weights->memory.scales = hash_of(cache.scales);
  if (o.files.any() || o.options.quantization.any()) info.formats = formats_line(plan, pack);
  info.notes = o.notes();
  info.cache = cache.type, info.cache_format = cache.line;
  if (options.rounded_cache && KvSpec{.dtype = cache.type}.quantized())
    info.cache = DType::kF32, info.cache_rounded = cache.type;
  if (!kept.empty()) info.notes.push_back(std::move(kept));
  TERN_ASSIGN_OR_RETURN(std::unique_ptr<Decoder> decoder, Decoder::make(std::move(o.spec), table, std::move(weights),
                                                                        std::move(info), options.shard, device));
  TERN_RETURN_IF_ERROR(decoder->set_cache_scales(cache.scales, device));
  return std::unique_ptr<Model>(std::move(decoder));
}

Expected<std::unique_ptr<Reload>> open_reload(const LoadOptions& options, const Model& model, device::Device& device) {
  WeightMemory* memory = model.weight_memory();
  if (memory == nullptr) return make_error(ErrorCode::kUnsupported, "the weights of this model cannot be read again");
  TERN_ASSIGN_OR_RETURN(OpenedFolder opened, OpenedFolder::open(options, true));
  auto reload = std::make_unique<DecoderReload>(std::move(opened), device, *memory);
  TERN_RETURN_IF_ERROR(reload->open());
  return std::unique_ptr<Reload>(std::move(reload));
}

Expected<ModelSummary> summarize_model(const LoadOptions& options) {
  TERN_ASSIGN_OR_RETURN(OpenedFolder o, OpenedFolder::open(options, false));
  const DecoderSpec& spec = o.spec;
  TERN_RETURN_IF_ERROR(check_ranks(spec, options.shard.expert_parallel, options.shard.ranks, options.shard.engines));
  o.options.shard = {};
  DecoderWeights places;
  TERN_ASSIGN_OR_RETURN(WeightPlan plan, o.plan(places));
  TERN_ASSIGN_OR_RETURN(const ParameterCount count, count_parameters(spec, plan));
  ModelSummary s;
  s.notes = o.notes();
  s.tied = o.presences.output.tied;
  s.architecture = spec.architecture;
  s.parameters = count.all;
  s.active_parameters = count.active;
  s.layers = spec.layers;
  s.vocab_size = spec.vocab_size;
  s.pooled = spec.pooled();
  s.max_position_embeddings = spec.max_position;
  s.eos_token_ids = spec.eos_token_ids;
  s.bos_token_id = spec.bos_token_id;
  TERN_ASSIGN_OR_RETURN(const CacheChoice cache, choose_cache(o));
  s.cache_format = cache.line;
  s.kv = {decoder_kv_spec(spec, {}, cache.type, device::DeviceKind::kCpu, 64)};
  s.kv_bytes_per_token = kv_bytes(o, cache.type);
  TERN_ASSIGN_OR_RETURN(s.weight_bytes, weigh(o, plan, s.formats));
  for (const int ranks : rank_counts(spec, false, kMostRanks)) {
    const bool shared = options.shard.engines > 1 && options.shard.ranks == ranks;
    const Shard shard = shared ? options.shard : Shard{0, ranks};
    TERN_ASSIGN_OR_RETURN(RankSummary rank, summarize_rank(o, shard, cache.type));
    s.ranks.push_back(std::move(rank));
  }
  return s;
}

}  // namespace tern::model
