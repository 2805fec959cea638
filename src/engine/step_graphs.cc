#include "engine/step_graphs.h"

#include <fmt/format.h>

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "device/arena.h"
#include "ops/embedding.h"

namespace tern::engine {

template <class Work>
Expected<std::unique_ptr<device::Graph>> StepGraphs::record(Work&& work) {
  device::Device& device = *p_.device;
  const device::Stream stream = device.stream();
  TERN_RETURN_IF_ERROR(p_.step->upload(device, stream));
  TERN_RETURN_IF_ERROR(work(stream));  // loads kernels and chooses algorithms
  TERN_RETURN_IF_ERROR(device.synchronize(stream));
  TERN_RETURN_IF_ERROR(device.begin_capture(stream));
  const Status status = work(stream);
  auto graph = device.end_capture(stream);  // in any case: the stream must leave the mode
  if (!status.ok()) return Error(status.error());
  return graph;
}

Status StepGraphs::run_forward(const StepShape& shape, device::Stream stream) {
  const model::Batch batch = p_.step->view(shape, p_.max_context_len);
  TERN_RETURN_IF_ERROR(ops::resolve_ids({batch.token_ids, batch.token_source, p_.step->sampling.device_ids()}, stream));
  device::Arena arena(p_.workspace, p_.workspace_bytes);
  const model::ForwardContext context{batch, *p_.cache, stream, arena, nullptr};
  return p_.model->forward(context, p_.logits.first(batch.logit_rows));
}

Status StepGraphs::capture_forward() {
  for (const StepShape& shape : shapes_.shapes()) {
    p_.step->fill_idle(shape);
    TERN_ASSIGN_OR_RETURN(auto graph, record([&](device::Stream s) { return run_forward(shape, s); }));
    forward_.push_back(std::move(graph));
  }
  return {};
}

Status StepGraphs::capture_draws() {
  using namespace sample;
  constexpr uint32_t kEvery = kBias | kMinTokens | kPenalties | kBadWords;
  std::vector<uint32_t> sets = {0, kPenalties, kEvery};
  if (p_.sampler->limits().masks) sets.push_back(kEvery | kMask);
  for (const uint32_t processors : sets) {
    Draws draws{processors, {}};
    for (const int count : shapes_.samples()) {
      p_.step->begin();
      p_.step->sampling.pad(count);
      TERN_ASSIGN_OR_RETURN(auto graph, record([&](device::Stream s) {
                              return p_.sampler->draw(p_.step->sampling, p_.logits, count, processors, s);
                            }));
      draws.by_count.push_back(std::move(graph));
    }
    draws_.push_back(std::move(draws));
  }
  return {};
}

Expected<std::unique_ptr<StepGraphs>> StepGraphs::capture(const GraphConfig& config, const Parts& parts) {
  if (!config.use || !parts.device->has_graphs()) return std::unique_ptr<StepGraphs>();
  std::unique_ptr<StepGraphs> g(new StepGraphs(parts));
  TERN_ASSIGN_OR_RETURN(g->shapes_, GraphShapes::make(config, parts.limits));
  const int64_t begin = monotonic_ns();
  const size_t before = parts.device->memory_available();
  Status captured = g->capture_forward();
  if (captured.ok()) captured = g->capture_draws();
  if (!captured.ok()) {
    return make_error(captured.error().code,
                      fmt::format("capturing graphs: {}; --no-use-cudagraph starts without, fewer "
                                  "cudagraph_capture_sizes of --graph-optimization-config need less memory",
                                  captured.error().message),
                      "graph-optimization-config");
  }
  const size_t after = parts.device->memory_available();
  parts.step->begin();
  TERN_INFO("graphs: {} for forward passes of up to {} tokens, {} for sampling, in {:.2f} s, {} MiB",
            g->forward_.size(), g->shapes_.most_tokens(), g->draws_.size() * g->shapes_.samples().size(),
            static_cast<double>(monotonic_ns() - begin) * 1e-9, (before > after ? before - after : 0) >> 20);
  return g;
}

Expected<bool> StepGraphs::forward(Step& step, device::Stream stream) {
  // The rows to sample travel with the step, whichever way it runs.
  if (const int i = shapes_.find_samples(step.sampling.count()); i >= 0) {
    step.sampling.pad(shapes_.samples()[static_cast<size_t>(i)]);
  }
  const int i = shapes_.find(step.batch);
  if (i < 0) return false;
  step.pad(shapes_.shapes()[static_cast<size_t>(i)]);
  TERN_RETURN_IF_ERROR(step.upload(*p_.device, stream));
  TERN_RETURN_IF_ERROR(forward_[static_cast<size_t>(i)]->launch(stream));
  step.replayed = true;
  return true;
}

Expected<bool> StepGraphs::sample(Step& step, device::Stream stream) {
  const sample::SamplingBatch& batch = step.sampling;
  const int i = shapes_.find_samples(batch.count());
  if (i < 0 || batch.count() == 0 || batch.requests() > 0) return false;
  for (const Draws& draws : draws_) {
    if ((batch.processors() & ~draws.processors) != 0) continue;
    TERN_RETURN_IF_ERROR(p_.sampler->prepare(batch, *p_.device, stream));
    TERN_RETURN_IF_ERROR(draws.by_count[static_cast<size_t>(i)]->launch(stream));
    TERN_RETURN_IF_ERROR(p_.sampler->finish(batch, *p_.device, stream));
    return true;
  }
  return false;
}

}  // namespace tern::engine
