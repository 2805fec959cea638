// Keys and values of tokens into blocks of KvArrangement::kCpuPacked.
#pragma once

#include <cstdint>

#include "device/kv_layout.h"
#include "kernels/cpu/kernel_table.h"

namespace tern::ops::cpu {

inline constexpr int64_t kRunTokens = 16;        // of a run at most
inline constexpr int64_t kCodeHeadValues = 512;  // of a head whose cache is quantized at most

// Tokens that lie one after the other in one block: written together, which turns scattered words into short rows.
struct SlotRun {
  int64_t slot = 0, count = 0;
  const char *k = nullptr, *v = nullptr;  // of the first token's first KV head: bf16 or f32
  int64_t stride = 0;                     // bytes between tokens
  int bf16 = 1;                           // the type of k and v, which a cache that is not quantized shares
};

// Neighbours in a pair or in four may belong to another thread: only a token's own places are written. Values that
// KvSpec::rounded names are rounded where they are.
void write_run(const kernels::KernelTable& kernels, const KvLayerView& cache, const SlotRun& run);

}  // namespace tern::ops::cpu
