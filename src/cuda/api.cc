// The one symbol of the shared object: a table of everything it offers.
#include "cuda/blaslt.h"
#include "cuda/cuda_ops.h"
#include "cuda/device.h"
#include "cuda/measure.h"
#include "ops/loaded_backend.h"

#define TERN_TEXT_(x) #x
#define TERN_TEXT(x) TERN_TEXT_(x)

namespace tern::cuda {
namespace {

const ops::Backend& backend() {
  static const ops::Backend table = [] {
    ops::Backend b;
    b.rms_norm = rms_norm;
    b.add = add;
    b.silu_mul = silu_mul;
    b.embedding = embedding;
    b.resolve_ids = resolve_ids;
    b.gather_rows = gather_rows;
    b.rope_table = rope_table;
    b.rope = rope;
    b.qkv_prepare = qkv_prepare;
    b.mla_cache_write = mla_cache_write;
    b.attention = attention;
    b.mla_attention = mla_attention;
    b.attention_workspace = attention_workspace;
    b.moe_route = moe_route;
    b.moe_permute = moe_permute;
    b.moe_combine = moe_combine;
    b.find_weight_format = find_weight_format;
    b.kernels = [] { return "sm_80"; };
    b.layer_norm = layer_norm;
    b.activate = activate;
    b.segment_attention = segment_attention;
    b.segment_attention_workspace = segment_attention_workspace;
    b.take_rows = take_rows;
    b.scatter_rows = scatter_rows;
    b.interpolate_rows = interpolate_rows;
    b.attention_plan = attention_plan;
    b.attention_plan_bytes = attention_plan_bytes;
    b.moe_dispatch = moe_dispatch;
    b.moe_combine_norm = moe_combine_norm;
    b.product_type = product_type;
    b.open_tape = open_tape;
    b.close_tape = close_tape;
    return b;
  }();
  return table;
}

const ops::SampleBackend& sample_backend() {
  static const ops::SampleBackend table = [] {
    ops::SampleBackend b;
    b.logit_mask = logit_mask;
    b.logit_bias = logit_bias;
    b.logit_min_tokens = logit_min_tokens;
    b.thinking_force = thinking_force;
    b.thinking_advance = thinking_advance;
    b.logit_penalties = logit_penalties;
    b.logit_bad_words = logit_bad_words;
    b.slot_reset = slot_reset;
    b.slot_mark = slot_mark;
    b.sample = sample;
    b.sample_workspace = sample_workspace;
    b.token_logprobs = token_logprobs;
    b.capture_logits = capture_logits;
    b.copy_block = copy_block;
    return b;
  }();
  return table;
}

constexpr const char* kBuild = "CUDA " TERN_TEXT(CUDART_VERSION);

const char* last_kernel(device::Stream s) { return state(s).last_kernel; }

Status save_blas_cache(device::Stream s) {
  if (state(s).blas == nullptr || state(s).blas->settle()) return {};
  return make_error(ErrorCode::kIo, "the file of cuBLASLt's algorithms cannot be written");
}

}  // namespace
}  // namespace tern::cuda

extern "C" __attribute__((visibility("default"))) const tern::device::CudaLibrary* tern_cuda_library() {
  using namespace tern;
  static const device::CudaLibrary library = [] {
    device::CudaLibrary l;
    l.version = device::kCudaLibraryVersion;
    l.device_layout = device::cuda_device_layout();
    l.ops_layout = ops::backend_layout();
    l.build = cuda::kBuild;
    l.device_count = cuda::device_count;
    l.make_device = cuda::make_device;
    l.ops = &cuda::backend();
    l.sample_ops = &cuda::sample_backend();
    l.last_kernel = cuda::last_kernel;
    l.save_blas_cache = cuda::save_blas_cache;
    l.measure = cuda::measure;
    l.interface = TERN_INTERFACE;
    return l;
  }();
  return &library;
}
