// What a tower file hands to the loader: a tower whose weights are empty places, and what belongs there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "json/json.h"
#include "model/weights/decoder_weights.h"
#include "model/weights/weight_plan.h"
#include "vision/tower.h"

namespace tern::vision {

struct LayerNorm {
  TensorView weight, bias;  // [H] f32
};

struct Linear : model::Linear {
  TensorView short_bias;  // empty, or the bias in the activation type
  ops::LinearParams product(TensorView x, TensorView out) const { return {x, &weight, bias, out, short_bias}; }
};

// The spellings of a name: every root with every leaf. The first of each make the canonical name.
struct Names {
  std::vector<std::string> roots, leaves;
};

// Declares parameters and their places. Places must stay where they are while the plan is in use. Towers are whole on
// every rank.
class TowerPlan {
 public:
  // A layer [rows, cols] with "weight" and, when asked for, "bias" after its names. Several names (q, k, v): their
  // layers, each [rows, cols], one below the other.
  void linear(Linear& out, const std::vector<Names>& parts, int64_t rows, int64_t cols, bool bias);
  // A convolution over whole patches: [rows, channels, height, width] in files, always stored as is.
  void patches(Linear& out, const Names& names, int64_t rows, int64_t cols, bool bias);
  void norm(LayerNorm& out, const Names& names, int64_t n);
  // A vector of f32: a norm's weight.
  void scale(TensorView& out, const Names& names, int64_t n);
  // A matrix kept as rows in the activation type.
  void table(TensorView& out, const Names& names, int64_t rows, int64_t cols);

  const model::WeightPlan& weights() const { return plan_; }
  int64_t parameters() const;

 private:
  int declare(const Names& names, const char* leaf, model::ParameterKind kind, int64_t rows, int64_t cols);
  void vector(TensorView& out, const std::vector<int>& ids, bool activation_type = false);
  void matrix(model::Linear& out, const std::vector<int>& ids, model::MatrixRole role);

  model::WeightPlan plan_;
};

class LoadedTower : public Tower {
 public:
  const TowerInfo& info() const override { return info_; }
  model::WeightMemory* weight_memory() const override { return &memory_; }
  // Once the weights are in their places: tables of its own go to the device.
  virtual Status finish(device::Device& device) = 0;

  TowerInfo info_;
  mutable model::WeightMemory memory_;
};

struct TowerParts {
  std::unique_ptr<LoadedTower> tower;
  TowerPlan plan;
  // Parts of names by which this tower's tensors are told from the text model's.
  std::vector<std::string> own;
};

// `config`: config.json as it stands. One for each architecture, listed in load_tower.cc.
using MakeTowerParts = Expected<TowerParts> (*)(const json::Object& config, DType activation);

// The parts of a config.json (with overrides merged in); without a tower when the architecture has none.
Expected<TowerParts> make_tower_parts(const json::Object& config, DType activation);

// vision_config of a config.json; an empty object when there is none.
json::Object vision_config(const json::Object& config);

}  // namespace tern::vision
