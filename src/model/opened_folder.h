// A model folder before its weights are read: its configuration, its tensors, and what it and the command line together
// say about quantization.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/decoder_spec.h"
#include "model/files/checkpoint.h"
#include "model/loader.h"
#include "model/quantized/scheme.h"
#include "model/static/static_folder.h"
#include "model/weights/weight_plan.h"
#include "model/weights/weight_source.h"

namespace tern::model {

struct OpenedFolder {
  LoadOptions options;  // as asked, but for the quantization, and dummy where there are no weights
  json::Object config;
  DecoderSpec spec;
  FileQuantization files;
  Presences presences;
  Checkpoint checkpoint;                   // empty with dummy weights, and where there is an export
  std::unique_ptr<StaticFolder> exported;  // a static export's weights; null: there are others

  // `weights`: there must be some, unless they are made from a seed.
  static Expected<OpenedFolder> open(const LoadOptions& options, bool weights);

  // What the files hold as codes; null: nothing.
  const StoredCodes* codes() const { return files.codes && !options.dummy ? &*files.codes : nullptr; }
  std::vector<std::string> notes() const;
  Status check() const;  // of the files, see MappedFile::check
  // Whether the number of layers was overridden: the files may have more.
  bool cut() const;
  Expected<WeightPlan> plan(DecoderWeights& weights);
  // Every parameter of the plan in the checkpoint.
  Expected<std::vector<Stored>> resolve(const WeightPlan& plan) const;
  // Where values and codes of the plan come from: a seed, the checkpoint or the export. The plan must outlive it.
  Expected<std::unique_ptr<WeightSource>> source(const WeightPlan& plan) const;
};

}  // namespace tern::model
