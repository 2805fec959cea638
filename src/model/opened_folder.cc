#include "model/opened_folder.h"

#include <fmt/format.h>

#include "model/arch/registry.h"
#include "model/config/config_reader.h"
#include "model/quantized/cache_scales.h"
#include "model/quantized/file_quantization.h"
#include "model/static/static_quantization.h"
#include "model/static/static_source.h"

namespace tern::model {

namespace {

Status convert_to_embeddings(DecoderSpec& spec) {
  if (spec.head != HeadKind::kVocabulary) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} has a head of its own: only models that generate become embedding models", spec.architecture),
        "convert");
  }
  spec.head = HeadKind::kHidden;
  return {};
}

}  // namespace

Expected<OpenedFolder> OpenedFolder::open(const LoadOptions& options, bool weights) {
  OpenedFolder o{};
  o.options = options;
  TERN_ASSIGN_OR_RETURN(o.config, read_config(options.path, options.config_name, options.overrides));
  TERN_ASSIGN_OR_RETURN(o.spec, read_spec(o.config));
  if (options.embed) TERN_RETURN_IF_ERROR(convert_to_embeddings(o.spec));
  o.presences = default_presences(o.spec);
  if (has_static_weights(options.path)) {
    TERN_ASSIGN_OR_RETURN(StaticFolder exported, StaticFolder::open(options.path, o.config));
    o.files = static_quantization(exported, o.config);
    if (!options.dummy) {
      o.exported = std::make_unique<StaticFolder>(std::move(exported));
      TERN_ASSIGN_OR_RETURN(o.presences, static_presences(o.spec, *o.exported));
    }
    settle_quantization(o.files, o.options);
    return o;
  }
  TERN_ASSIGN_OR_RETURN(o.files, find_file_quantization(options.path, o.config, o.spec.architecture));
  if (!options.dummy && (weights || has_weights(options.path))) {
    TERN_ASSIGN_OR_RETURN(o.checkpoint, Checkpoint::open(options.path));
    o.presences = detect_presences(o.spec, o.checkpoint);
    TERN_RETURN_IF_ERROR(o.checkpoint.check());
  } else {
    o.options.dummy = true;
  }
  settle_quantization(o.files, o.options);
  return o;
}

std::vector<std::string> OpenedFolder::notes() const {
  std::vector<std::string> all = files.notes;
  if (!presences.output.note.empty()) all.push_back(presences.output.note);
  if (exported != nullptr)
    for (std::string& note : static_notes(*exported, options.activation)) all.push_back(std::move(note));
  return all;
}

Status OpenedFolder::check() const { return exported != nullptr ? exported->check() : checkpoint.check(); }

Expected<WeightPlan> OpenedFolder::plan(DecoderWeights& weights) {
  presences.head_apart = !options.quantization.head.empty();
  TERN_ASSIGN_OR_RETURN(WeightPlan plan, plan_weights(spec, presences, options.shard, weights));
  TERN_RETURN_IF_ERROR(leave_out(options.quantization.ignore, plan));
  if (files.codes && options.dummy) leave_out(*files.codes, plan);
  return plan;
}

bool OpenedFolder::cut() const { return flatten_text_config(options.overrides).contains("num_hidden_layers"); }

Expected<std::vector<Stored>> OpenedFolder::resolve(const WeightPlan& plan) const {
  std::vector<std::string> foreign = spec.tower_names;
  foreign.insert(foreign.end(), {kKeyScaleName, kValueScaleName});
  const ResolveOptions resolve{spec.layers, spec.mtp_layers, cut(), foreign, {}, codes()};
  return resolve_parameters(plan.parameters, checkpoint, resolve);
}

Expected<std::unique_ptr<WeightSource>> OpenedFolder::source(const WeightPlan& plan) const {
  if (options.dummy)
    return std::unique_ptr<WeightSource>(std::make_unique<DummySource>(plan.parameters, options.dummy_seed));
  if (exported != nullptr) {
    TERN_ASSIGN_OR_RETURN(std::vector<StaticPlace> places, find_static_places(spec, *exported, plan.parameters));
    return std::unique_ptr<WeightSource>(std::make_unique<StaticSource>(plan.parameters, std::move(places)));
  }
  TERN_ASSIGN_OR_RETURN(std::vector<Stored> stored, resolve(plan));
  return std::unique_ptr<WeightSource>(std::make_unique<CheckpointSource>(plan.parameters, std::move(stored)));
}

}  // namespace tern::model
