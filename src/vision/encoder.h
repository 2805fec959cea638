// The encoder that towers share: blocks of attention and MLP, each behind a norm that also adds what the part before
// left to the residual, in one pass.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "device/arena.h"
#include "device/device.h"
#include "device/tensor.h"
#include "vision/tower_plan.h"

namespace tern::vision {

// One pass. With an arena that measures, parts take what they need and run nothing.
struct EncoderPass {
  device::Arena& arena;
  device::Stream stream;
  DType activation = DType::kBF16;
  int heads = 0;
  TensorView cos, sin;  // [rows, head_dim / 2]: of the rotation of q and k
  bool runs() const { return !arena.measuring(); }
};

// The rows that see each other.
struct Segments {
  TensorView starts;  // [count + 1] int32; not read while measuring
  int64_t count = 0;
  int longest = 0;            // rows
  bool shared = false;        // all blocks use `workspace` and plan once; else each takes its own
  void* workspace = nullptr;  // null while measuring
  bool planned = false;
};

size_t attention_workspace(const EncoderPass& pass, const Segments& segments, int64_t rows, int64_t width);

// out = output(attention(qkv(x))), x: [rows, width].
Status self_attention(const EncoderPass& pass, const Linear& qkv, const Linear& output, Segments& segments,
                      TensorView x, TensorView out);

// norm(weights, first): of the residual where `first`, else of the residual with the last part's result added, into x.
// attention(block, number) and mlp(block) make such results of x. Ends behind the last block: its result is not added.
template <class Blocks, class Norm, class Attention, class Mlp>
Status run_blocks(const Blocks& blocks, Norm&& norm, Attention&& attention, Mlp&& mlp) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    TERN_RETURN_IF_ERROR(norm(blocks[i].norm1, i == 0));
    TERN_RETURN_IF_ERROR(attention(blocks[i], i));
    TERN_RETURN_IF_ERROR(norm(blocks[i].norm2, false));
    TERN_RETURN_IF_ERROR(mlp(blocks[i]));
  }
  return {};
}

}  // namespace tern::vision
