// A step's pictures on the host: which ones the tower has to encode, packed into calls, and which rows of the encoder
// cache the step holds on to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/memory/raw_bytes.h"
#include "engine/request.h"
#include "vision/tower.h"

namespace tern::engine {

// Most that one tower call takes.
struct CallLimits {
  int64_t patches = 0;
  int items = 0;
  int64_t tokens = 0;
};

struct VisionItem {
  vision::Grid grid;
  std::shared_ptr<const RawBytes> patches;  // kept alive until the step has been collected
  size_t offset = 0, bytes = 0;
  std::span<const int32_t> rows;  // of the encoder cache, one per output row; pinned by the step
};

struct VisionCall {
  std::vector<int> items;           // of VisionStep::items
  std::vector<vision::Grid> grids;  // theirs
  std::vector<int32_t> rows;        // where their output rows go
  vision::TowerIndex index;
  int64_t patches = 0;
  void clear() { items.clear(), grids.clear(), rows.clear(), patches = 0; }
};

struct VisionStep {
  std::vector<VisionItem> items;
  std::vector<VisionCall> calls;  // the first `call_count` are meant; the others keep their memory
  int call_count = 0;
  std::vector<int> pinned;   // entries of the encoder cache that this step reads or writes
  uint64_t tower_ns = 0;     // of the rank thread until the step is done
  uint64_t tower_calls = 0;  // likewise: those that ran

  // Deals the items to as few calls as first fit, largest first, finds, and lets the tower index them. An item's rows
  // do not depend on its neighbours, so the order is free.
  void pack(const CallLimits& limits, const vision::Tower& tower);
  void clear();
};

}  // namespace tern::engine
