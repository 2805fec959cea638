// A prompt of a picture case with its pictures, and pieces of it as a step takes them.
#pragma once

#include <vector>

#include "model/run/sequence_runner.h"
#include "vision/verify/case_pictures.h"

namespace tern::vision {

// Tokens of a prompt with its recorded continuation, ready for a step.
struct Chunk {
  std::vector<int32_t> ids, positions, rows;
  model::SequenceRunner::Row row(int sequence, bool all_logits) const {
    return {sequence, ids, all_logits, positions, rows};
  }
};

struct Prompt {
  const model::GoldenPrompt* golden = nullptr;
  PromptPictures pictures;
  std::vector<int64_t> tokens;  // of each item
  int64_t rows = 0;             // of all items
  int64_t first_row = 0;        // where they stand among those of all prompts
  PromptLayout layout;

  // Tokens [begin, begin + count); positions after the prompt go on from its delta.
  Chunk chunk(size_t begin, size_t count) const;
};

// `placeholders`: ids whose embeddings pictures replace.
Expected<Prompt> make_prompt(const std::string& folder, const model::GoldenPrompt& golden,
                             const CaseProcessor& processor, const Tower& tower,
                             const std::vector<int32_t>& placeholders, const PositionRule& rule);

}  // namespace tern::vision
