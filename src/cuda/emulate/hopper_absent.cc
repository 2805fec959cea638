// What the files for Hopper define: DeviceFacts::sm90_files is false here, so nothing of it is ever chosen.
#include "cuda/attention/attention_prefill.h"
#include "cuda/fusion/chain.h"
#include "cuda/gemm/codes/codes_gemm.h"
#include "cuda/gemm/gemm.h"
#include "cuda/host/measure.h"

namespace tern::cuda {
namespace {

Status absent() { return make_error(ErrorCode::kUnsupported, "kernels for Hopper are not emulated"); }

}  // namespace

Status gemm_wgmma(const Gemm&, const void*, int, device::Stream) { return absent(); }
Status gemm_splitk_dsmem(const Gemm&, const void*, int, device::Stream) { return absent(); }
Status gemm_large_tile_128(const Gemm&, const void*, int, device::Stream) { return absent(); }
Status gemm_large_tile_192(const Gemm&, const void*, int, device::Stream) { return absent(); }
Status gemm_large_tile_sums(const Gemm&, const void*, int, device::Stream) { return absent(); }
Status gemm_large_tile_gated(const Gemm&, const void*, device::Stream) { return absent(); }
Status gemm_large_tile_slim(const Gemm&, const void*, device::Stream) { return absent(); }
Status gemm_large_tile_cluster(const Gemm&, const void*, device::Stream) { return absent(); }
Status gemm_gate(const Gemm&, const void*, GemmKernel, device::Stream) { return absent(); }
Status gemm_smem_resident(const Gemm&, const void*, device::Stream) { return absent(); }
Status gemm_single_wave(const Gemm&, const void*, device::Stream) { return absent(); }
Status gemm_streamk(const Gemm&, const void*, device::Stream) { return absent(); }
void count_large_tile_clusters(ClusterFacts&, device::Stream) {}
void count_gate_clusters(ClusterFacts&, device::Stream) {}
Status gemm_grouped_few(const Gemm&, const void* const*, device::Stream) { return absent(); }
Status gemm_grouped_tiles(const GroupedChoice&, const Gemm&, const void* const*, device::Stream) { return absent(); }
Status gemm_grouped_wide(GroupedKernel, const Gemm&, const void* const*, device::Stream) { return absent(); }
Status gemm_grouped_gather(GroupedKernel, const Gemm&, const void* const*, device::Stream) { return absent(); }
Status codes_wgmma_int8(const Gemm&, const CodesWgmma&, const void*, device::Stream) { return absent(); }
Status codes_wgmma_int4(const Gemm&, const CodesWgmma&, const void*, device::Stream) { return absent(); }
Status codes_wgmma_int4_32(const Gemm&, const CodesWgmma&, const void*, device::Stream) { return absent(); }
Status codes_wgmma_int4_64(const Gemm&, const CodesWgmma&, const void*, device::Stream) { return absent(); }
Status codes_wgmma_e4m3(const Gemm&, const CodesWgmma&, const void*, device::Stream) { return absent(); }
Status launch_chain(const Chain&, device::Stream) { return absent(); }
AttentionArgs prefill_units(AttentionArgs a) { return a; }
Status attention_prefill(const AttentionArgs&, int64_t, device::Stream) { return absent(); }
AttentionArgs latent_units(AttentionArgs a, device::Stream) { return a; }
Status attention_mla_sm90(const AttentionArgs&, int64_t, device::Stream) { return absent(); }
void count_decode_clusters(const AttentionArgs&, bool, AttentionFacts&, device::Stream) {}
AttentionArgs decode_sm90_units(AttentionArgs a, const AttentionChoice&, device::Stream) { return a; }
Status attention_decode_sm90(const AttentionArgs&, DecodeKernel, device::Stream) { return absent(); }
Status attention_segments(AttentionArgs, const SegmentRotation&, int64_t, void*, device::Stream) { return absent(); }
void launch_bulk_read(const void*, size_t, int, uint32_t*, cudaStream_t) {}

}  // namespace tern::cuda
