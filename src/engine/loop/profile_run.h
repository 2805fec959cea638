// The largest steps there can be, run for real before blocks are counted: what the device and its libraries take for
// them is taken then. They read and write the null block alone.
#pragma once

#include "base/memory/raw_bytes.h"
#include "engine/ranks/step_runner.h"
#include "model/batch.h"
#include "sched/scheduler.h"

namespace tern::engine {

class ProfileRun {
 public:
  // `step`: either of the two; what it holds is lost. Sizes as the engine's.
  ProfileRun(StepRunner& runner, Step& step, const model::BatchLimits& limits, const sample::SamplerLimits& sampling,
             const sched::SchedulerConfig& config);

  // Prefill of every power of two up to the most tokens (products choose their kernels by it), the largest of them
  // beside the tower's largest call; then the most rows that decode, with every processor and log-probabilities. Waits
  // until all has run; errors are the device's.
  Status run();

 private:
  void prefill(int tokens);
  void decode();
  void add(int first, int count, int logits);
  void ask(int row, int logit_row);
  Status launch();
  Status start_tower();

  StepRunner& runner_;
  Step& step_;
  model::BatchLimits limits_;
  sample::SamplerLimits sampling_;
  int block_size_, longest_;
  std::vector<int32_t> tokens_, blocks_, picture_rows_;
  std::shared_ptr<RawBytes> patches_;
};

}  // namespace tern::engine
