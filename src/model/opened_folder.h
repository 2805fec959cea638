// A model folder before its weights are read: its configuration, its tensors, and what it and the command line together
// say about quantization.
#pragma once

#include <string>
#include <vector>

#include "model/decoder_spec.h"
#include "model/files/checkpoint.h"
#include "model/loader.h"
#include "model/quantized/scheme.h"
#include "model/weights/weight_plan.h"
#include "model/weights/weight_source.h"

namespace tern::model {

struct OpenedFolder {
  LoadOptions options;  // as asked, but for the quantization, and dummy where there are no weights
  json::Object config;
  DecoderSpec spec;
  FileQuantization files;
  Presences presences;
  Checkpoint checkpoint;  // empty with dummy weights

  // `weights`: there must be some, unless they are made from a seed.
  static Expected<OpenedFolder> open(const LoadOptions& options, bool weights);

  // What the files hold as codes; null: nothing.
  const StoredCodes* codes() const { return files.codes && !options.dummy ? &*files.codes : nullptr; }
  std::vector<std::string> notes() const;
  Expected<WeightPlan> plan(DecoderWeights& weights);
  // Every parameter of the plan in the files.
  Expected<std::vector<Stored>> resolve(const WeightPlan& plan) const;
};

}  // namespace tern::model
