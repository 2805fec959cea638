// A config.json with a vision tower: it is refused, or the tower has a plan of weights and an index for any grid.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "json/json.h"
#include "vision/tower_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern;
  const auto config = json::parse({reinterpret_cast<const char*>(data), size}, {.max_bytes = 1 << 16, .max_depth = 16});
  if (!config.ok() || !config->is_object()) return 0;
  const auto parts = vision::make_tower_parts(config->get_object(), DType::kBF16);
  if (!parts.ok() || parts->tower == nullptr) return 0;
  const vision::Tower& tower = *parts->tower;
  for (const auto& m : parts->plan.weights().matrices)
    if (m.n < 1 || m.k < 1) std::abort();
  if (tower.info().merge < 1 || tower.info().merge > 16) std::abort();
  const int m = tower.info().merge;
  const vision::Grid grids[] = {{1, m, 3 * m}, {2, 2 * m, m}};
  vision::TowerIndex index;
  tower.index(grids, index);
  const int64_t rows = grids[0].rows() + grids[1].rows();
  if (index.ints.size() > tower.max_ints(rows, 2) || index.floats.size() > tower.max_floats(rows, 2)) std::abort();
  return 0;
}
