#include "engine/step/step_graphs.h"

#include <fmt/format.h>

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "device/arena.h"
#include "ops/embedding.h"

namespace tern::engine {
namespace {}  // namespace

template <class Work>
Expected<std::unique_ptr<device::Graph>> StepGraphs::record(Work&& work) {
  device::Device& device = *p_.device;
  const device::Stream stream = device.stream();
  TERN_RETURN_IF_ERROR(p_.steps[0]->upload(device, stream));
  TERN_RETURN_IF_ERROR(give_turn(0, stream));
  TERN_RETURN_IF_ERROR(work(stream));  // loads kernels and chooses algorithms
  TERN_RETURN_IF_ERROR(device.synchronize(stream));
  TERN_RETURN_IF_ERROR(device.begin_capture(stream));
  const Status status = work(stream);
  auto graph = device.end_capture(stream);  // in any case: the stream must leave the mode
  if (!status.ok()) return Error(status.error());
  return graph;
}

int StepGraphs::samples_of(const StepShape& shape) const {
  const int i = shapes_.find_samples(shape.rows);
  return i < 0 ? shape.rows : shapes_.samples()[static_cast<size_t>(i)];
}

Status StepGraphs::give_turn(int set, device::Stream stream) {
  if (turn_ == set) return {};
  turn_ = set;
  const char* from = sets_.data() + static_cast<size_t>(set) * sizeof(int32_t);
  const device::CopySpan word{turn_memory_.data(), from, sizeof(int32_t), 1, 0, 0};
  return p_.device->copy_many({&word, 1}, stream);
}

Status StepGraphs::run_forward(const StepShape& shape, device::Stream stream) {
  const Step& step = *p_.steps[0];
  const model::Batch batch = step.view(shape, p_.max_context_len);
  std::array<sample::CopyList, 2> inputs;
  for (size_t i = 0; i < 2; ++i) p_.steps[i]->list_inputs(shape, samples_of(shape), inputs[i]);
  auto* const turn = reinterpret_cast<int32_t*>(turn_memory_.data());
  TERN_RETURN_IF_ERROR(p_.device->copy_in_turn({inputs[0].pieces(), inputs[1].pieces()}, {turn, false}, stream));
  TERN_RETURN_IF_ERROR(ops::resolve_ids(
      {batch.token_ids, batch.token_source, step.sampling.device_ids(), step.table_changes(shape), batch.block_table},
      stream));
  device::Arena arena(p_.workspace, p_.workspace_bytes);
  const model::ForwardContext context{batch, *p_.cache, stream, arena, nullptr};
  return p_.model->forward(context, p_.logits.first(batch.logit_rows));
}

Status StepGraphs::run_sampling(int count, uint32_t processors, device::Stream stream) {
  TERN_RETURN_IF_ERROR(p_.sampler->sample_tokens(p_.steps[0]->sampling, p_.logits, count, processors, stream));
  std::array<sample::CopyList, 2> results;
  for (size_t i = 0; i < 2; ++i) p_.steps[i]->sampling.download(count, results[i]);
  auto* const turn = reinterpret_cast<int32_t*>(turn_memory_.data());
  turn_ = 1;
  return p_.device->copy_in_turn({results[0].pieces(), results[1].pieces()}, {turn, true}, stream);
}

Status StepGraphs::capture_forward() {
  for (const StepShape& shape : shapes_.shapes()) {
    const int samples = samples_of(shape);
    p_.steps[0]->fill_idle(shape);
    p_.steps[0]->sampling.pad(samples);
    TERN_ASSIGN_OR_RETURN(auto graph, record([&](device::Stream s) -> Status {
                            TERN_RETURN_IF_ERROR(run_forward(shape, s));
                            return shape.decode ? run_sampling(samples, sample::kAtOnce, s) : Status();
                          }));
    forward_.push_back(std::move(graph));
  }
  return {};
}

Status StepGraphs::capture_sampling() {
  using namespace sample;
  std::vector<uint32_t> sets = {kPenalties, kAllButMask};
  if (p_.sampler->limits().masks) sets.push_back(kAllButMask | kMask);
  for (const uint32_t processors : sets) {
    SamplingGraphs graphs{processors, {}};
    for (const int count : shapes_.samples()) {
      p_.steps[0]->begin();
      p_.steps[0]->sampling.pad(count);
      TERN_ASSIGN_OR_RETURN(auto graph, record([&](device::Stream s) { return run_sampling(count, processors, s); }));
      graphs.by_count.push_back(std::move(graph));
    }
    sampling_graphs_.push_back(std::move(graphs));
  }
  return {};
}

Expected<std::unique_ptr<StepGraphs>> StepGraphs::capture(const GraphConfig& config, const Parts& parts) {
  if (!config.use || !parts.device->has_graphs()) return std::unique_ptr<StepGraphs>();
  std::unique_ptr<StepGraphs> g(new StepGraphs(parts));
  TERN_ASSIGN_OR_RETURN(g->shapes_, GraphShapes::make(config, parts.limits));
  TERN_ASSIGN_OR_RETURN(g->turn_memory_, parts.device->allocate(sizeof(int32_t)));
  TERN_ASSIGN_OR_RETURN(g->sets_, parts.device->allocate_host(2 * sizeof(int32_t)));
  reinterpret_cast<int32_t*>(g->sets_.data())[1] = 1;
  const int64_t begin = monotonic_ns();
  const size_t before = parts.device->memory_available();
  Status captured = g->capture_forward();
  if (captured.ok()) captured = g->capture_sampling();
  if (!captured.ok()) {
    return make_error(captured.error().code,
                      fmt::format("capturing graphs: {}; --no-use-cudagraph starts without, fewer "
                                  "cudagraph_capture_sizes of --graph-optimization-config need less memory",
                                  captured.error().message),
                      "graph-optimization-config");
  }
  const size_t after = parts.device->memory_available();
  parts.steps[0]->begin();
  TERN_INFO("graphs: {} for forward passes of up to {} tokens, {} for sampling, in {:.2f} s, {} MiB",
            g->forward_.size(), g->shapes_.most_tokens(), g->sampling_graphs_.size() * g->shapes_.samples().size(),
            static_cast<double>(monotonic_ns() - begin) * 1e-9, (before > after ? before - after : 0) >> 20);
  return g;
}

Expected<bool> StepGraphs::forward(Step& step, device::Stream stream) {
  // The rows to sample travel with the step, whichever way it runs.
  const int i = shapes_.find(step.batch);
  if (i < 0) {
    const int s = shapes_.find_samples(step.sampling.count());
    if (s >= 0) step.sampling.pad(shapes_.samples()[static_cast<size_t>(s)]);
    return false;
  }
  const StepShape& shape = shapes_.shapes()[static_cast<size_t>(i)];
  step.pad(shape);
  step.sampled = shape.decode && step.sampling.count() > 0 && step.sampling.late() == 0;
  if (step.sampled || !shape.decode) {
    step.sampling.pad(samples_of(shape));
  } else {
    step.sampling.hold_back(samples_of(shape));
  }
  TERN_RETURN_IF_ERROR(step.upload_rest(*p_.device, stream));
  if (shape.decode) TERN_RETURN_IF_ERROR(p_.sampler->prepare(step.sampling, *p_.device, stream));
  TERN_RETURN_IF_ERROR(give_turn(set_of(step), stream));
  TERN_RETURN_IF_ERROR(forward_[static_cast<size_t>(i)]->launch(stream));
  if (shape.decode) turn_ = 1 - turn_;
  step.replayed = true;
  return true;
}

Expected<bool> StepGraphs::sample(Step& step, device::Stream stream) {
  if (step.sampled) return true;
  sample::SamplingBatch& batch = step.sampling;
  if (batch.held_back()) {
    sample::CopyList rows;
    batch.upload_late(rows);
    TERN_RETURN_IF_ERROR(rows.run(*p_.device, stream));
  }
  const int i = shapes_.find_samples(batch.count());
  if (i < 0 || batch.count() == 0 || batch.requests() > 0) return false;
  if (batch.logit_rows() > shapes_.samples()[static_cast<size_t>(i)]) return false;
  for (const SamplingGraphs& graphs : sampling_graphs_) {
    if ((batch.processors() & ~graphs.processors) != 0) continue;
    TERN_RETURN_IF_ERROR(p_.sampler->prepare(batch, *p_.device, stream));
    TERN_RETURN_IF_ERROR(p_.sampler->send_masks(batch, *p_.device, stream));
    TERN_RETURN_IF_ERROR(give_turn(set_of(step), stream));
    TERN_RETURN_IF_ERROR(graphs.by_count[static_cast<size_t>(i)]->launch(stream));
    turn_ = 1 - turn_;
    return true;
  }
  return false;
}

}  // namespace tern::engine
