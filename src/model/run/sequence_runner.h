// Runs sequences through a model and a paged cache, step by step, without an engine: for verification and tests.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "model/model.h"

namespace tern::model {

struct RunnerOptions {
  int block_size = 64;
  int max_tokens = 4096;  // of one step
  int max_rows = 8;
  int max_length = 8192;    // of one sequence
  uint64_t block_seed = 1;  // the order in which blocks are handed out
};

class SequenceRunner {
 public:
  static Expected<std::unique_ptr<SequenceRunner>> make(const Model& model, device::Device& device,
                                                        const RunnerOptions& options);

  struct Row {
    int sequence = 0;
    std::span<const int32_t> tokens;             // continue the sequence
    bool all_logits = false;                     // a logit row per token, else for the last one only
    std::span<const int32_t> positions = {};     // empty: as in text; else [3, tokens]
    std::span<const int32_t> picture_rows = {};  // empty: none; else [tokens], -1 or a row of the pictures
  };
  // Runs one step; float32 logits [rows asked for, outputs()] stay valid until the next one.
  Expected<std::span<const float>> step(std::span<const Row> rows, Probe* probe = nullptr);

  // Rows that picture_rows refer to, [P, hidden]; must stay where they are.
  void set_pictures(TensorView pictures) { batch_.pictures = pictures; }

  // Forgets all sequences; blocks are dealt anew in the same order.
  void reset();
  int length(int sequence) const { return lengths_[static_cast<size_t>(sequence)]; }
  int outputs() const { return model_.info().outputs(); }

 private:
  SequenceRunner(const Model& model, device::Device& device, const RunnerOptions& options);
  Status allocate();
  int block_of(int sequence, int position);

  const Model& model_;
  device::Device& device_;
  const RunnerOptions options_;
  const device::Stream stream_;
  int blocks_per_row_ = 0;
  std::vector<int> block_order_;  // free blocks in the order they are taken
  size_t next_block_ = 0;
  std::vector<std::vector<int>> tables_;  // by sequence
  std::vector<int> lengths_;
  BatchLimits limits_;
  device::Buffer inputs_, workspace_, logits_;
  std::vector<device::Buffer> cache_memory_;
  KvCache cache_;
  Batch batch_;
  std::vector<float> host_logits_;
};

}  // namespace tern::model
