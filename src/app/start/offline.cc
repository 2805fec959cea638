#include "app/start/offline.h"

#include <chrono>

#include "app/start/service.h"
#include "base/clock.h"

namespace tern::app {

Expected<std::unique_ptr<Offline>> Offline::load(const Settings& settings) {
  std::unique_ptr<Offline> offline(new Offline(settings));
  if (settings.data_parallel.size > 1) {
    return make_error(ErrorCode::kUnsupported, "--data-parallel-size: without a server there is one engine",
                      "data-parallel-size");
  }
  TERN_ASSIGN_OR_RETURN(offline->ranks_, LoadedRanks::open(settings));
  TERN_RETURN_IF_ERROR(offline->ranks_->load(settings));
  return offline;
}

Status Offline::start_engine() {
  TERN_ASSIGN_OR_RETURN(engine_, ranks_->start(config_, nullptr));
  return {};
}

Status Offline::submit(const OfflinePrompt& prompt, engine::RequestId id, const SamplingParams& sampling,
                       OfflineRun& run) {
  engine::Request request;
  request.id = id;
  request.external_id = "offline-" + std::to_string(id);
  request.prompt = prompt.ids;
  request.sampling = sampling;
  request.sampling.seed = id;
  request.max_tokens = prompt.new_tokens;
  request.ignore_eos = prompt.ignore_eos;
  run.submitted_ns = request.arrival_ns = monotonic_ns();
  return engine_->submit(std::move(request));
}

Expected<std::vector<OfflineRun>> Offline::run(const std::vector<std::vector<int32_t>>& prompts, int new_tokens,
                                               const SamplingParams& sampling) {
  std::vector<OfflinePrompt> all;
  for (const auto& ids : prompts) all.push_back({ids, new_tokens});
  return run(all, sampling, [](const OfflineRun&) {});
}

Expected<std::vector<OfflineRun>> Offline::run(const std::vector<OfflinePrompt>& prompts,
                                               const SamplingParams& sampling,
                                               const std::function<void(const OfflineRun&)>& ended) {
  std::vector<OfflineRun> runs(prompts.size());
  const engine::RequestId base = next_id_;
  next_id_ += prompts.size();
  std::vector<engine::Delta> deltas;
  size_t next = 0, open = 0;
  while (next < prompts.size() || open > 0) {
    for (; next < prompts.size() && open < config_.inbox_capacity; ++next, ++open)
      TERN_RETURN_IF_ERROR(submit(prompts[next], base + next, sampling, runs[next]));
    deltas.clear();
    if (!engine_->poll(deltas, std::chrono::milliseconds(1000)) && deltas.empty()) {
      return make_error(ErrorCode::kInternal, "the engine has ended");
    }
    const int64_t now = monotonic_ns();
    for (const engine::Delta& delta : deltas) {
      if (delta.id < base) continue;
      OfflineRun& run = runs[delta.id - base];
      for (const engine::TokenOutput& token : delta.tokens) {
        run.tokens.push_back(token.id);
        run.token_ns.push_back(now);
      }
      run.cached_tokens = std::max(run.cached_tokens, static_cast<int>(delta.cached_tokens));
      if (delta.finish == engine::FinishReason::kError) return delta.error;
      if (delta.finish == engine::FinishReason::kNone) continue;
      --open;
      ended(run);
    }
  }
  return runs;
}

}  // namespace tern::app
