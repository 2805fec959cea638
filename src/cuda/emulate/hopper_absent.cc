// What the files for Hopper define: the emulated GPU is an older one, so nothing here is ever chosen.
#include "cuda/attention/attention_prefill.h"
#include "cuda/fusion/chain.h"
#include "cuda/gemm/gemm.h"
#include "cuda/gemm/gemm_push.h"
#include "cuda/host/measure.h"

namespace tern::cuda {
namespace {

Status absent() { return make_error(ErrorCode::kUnsupported, "kernels for Hopper are not emulated"); }

}  // namespace

Status gemm_hopper(const Gemm&, const void*, device::Stream) { return absent(); }
Status gemm_hopper(const Gemm&, const void*, int, device::Stream) { return absent(); }
Status gemm_fixed(const Gemm&, const void*, device::Stream) { return absent(); }
bool gate_fits(const Gemm&, device::Stream) { return false; }
bool fixed_takes(const Gemm&, device::Stream) { return false; }
int parts_of(const Gemm&, device::Stream) { return 1; }
Status gemm_gate(const Gemm&, const void*, device::Stream) { return absent(); }
Status launch_chain(const Chain&, device::Stream) { return absent(); }
Status gemm_hopper_grouped(const Gemm&, const void* const*, device::Stream) { return absent(); }
bool box_fits(const Gemm&, device::Stream) { return false; }
Status gemm_box(const Gemm&, const void*, device::Stream) { return absent(); }
bool walk_fits(const Gemm&, device::Stream) { return false; }
bool even_fits(const Gemm&, device::Stream) { return false; }
int even_norm_width(const Gemm&, device::Stream) { return 0; }
Status gemm_even(const Gemm&, const void*, device::Stream) { return absent(); }
Status gemm_walk(const Gemm&, const void*, device::Stream) { return absent(); }
int hopper_norm_width(const Gemm&) { return 0; }
bool push_few(const Gemm&) { return false; }
int hopper_split(int64_t, int64_t) { return 1; }
bool hopper_gathers(const Gemm&, const void* const*, device::Stream) { return false; }
bool hopper_grouped_fits(const Gemm&, const void* const*) { return false; }
bool prefill_fits(const AttentionArgs&, device::Stream) { return false; }
AttentionArgs prefill_units(AttentionArgs a) { return a; }
Status attention_prefill(const AttentionArgs&, int64_t, device::Stream) { return absent(); }
bool latent_fits(const AttentionArgs&, device::Stream) { return false; }
AttentionArgs latent_units(AttentionArgs a, device::Stream) { return a; }
Status attention_latent_hopper(const AttentionArgs&, int64_t, device::Stream) { return absent(); }
bool decode_fits(const AttentionArgs&, device::Stream) { return false; }
AttentionArgs decode_units(AttentionArgs a, int, device::Stream) { return a; }
Status attention_decode(const AttentionArgs&, device::Stream) { return absent(); }
bool segments_fit(const AttentionArgs&, const SegmentRotation&, int64_t, device::Stream) { return false; }
Status attention_segments(AttentionArgs, const SegmentRotation&, int64_t, void*, device::Stream) { return absent(); }
void launch_bulk_read(const void*, size_t, int, uint32_t*, cudaStream_t) {}

}  // namespace tern::cuda
