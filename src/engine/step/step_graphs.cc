#include "engine/step/step_graphs.h"

#include <fmt/format.h>

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "ops/collective.h"
#include "ops/embedding.h"

namespace tern::engine {

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
  return p_.pass.run(batch, step.device_owners(), {}, stream);
}

Status StepGraphs::run_sampling(int count, uint32_t processors, device::Stream stream) {
  const Step& step = *p_.steps[0];
  TERN_RETURN_IF_ERROR(p_.sampler->sample_tokens(step.sampling, p_.pass.logits, count, processors, stream));
  if (const device::Communicator& c = p_.pass.communicator; !c.alone()) {
    TERN_RETURN_IF_ERROR(ops::all_gather({c, step.device_owners(), step.sampling.device_ids().first(count)}, stream));
  }
  std::array<sample::CopyList, 2> results;
  for (size_t i = 0; i < 2; ++i) p_.steps[i]->sampling.download(count, results[i]);
  auto* const turn = reinterpret_cast<int32_t*>(turn_memory_.data());
  turn_ = 1;
  return p_.device->copy_in_turn({results[0].pieces(), results[1].pieces()}, {turn, true}, stream);
}

Status StepGraphs::capture_forward(const StepShape& shape) {
  const int samples = samples_of(shape);
  p_.steps[0]->sampling.pad(samples);
  TERN_ASSIGN_OR_RETURN(auto graph, record([&](device::Stream s) -> Status {
                          TERN_RETURN_IF_ERROR(run_forward(shape, s));
                          return shape.decode ? run_sampling(samples, sample::kAtOnce, s) : Status();
                        }));
  forward_.push_back(std::move(graph));
  return {};
}

std::vector<uint32_t> StepGraphs::processor_sets() const {
  using namespace sample;
  std::vector<uint32_t> sets = {kPenalties, kAllButMask};
  if (p_.sampler->limits().masks) sets.push_back(kAllButMask | kMask);
  return sets;
}

Status StepGraphs::capture_sampling(uint32_t processors, int count) {
  if (sampling_graphs_.empty() || sampling_graphs_.back().processors != processors) {
    sampling_graphs_.push_back({processors, {}});
  }
  p_.steps[0]->sampling.clear();
  p_.steps[0]->sampling.pad(count);
  TERN_ASSIGN_OR_RETURN(auto graph, record([&](device::Stream s) { return run_sampling(count, processors, s); }));
  sampling_graphs_.back().by_count.push_back(std::move(graph));
  return {};
}

Expected<std::unique_ptr<StepGraphs>> StepGraphs::make(const GraphConfig& config, const Parts& parts) {
  if (!config.use || !parts.device->has_graphs()) return std::unique_ptr<StepGraphs>();
  std::unique_ptr<StepGraphs> g(new StepGraphs(parts));
  TERN_ASSIGN_OR_RETURN(g->shapes_, GraphShapes::make(config, parts.limits));
  TERN_ASSIGN_OR_RETURN(g->turn_memory_, parts.device->allocate(sizeof(int32_t)));
  TERN_ASSIGN_OR_RETURN(g->sets_, parts.device->allocate_host(2 * sizeof(int32_t)));
  reinterpret_cast<int32_t*>(g->sets_.data())[1] = 1;
  return g;
}

Status StepGraphs::capture_all() {
  for (const StepShape& shape : shapes_.shapes()) {
    p_.steps[0]->fill_idle(shape);
    TERN_RETURN_IF_ERROR(capture_forward(shape));
  }
  p_.steps[0]->begin();
  for (const uint32_t processors : processor_sets()) {
    for (const int count : shapes_.samples()) TERN_RETURN_IF_ERROR(capture_sampling(processors, count));
  }
  p_.steps[0]->begin();
  return {};
}

Error capture_error(const Error& why) {
  return make_error(why.code,
                    fmt::format("capturing graphs: {}; --no-use-cudagraph starts without, fewer "
                                "cudagraph_capture_sizes of --graph-optimization-config need less memory",
                                why.message),
                    "graph-optimization-config");
}

void StepGraphs::log(int64_t begin_ns, size_t bytes) const {
  TERN_INFO("graphs: {} for forward passes of up to {} tokens, {} for sampling, in {:.2f} s, {} MiB", forward_.size(),
            shapes_.most_tokens(), sampling_graphs_.size() * shapes_.samples().size(),
            static_cast<double>(monotonic_ns() - begin_ns) * 1e-9, bytes >> 20);
}

Expected<std::unique_ptr<StepGraphs>> StepGraphs::capture(const GraphConfig& config, const Parts& parts) {
  TERN_ASSIGN_OR_RETURN(auto g, make(config, parts));
  if (g == nullptr) return g;
  const int64_t begin = monotonic_ns();
  const size_t before = parts.device->memory_available();
  if (const Status captured = g->capture_all(); !captured.ok()) return capture_error(captured.error());
  const size_t after = parts.device->memory_available();
  g->log(begin, before > after ? before - after : 0);
  return g;
}

int StepGraphs::fit(Step& step) const {
  const int i = shapes_.find(step.batch);
  if (i < 0) return i;
  const StepShape& shape = shapes_.shapes()[static_cast<size_t>(i)];
  step.pad(shape);
  step.sampled = shape.decode && step.sampling.count() > 0 && step.sampling.late() == 0;
  return i;
}

Status StepGraphs::launch(Step& step, int graph, device::Stream stream) {
  const StepShape& shape = shapes_.shapes()[static_cast<size_t>(graph)];
  // The rows to sample travel with the step, whichever way it runs.
  if (step.sampled || !shape.decode) {
    step.sampling.pad(samples_of(shape));
  } else {
    step.sampling.hold_back(samples_of(shape));
  }
  TERN_RETURN_IF_ERROR(step.upload_rest(*p_.device, stream));
  if (shape.decode) TERN_RETURN_IF_ERROR(p_.sampler->prepare(step.sampling, *p_.device, stream));
  TERN_RETURN_IF_ERROR(give_turn(set_of(step), stream));
  TERN_RETURN_IF_ERROR(forward_[static_cast<size_t>(graph)]->launch(stream));
  if (shape.decode) turn_ = 1 - turn_;
  step.replayed = true;
  return {};
}

Expected<bool> StepGraphs::forward(Step& step, device::Stream stream) {
  if (const int graph = fit(step); graph >= 0) {
    TERN_RETURN_IF_ERROR(launch(step, graph, stream));
    return true;
  }
  const int s = shapes_.find_samples(step.sampling.count());
  if (s >= 0) step.sampling.pad(shapes_.samples()[static_cast<size_t>(s)]);
  return false;
}

StepGraphs::Sampling StepGraphs::fit(const sample::SamplingBatch& batch) const {
  const int i = shapes_.find_samples(batch.count());
  if (i < 0 || batch.count() == 0 || batch.requests() + batch.facts.count() > 0) return {};
  if (batch.logit_rows() > shapes_.samples()[static_cast<size_t>(i)]) return {};
  for (size_t set = 0; set < sampling_graphs_.size(); ++set) {
    if ((batch.processors() & ~sampling_graphs_[set].processors) == 0) return {static_cast<int>(set), i};
  }
  return {};
}

Status StepGraphs::launch(Step& step, Sampling graph, device::Stream stream) {
  TERN_RETURN_IF_ERROR(p_.sampler->prepare(step.sampling, *p_.device, stream));
  TERN_RETURN_IF_ERROR(p_.sampler->send_masks(step.sampling, *p_.device, stream));
  TERN_RETURN_IF_ERROR(give_turn(set_of(step), stream));
  const GraphList& graphs = sampling_graphs_[static_cast<size_t>(graph.set)].by_count;
  TERN_RETURN_IF_ERROR(graphs[static_cast<size_t>(graph.count)]->launch(stream));
  turn_ = 1 - turn_;
  return {};
}

Expected<bool> StepGraphs::sample(Step& step, device::Stream stream) {
  if (step.sampled) return true;
  if (step.sampling.held_back()) {
    sample::CopyList rows;
    step.sampling.upload_late(rows);
    TERN_RETURN_IF_ERROR(rows.run(*p_.device, stream));
  }
  const Sampling graph = fit(step.sampling);
  if (!graph.found()) return false;
  TERN_RETURN_IF_ERROR(launch(step, graph, stream));
  return true;
}

}  // namespace tern::engine
