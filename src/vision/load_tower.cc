#include <algorithm>
#include <array>
#include <string_view>

#include "model/config/config_reader.h"
#include "model/files/checkpoint.h"
#include "model/weights/pack.h"
#include "model/weights/weight_source.h"
#include "vision/reload.h"
#include "vision/tower.h"
#include "vision/tower_plan.h"

namespace tern::vision {

// One file per tower, one line here.
Expected<TowerParts> make_ernie_vl(const json::Object& config, DType activation);
Expected<TowerParts> make_paddleocr_vl(const json::Object& config, DType activation);
Expected<TowerParts> make_qwen2_5_vl(const json::Object& config, DType activation);

namespace {

struct Architecture {
  std::string_view name;
  MakeTowerParts make;
};
constexpr std::array kArchitectures = {
    Architecture{"Ernie4_5_VLMoeForConditionalGeneration", make_ernie_vl},
    Architecture{"Ernie4_5_VLMoeForProcessRewardModel", make_ernie_vl},
    Architecture{"PaddleOCRVLForConditionalGeneration", make_paddleocr_vl},
    Architecture{"Qwen2_5_VLForConditionalGeneration", make_qwen2_5_vl},
};

Expected<TowerParts> tower_parts_of(const model::LoadOptions& options) {
  TERN_ASSIGN_OR_RETURN(const json::Object config,
                        model::read_config(options.path, options.config_name, options.overrides));
  return make_tower_parts(config, options.activation);
}

// Vision towers stay in the activation type, whatever format the decoder's weights have, as in the original.
Expected<model::PackOptions> pack_options_of(const model::LoadOptions& options, device::DeviceKind kind) {
  model::LoadOptions plain = options;
  plain.weight_format.clear(), plain.format = nullptr, plain.quantization = {};
  return model::pack_options(plain, kind);
}

Status fill(const model::LoadOptions& options, const TowerParts& parts, const model::PackOptions& pack,
            device::Device& device) {
  const model::WeightPlan& plan = parts.plan.weights();
  LoadedTower& tower = *parts.tower;
  if (options.dummy) {
    return model::pack_plan(plan, model::DummySource(plan.parameters, options.dummy_seed), pack, device, tower.memory_);
  }
  TERN_ASSIGN_OR_RETURN(const model::Checkpoint checkpoint, model::Checkpoint::open(options.path));
  model::ResolveOptions resolve;
  resolve.own = parts.own;
  TERN_ASSIGN_OR_RETURN(std::vector<model::Stored> stored,
                        model::resolve_parameters(plan.parameters, checkpoint, resolve));
  TERN_RETURN_IF_ERROR(
      model::pack_plan(plan, model::CheckpointSource(plan.parameters, std::move(stored)), pack, device, tower.memory_));
  return checkpoint.check();
}

class TowerReload final : public model::Reload {
 public:
  TowerReload(device::Device& device, model::WeightMemory& memory) : device_(device), memory_(memory) {}

  Status open(const model::LoadOptions& options) {
    TERN_ASSIGN_OR_RETURN(parts_, tower_parts_of(options));
    TERN_ASSIGN_OR_RETURN(pack_, pack_options_of(options, device_.info().kind));
    const model::WeightPlan& plan = parts_.plan.weights();
    if (options.dummy) {
      source_ = std::make_unique<model::DummySource>(plan.parameters, options.dummy_seed);
    } else {
      TERN_ASSIGN_OR_RETURN(checkpoint_, model::Checkpoint::open(options.path));
      model::ResolveOptions resolve;
      resolve.own = parts_.own;
      TERN_ASSIGN_OR_RETURN(std::vector<model::Stored> stored,
                            model::resolve_parameters(plan.parameters, checkpoint_, resolve));
      source_ = std::make_unique<model::CheckpointSource>(plan.parameters, std::move(stored));
    }
    return model::place_again(plan, pack_, memory_);
  }
  Status fill() override {
    Status filled = model::fill_again(parts_.plan.weights(), *source_, pack_, device_, memory_);
    if (filled.ok()) filled = checkpoint_.check();
    if (!filled.ok()) (void)memory_.give_back();
    return filled;
  }

 private:
  device::Device& device_;
  model::WeightMemory& memory_;
  TowerParts parts_;  // with places of its own
  model::PackOptions pack_;
  model::Checkpoint checkpoint_;
  std::unique_ptr<model::WeightSource> source_;
};

}  // namespace

Expected<std::unique_ptr<model::Reload>> open_tower_reload(const model::LoadOptions& options, const Tower& tower,
                                                           device::Device& device) {
  model::WeightMemory* memory = tower.weight_memory();
  if (memory == nullptr) return make_error(ErrorCode::kUnsupported, "the weights of this tower cannot be read again");
  auto reload = std::make_unique<TowerReload>(device, *memory);
  TERN_RETURN_IF_ERROR(reload->open(options));
  return std::unique_ptr<model::Reload>(std::move(reload));
}

Expected<TowerParts> make_tower_parts(const json::Object& config, DType activation) {
  TERN_ASSIGN_OR_RETURN(const std::string name, model::architecture_of(config));
  const auto* found =
      std::find_if(kArchitectures.begin(), kArchitectures.end(), [&](const Architecture& a) { return a.name == name; });
  if (found == kArchitectures.end()) return TowerParts{};
  TERN_ASSIGN_OR_RETURN(TowerParts parts, found->make(config, activation));
  parts.tower->info_.architecture = name;
  parts.tower->info_.parameters = parts.plan.parameters();
  return parts;
}

Expected<std::unique_ptr<Tower>> load_tower(const model::LoadOptions& options, device::Device& device) {
  TERN_ASSIGN_OR_RETURN(TowerParts parts, tower_parts_of(options));
  if (parts.tower == nullptr) return std::unique_ptr<Tower>();
  TERN_ASSIGN_OR_RETURN(const model::PackOptions pack, pack_options_of(options, device.info().kind));
  TERN_RETURN_IF_ERROR(fill(options, parts, pack, device));
  parts.tower->info_.weight_bytes = parts.tower->memory_.bytes;
  TERN_RETURN_IF_ERROR(parts.tower->finish(device));
  return std::unique_ptr<Tower>(std::move(parts.tower));
}

Expected<TowerSummary> summarize_tower(const model::LoadOptions& options) {
  TERN_ASSIGN_OR_RETURN(const TowerParts parts, tower_parts_of(options));
  TowerSummary s;
  if (parts.tower == nullptr) return s;
  s.info = parts.tower->info_;
  for (const DType activation : {DType::kBF16, DType::kF32}) {
    model::LoadOptions o = options;
    o.activation = activation;
    TERN_ASSIGN_OR_RETURN(const model::PackOptions pack, pack_options_of(o, device::DeviceKind::kCpu));
    s.weight_bytes.emplace_back(dtype_name(activation), model::packed_bytes(parts.plan.weights(), pack));
  }
  return s;
}

}  // namespace tern::vision
