#include "engine/step/vision_step.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace tern::engine {

void VisionStep::pack(const CallLimits& limits, const vision::Tower& tower) {
  call_count = 0;
  if (items.empty()) return;
  std::vector<int> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return items[static_cast<size_t>(a)].grid.rows() > items[static_cast<size_t>(b)].grid.rows();
  });
  for (int i : order) {
    const VisionItem& item = items[static_cast<size_t>(i)];
    const auto fits = [&](const VisionCall& c) {
      return c.patches + item.grid.rows() <= limits.patches && static_cast<int>(c.items.size()) < limits.items &&
             static_cast<int64_t>(c.rows.size() + item.rows.size()) <= limits.tokens;
    };
    const auto end = calls.begin() + call_count;
    auto call = std::find_if(calls.begin(), end, fits);
    if (call == end) {
      if (call_count == static_cast<int>(calls.size())) calls.emplace_back();
      call = calls.begin() + call_count++;
      call->clear();
      TERN_CHECK_MSG(fits(*call), "a picture is larger than a tower call");
    }
    call->items.push_back(i);
    call->grids.push_back(item.grid);
    call->rows.insert(call->rows.end(), item.rows.begin(), item.rows.end());
    call->patches += item.grid.rows();
  }
  for (int i = 0; i < call_count; ++i) {
    VisionCall& call = calls[static_cast<size_t>(i)];
    call.index.ints.clear(), call.index.floats.clear();
    tower.index(call.grids, call.index);
  }
}

void VisionStep::clear() {
  items.clear(), pinned.clear();
  call_count = 0;
  tower_ns = tower_calls = 0;
}

}  // namespace tern::engine
