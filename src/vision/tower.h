// A vision tower with its projector: patch rows in, rows of the text model's width out. Behind this interface ERNIE-VL,
// PaddleOCR-VL and Qwen2.5-VL look alike.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/arena.h"
#include "device/device.h"
#include "device/tensor.h"
#include "model/loader.h"
#include "model/model.h"

namespace tern::vision {

// One item in patches: an image (t = 1) or frames of a video (one or two; ERNIE pairs them, Qwen folds them into a
// row).
struct Grid {
  int t = 1, h = 0, w = 0;
  int64_t rows() const { return int64_t{t} * h * w; }
};

struct TowerInfo {
  std::string architecture;
  int patch_values = 0;             // values of a patch row
  DType patch_type = DType::kBF16;  // of patch rows: the activation type
  int hidden = 0;                   // width of an output row: the text model's
  DType out_type = DType::kBF16;    // of output rows
  int merge = 2;                    // patches of an output row in height and width
  int max_side = 0;                 // patches in a row or column that the tower takes; 0: any
  int64_t parameters = 0;
  size_t weight_bytes = 0;
};

// What a call's grids mean in numbers (segments, positions, orders, interpolation weights), made on the host and copied
// to the device beside the patches. What is in it is the tower's own business.
struct TowerIndex {
  std::vector<int32_t> ints;
  std::vector<float> floats;
};

struct TowerCall {
  std::span<const Grid> grids;
  TensorView patches;  // [sum of rows, patch_values]
  TensorView ints;     // [n] int32: TowerIndex::ints on the device
  TensorView floats;   // [n] f32
  TensorView out;      // [sum of tokens, hidden], item after item
  device::Stream stream;
  device::Arena& workspace;       // at least workspace_bytes()
  model::Probe* probe = nullptr;  // "tower" (last norm of the tower), "vision" (out), and the tower's own names
};

class Tower {
 public:
  virtual ~Tower() = default;
  virtual const TowerInfo& info() const = 0;
  // Output rows of an item. h and w are multiples of `merge`.
  virtual int64_t tokens(const Grid& grid) const = 0;
  virtual void index(std::span<const Grid> grids, TowerIndex& out) const = 0;
  // Most ints and floats that index() makes, and temporaries that encode() takes, for calls of up to `rows` patch rows
  // in up to `items` items, whatever their shapes.
  virtual size_t max_ints(int64_t rows, int items) const = 0;
  virtual size_t max_floats(int64_t rows, int items) const = 0;
  virtual size_t workspace_bytes(int64_t rows, int items, device::Stream stream) const = 0;
  // Const: any thread that owns the stream, one call at a time. An item's rows do not depend on its neighbours.
  virtual Status encode(const TowerCall& call) const = 0;
  // As Model::weight_memory().
  virtual model::WeightMemory* weight_memory() const { return nullptr; }
};

// Null when the architecture has no tower. Tensors of the text model in the same files are not its business.
Expected<std::unique_ptr<Tower>> load_tower(const model::LoadOptions& options, device::Device& device);

// What `tern inspect` and --dry-run say without reading weights; info.parameters is 0 when there is no tower.
struct TowerSummary {
  TowerInfo info;
  std::vector<std::pair<std::string, size_t>> weight_bytes;  // by precision: ("bfloat16", n), ("float32", n)
};
Expected<TowerSummary> summarize_tower(const model::LoadOptions& options);

}  // namespace tern::vision
