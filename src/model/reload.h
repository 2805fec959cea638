// Weights that are read again, while nothing runs, into the memory they have:
// from their folder or from another one that fits.
#pragma once

#include <memory>

#include "base/error.h"
#include "model/loader.h"
#include "model/model.h"
#include "model/weights/pack.h"
#include "model/weights/weight_memory.h"

namespace tern::model {

// What a folder has for weights that are loaded. Nothing was written yet.
class Reload {
 public:
  virtual ~Reload() = default;
  // The memory comes, where it was given back, and is filled. After an error it
  // has been given back: what would be there is of no use.
  virtual Status fill() = 0;
};

// Opens the folder of `options` (as they were for load_model()) and checks it
// against what `model` was loaded from: config.json, tensors, shapes, formats.
// Reads no values. Errors, of one line: what load_model() says; what differs.
Expected<std::unique_ptr<Reload>> open_reload(const LoadOptions& options, const Model& model, device::Device& device);

// For the two halves of it, here and for towers. kInvalidArgument names the key
// that differs.
Status check_same_config(const json::Object& now, const json::Object& then);
// `plan` gets its places in `memory`, and must have the layout that is there.
Status place_again(const WeightPlan& plan, const PackOptions& options, const WeightMemory& memory);
// Behind place_again(): as Reload::fill().
Status fill_again(const WeightPlan& plan, const WeightSource& source, const PackOptions& options,
                  device::Device& device, WeightMemory& memory);

}  // namespace tern::model
