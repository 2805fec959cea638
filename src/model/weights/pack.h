// Fills a rank's memory: slice by slice, from files (whose pages are released as it goes on) or from a seed.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "base/error.h"
#include "device/device.h"
#include "model/weights/weight_plan.h"
#include "model/weights/weight_source.h"

namespace tern::model {

struct PackOptions {
  DType activation = DType::kBF16;
  std::array<const ops::WeightFormat*, kMatrixRoles> formats = {};  // by MatrixRole
  bool pow2_scales = false;                                         // Quantization::pow2_scales
  std::function<void(size_t, size_t)> progress;                     // from several threads, one at a time
  int threads = 0;  // on a device without a pool of its own; 0: physical cores
};

// The formats that the options name, or their defaults. An error when the device lacks one.
Expected<PackOptions> pack_options(const LoadOptions& options, device::DeviceKind kind);

// Matrices whose codes the files hold get the format of these. Errors: a product of which only a part is stored so, or
// differently from the rest; a format that the device lacks.
Status take_stored_formats(const WeightSource& source, const LoadOptions& options, device::DeviceKind kind,
                           WeightPlan& plan);

// What a scale of a format serves, and how it is rounded where weights are quantized while loading.
ops::ScaleBlocks blocks_made(const ops::WeightFormat& format, const PackOptions& options);

// What each part became: "168 projections in wint8, 1 output layer in bf16, ..."; from the plan and the formats.
std::string formats_line(const WeightPlan& plan, const PackOptions& options);

// Bytes that pack_weights() will allocate.
size_t packed_bytes(const WeightPlan& plan, const PackOptions& options);

// Takes `memory` once and tells every target where it lies. kResourceExhausted when it does not fit.
Status place_plan(const WeightPlan& plan, const PackOptions& options, device::Device& device, WeightMemory& memory);
// Tells every target where it lies in memory that begins at `base`; what they are and where, as one number.
Hash128 lay_out(const WeightPlan& plan, const PackOptions& options, char* base);
// Fills what was placed.
Status fill_plan(const WeightPlan& plan, const WeightSource& source, const PackOptions& options,
                 device::Device& device);
// Both.
Status pack_plan(const WeightPlan& plan, const WeightSource& source, const PackOptions& options, device::Device& device,
                 WeightMemory& memory);
Status pack_weights(const WeightPlan& plan, const WeightSource& source, const PackOptions& options,
                    device::Device& device, DecoderWeights& weights);

}  // namespace tern::model
