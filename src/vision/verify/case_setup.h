// A model with its tower, and what the tower makes of the pictures of a case's prompts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "model/loader.h"
#include "model/run/sequence_runner.h"
#include "vision/verify/case_prompt.h"
#include "vision/verify/tower_runs.h"

namespace tern::vision {

struct Setup {
  std::unique_ptr<model::Model> model;
  std::unique_ptr<Tower> tower;
  Encoded pictures;  // rows of every prompt's items, made by one call
};

Expected<Setup> load_setup(const model::LoadOptions& options, device::Device& device);

const void* patches_of(const PromptPictures& p, DType type);
Status encode_all(Setup& s, std::span<const Prompt> prompts, device::Device& device);

// With room for all prompts at once and for the longest with its continuation.
Expected<std::unique_ptr<model::SequenceRunner>> make_runner(const Setup& s, std::span<const Prompt> prompts,
                                                             device::Device& device, uint64_t seed);

// Logits and greedy tokens that `widened`, a model of the codes' values, computes, in the place of the case's
// (model/verify/widened.h). The prompts are the case's own.
Status widen_case(model::GoldenCase& golden, const Setup& widened, std::span<const Prompt> prompts,
                  device::Device& device);

}  // namespace tern::vision
