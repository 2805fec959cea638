// A paged cache on both sides: the CPU's own arrangement there, the exchange form on the GPU. And rows that read it.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "cuda/tests/harness.h"
#include "device/kv_layout.h"

namespace tern::cuda_test {

class PagedCache {
 public:
  // `blocks` blocks of one layer, the null block included. Unused places hold NaN: they must not matter.
  PagedCache(Context& c, DType type, int kv_heads, int dim, int block, int blocks, bool latent = false);
  KvLayerView cpu() { return {host_.data(), spec_.layer_block_bytes(), spec_}; }
  KvLayerView gpu();
  // Random values in every place, the same on both sides.
  void random(uint32_t seed);
  // What the GPU has.
  std::vector<char> copy_to_host() const { return exchange_.copy_to_host(); }
  // What the GPU wrote against what the CPU wrote, block by block in the exchange form.
  void compare_blocks(const std::string& name, double tolerance);
  // The same of codes and their scales: none further apart than `most` codes, scales within a hundredth; 0: the bytes.
  void compare_codes(const std::string& name, int most);

 private:
  void random_codes(uint32_t seed);
  Context& c_;
  KvSpec spec_;
  std::vector<char> host_;  // the CPU's
  Mirror exchange_;
  int blocks_;
};

struct Row {
  int queries, context;
};

// Tables over shuffled blocks, block 0 left out.
struct Batch {
  Batch(Context& c, const std::vector<Row>& rows, int block, uint32_t seed);
  Mirror start, context, table;
  int blocks = 0, longest_query = 0, longest_context = 0, tokens = 0;
};

struct Workspace {
  Workspace(Context& c, int tokens, int heads, int dim);
  std::vector<char> cpu;
  device::Buffer gpu;
};

}  // namespace tern::cuda_test
