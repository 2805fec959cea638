#include "vision/tower_plan.h"

namespace tern::vision {

using model::Parameter;
using model::ParameterKind;

int TowerPlan::declare(const Names& names, const char* leaf, ParameterKind kind, int64_t rows, int64_t cols) {
  Parameter p;
  p.kind = kind, p.rows = rows, p.cols = cols;
  for (const std::string& root : names.roots) {
    for (const std::string& name : names.leaves) {
      if (p.name.empty()) {
        p.name = root + name + leaf;
      } else {
        p.others.push_back({root + name + leaf});
      }
    }
  }
  plan_.parameters.push_back(std::move(p));
  return static_cast<int>(plan_.parameters.size()) - 1;
}

void TowerPlan::vector(TensorView& out, const std::vector<int>& ids, bool activation_type) {
  model::ArrayPlan a;
  a.out = &out, a.activation_type = activation_type;
  for (const int id : ids) {
    const Parameter& p = plan_.parameters[static_cast<size_t>(id)];
    a.pieces.push_back({id, 0, p.rows, 0, 1});
    a.rows += p.rows;
  }
  plan_.arrays.push_back(std::move(a));
}

void TowerPlan::matrix(model::Linear& out, const std::vector<int>& ids, model::MatrixRole role) {
  model::MatrixPlan m;
  m.out = &out.weight, m.role = role;
  for (const int id : ids) {
    const Parameter& p = plan_.parameters[static_cast<size_t>(id)];
    m.pieces.push_back({id, 0, p.rows, 0, p.cols});
    m.n += p.rows, m.k = p.cols;
  }
  plan_.matrices.push_back(std::move(m));
}

void TowerPlan::linear(Linear& out, const std::vector<Names>& parts, int64_t rows, int64_t cols, bool bias) {
  std::vector<int> weights, biases;
  for (const Names& names : parts) weights.push_back(declare(names, ".weight", ParameterKind::kLinear, rows, cols));
  matrix(out, weights, model::MatrixRole::kLinear);
  if (!bias) return;
  for (const Names& names : parts) biases.push_back(declare(names, ".bias", ParameterKind::kBias, rows, 1));
  vector(out.bias, biases);
  vector(out.short_bias, biases, true);
}

void TowerPlan::patches(Linear& out, const Names& names, int64_t rows, int64_t cols, bool bias) {
  matrix(out, {declare(names, ".weight", ParameterKind::kTable, rows, cols)}, model::MatrixRole::kPlain);
  if (bias) vector(out.bias, {declare(names, ".bias", ParameterKind::kBias, rows, 1)});
}

void TowerPlan::norm(LayerNorm& out, const Names& names, int64_t n) {
  scale(out.weight, names, n);
  vector(out.bias, {declare(names, ".bias", ParameterKind::kBias, n, 1)});
}

void TowerPlan::scale(TensorView& out, const Names& names, int64_t n) {
  vector(out, {declare(names, ".weight", ParameterKind::kNorm, n, 1)});
}

void TowerPlan::table(TensorView& out, const Names& names, int64_t rows, int64_t cols) {
  const int id = declare(names, ".weight", ParameterKind::kTable, rows, cols);
  model::ArrayPlan a;
  a.out = &out, a.activation_type = true, a.rows = rows, a.cols = cols;
  a.pieces.push_back({id, 0, rows, 0, cols});
  plan_.arrays.push_back(std::move(a));
}

int64_t TowerPlan::parameters() const {
  int64_t n = 0;
  for (const Parameter& p : plan_.parameters) n += p.elements();
  return n;
}

json::Object vision_config(const json::Object& config) {
  const json::Value* v = json::find(config, "vision_config");
  return v != nullptr && v->is_object() ? v->get_object() : json::Object{};
}

}  // namespace tern::vision
