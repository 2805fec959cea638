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

Expected<std::vector<OfflineRun>> Offline::run(const std::vector<std::vector<int32_t>>& prompts, int new_tokens,
                                               const SamplingParams& sampling) {
  std::vector<OfflineRun> runs(prompts.size());
  const engine::RequestId base = next_id_;
  next_id_ += prompts.size();
  for (size_t i = 0; i < prompts.size(); ++i) {
    engine::Request request;
    request.id = base + i;
    request.external_id = "offline-" + std::to_string(request.id);
    request.prompt = prompts[i];
    request.sampling = sampling;
    request.sampling.seed = request.id;
    request.max_tokens = new_tokens;
    request.ignore_eos = true;
    runs[i].submitted_ns = request.arrival_ns = monotonic_ns();
    TERN_RETURN_IF_ERROR(engine_->submit(std::move(request)));
  }
  std::vector<engine::Delta> deltas;
  for (size_t open = prompts.size(); open > 0;) {
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
      if (delta.finish != engine::FinishReason::kNone) --open;
    }
  }
  return runs;
}

}  // namespace tern::app
