#include "kernels/cpu/isa.h"
#include "ops/cpu/cpu_ops.h"

namespace tern::ops {

const Backend& cpu_backend() {
  static const Backend backend = [] {
    Backend b;
    b.rms_norm = cpu::rms_norm;
    b.add = cpu::add;
    b.silu_mul = cpu::silu_mul;
    b.embedding = cpu::embedding;
    b.resolve_ids = cpu::resolve_ids;
    b.gather_rows = cpu::gather_rows;
    b.rope_table = cpu::rope_table;
    b.rope = cpu::rope;
    b.qkv_prepare = cpu::qkv_prepare;
    b.mla_cache_write = cpu::mla_cache_write;
    b.attention = cpu::attention;
    b.mla_attention = cpu::mla_attention;
    b.attention_workspace = cpu::attention_workspace;
    b.moe_route = cpu::moe_route;
    b.moe_permute = cpu::moe_permute;
    b.moe_combine = cpu::moe_combine;
    b.find_weight_format = cpu::find_weight_format;
    b.layer_norm = cpu::layer_norm;
    b.activate = cpu::activate;
    b.segment_attention = cpu::segment_attention;
    b.segment_attention_workspace = cpu::segment_attention_workspace;
    b.take_rows = cpu::take_rows;
    b.scatter_rows = cpu::scatter_rows;
    b.interpolate_rows = cpu::interpolate_rows;
    b.kernels = [] { return kernels::kernel_table().name; };
    return b;
  }();
  return backend;
}

}  // namespace tern::ops
