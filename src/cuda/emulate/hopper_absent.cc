// What the files for Hopper define: the emulated GPU is an older one, so nothing here is ever chosen.
#include "cuda/attention/attention_prefill.h"
#include "cuda/fusion/chain.h"
#include "cuda/gemm/gemm.h"
#include "cuda/gemm/gemm_splitk_dsmem.h"
#include "cuda/host/measure.h"

namespace tern::cuda {
namespace {

Status absent() { return make_error(ErrorCode::kUnsupported, "kernels for Hopper are not emulated"); }

}  // namespace

Status gemm_wgmma(const Gemm&, const void*, device::Stream) { return absent(); }
Status gemm_wgmma(const Gemm&, const void*, int, device::Stream) { return absent(); }
Status gemm_large_tile(const Gemm&, const void*, device::Stream) { return absent(); }
bool gate_fits(const Gemm&, device::Stream) { return false; }
bool large_tile_takes(const Gemm&, device::Stream) { return false; }
int parts_of(const Gemm&, device::Stream) { return 1; }
Status gemm_gate(const Gemm&, const void*, device::Stream) { return absent(); }
Status launch_chain(const Chain&, device::Stream) { return absent(); }
Status gemm_wgmma_grouped(const Gemm&, const void* const*, device::Stream) { return absent(); }
bool smem_resident_fits(const Gemm&, device::Stream) { return false; }
Status gemm_smem_resident(const Gemm&, const void*, device::Stream) { return absent(); }
bool streamk_fits(const Gemm&, device::Stream) { return false; }
bool single_wave_fits(const Gemm&, device::Stream) { return false; }
int single_wave_norm_width(const Gemm&, device::Stream) { return 0; }
Status gemm_single_wave(const Gemm&, const void*, device::Stream) { return absent(); }
Status gemm_streamk(const Gemm&, const void*, device::Stream) { return absent(); }
int wgmma_norm_width(const Gemm&) { return 0; }
bool splitk_dsmem_few(const Gemm&) { return false; }
int wgmma_split(int64_t, int64_t) { return 1; }
bool grouped_gathers(const Gemm&, const void* const*, device::Stream) { return false; }
bool wgmma_grouped_fits(const Gemm&, const void* const*) { return false; }
bool prefill_fits(const AttentionArgs&, device::Stream) { return false; }
AttentionArgs prefill_units(AttentionArgs a) { return a; }
Status attention_prefill(const AttentionArgs&, int64_t, device::Stream) { return absent(); }
bool latent_fits(const AttentionArgs&, device::Stream) { return false; }
AttentionArgs latent_units(AttentionArgs a, device::Stream) { return a; }
Status attention_mla_sm90(const AttentionArgs&, int64_t, device::Stream) { return absent(); }
bool decode_fits(const AttentionArgs&, device::Stream) { return false; }
AttentionArgs decode_units(AttentionArgs a, int, device::Stream) { return a; }
Status attention_decode(const AttentionArgs&, device::Stream) { return absent(); }
bool segments_fit(const AttentionArgs&, const SegmentRotation&, int64_t, device::Stream) { return false; }
Status attention_segments(AttentionArgs, const SegmentRotation&, int64_t, void*, device::Stream) { return absent(); }
void launch_bulk_read(const void*, size_t, int, uint32_t*, cudaStream_t) {}

}  // namespace tern::cuda
