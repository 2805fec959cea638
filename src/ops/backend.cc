#include "ops/backend.h"

#include <atomic>

namespace tern::ops {
namespace {

constexpr int kKinds = 2;
std::atomic<const Backend*> g_registered[kKinds];

const Backend* lookup(device::DeviceKind kind) {
  const auto i = static_cast<int>(kind);
  if (i < 0 || i >= kKinds) return nullptr;
  const Backend* b = g_registered[i].load(std::memory_order_acquire);
  if (b == nullptr && kind == device::DeviceKind::kCpu) return &cpu_backend();
  return b;
}

Error missing(const char* name) {
  return make_error(ErrorCode::kUnsupported, std::string("op ") + name + " is not built for this device");
}

}  // namespace

const Backend* find_backend(device::DeviceKind kind) { return lookup(kind); }

void register_backend(device::DeviceKind kind, const Backend* backend) {
  g_registered[static_cast<int>(kind)].store(backend, std::memory_order_release);
}

#define TERN_OP(name, Params)                                      \
  Status name(const Params& params, device::Stream stream) {       \
    const Backend* b = lookup(stream.kind);                        \
    if (b == nullptr || b->name == nullptr) return missing(#name); \
    return b->name(params, stream);                                \
  }
#define TERN_OP_HOST(name, Params) TERN_OP(name, Params)
#include "ops/op_list.inc"

// What has another signature, or is done without where a device has nothing of its own.

Status slot_reset(const SlotArrays& slots, int slot, device::Stream stream) {
  const Backend* b = lookup(stream.kind);
  if (b == nullptr || b->slot_reset == nullptr) return missing("slot_reset");
  return b->slot_reset(slots, slot, stream);
}

size_t sample_workspace(device::Stream stream, int64_t vocab) {
  const Backend* b = lookup(stream.kind);
  return b == nullptr || b->sample_workspace == nullptr ? 0 : b->sample_workspace(stream, vocab);
}

int64_t rows_at_once(device::Stream stream) { return stream.kind == device::DeviceKind::kCpu ? 1024 : 16384; }

DType between_products(device::Stream stream, DType product) {
  return stream.kind == device::DeviceKind::kCpu ? DType::kF32 : product;
}

size_t segment_attention_workspace(device::Stream stream, int64_t max_rows, int64_t max_segments, int heads,
                                   int head_dim) {
  const Backend* b = lookup(stream.kind);
  if (b == nullptr || b->segment_attention_workspace == nullptr) return 0;
  return b->segment_attention_workspace(stream, max_rows, max_segments, heads, head_dim);
}

Status moe_dispatch(const MoeDispatchParams& p, device::Stream stream) {
  const Backend* b = lookup(stream.kind);
  if (b != nullptr && b->moe_dispatch != nullptr) return b->moe_dispatch(p, stream);
  if (p.norm.x.data != nullptr) TERN_RETURN_IF_ERROR(rms_norm(p.norm, stream));
  if (p.router.weight != nullptr) TERN_RETURN_IF_ERROR(linear(p.router, stream));
  TERN_RETURN_IF_ERROR(moe_route(p.route, stream));
  return moe_permute(p.permute, stream);
}

Status moe_combine_norm(const MoeCombineNormParams& p, device::Stream stream) {
  const Backend* b = lookup(stream.kind);
  if (b != nullptr && b->moe_combine_norm != nullptr) return b->moe_combine_norm(p, stream);
  TERN_RETURN_IF_ERROR(moe_combine(p.combine, stream));
  return rms_norm(p.norm, stream);
}

Status all_reduce_norm(const AllReduceNormParams& p, device::Stream stream) {
  const Backend* b = lookup(stream.kind);
  if (b != nullptr && b->all_reduce_norm != nullptr) return b->all_reduce_norm(p, stream);
  TERN_RETURN_IF_ERROR(all_reduce(p.reduce, stream));
  return rms_norm(p.norm, stream);
}

Status attention_plan(const AttentionPlanParams& p, device::Stream stream) {
  const Backend* b = lookup(stream.kind);
  return b == nullptr || b->attention_plan == nullptr ? Status() : b->attention_plan(p, stream);
}

size_t attention_plan_bytes(device::Stream stream, int max_rows) {
  const Backend* b = lookup(stream.kind);
  return b == nullptr || b->attention_plan_bytes == nullptr ? 0 : b->attention_plan_bytes(stream, max_rows);
}

size_t attention_workspace(device::Stream stream, int max_tokens, int heads, int head_dim) {
  const Backend* b = lookup(stream.kind);
  if (b == nullptr || b->attention_workspace == nullptr) return 0;
  return b->attention_workspace(stream, max_tokens, heads, head_dim);
}

const WeightFormat* find_weight_format(device::DeviceKind kind, const std::string& name) {
  const Backend* b = lookup(kind);
  return b == nullptr || b->find_weight_format == nullptr ? nullptr : b->find_weight_format(name.c_str());
}

Status linear(const LinearParams& p, device::Stream stream) {
  if (p.weight == nullptr || !p.weight->valid()) {
    return make_error(ErrorCode::kInvalidArgument, "linear: there is no weight", "weight");
  }
  return p.weight->format->run(p, stream);
}

void begin_deferral(device::Stream stream, int64_t rows, bool always) {
  const Backend* b = lookup(stream.kind);
  if (b != nullptr && b->begin_deferral != nullptr) b->begin_deferral(stream, rows, always);
}

Status end_deferral(device::Stream stream) {
  const Backend* b = lookup(stream.kind);
  return b == nullptr || b->end_deferral == nullptr ? Status() : b->end_deferral(stream);
}

DType product_type(device::Stream stream, int64_t rows) {
  const Backend* b = lookup(stream.kind);
  return b == nullptr || b->product_type == nullptr ? DType::kF32 : b->product_type(stream, rows);
}

Status grouped_linear(const GroupedLinearParams& p, device::Stream stream) {
  if (p.weights.empty() || !p.weights[0].valid()) {
    return make_error(ErrorCode::kInvalidArgument, "grouped_linear: there are no weights", "weights");
  }
  return p.weights[0].format->run_grouped(p, stream);
}

Status head_linear(const HeadLinearParams& p, device::Stream stream) {
  if (p.weights.empty() || !p.weights[0].valid()) {
    return make_error(ErrorCode::kInvalidArgument, "head_linear: there are no weights", "weights");
  }
  return p.weights[0].format->run_heads(p, stream);
}

Status WeightFormat::gather_rows(const PackedWeight&, TensorView, TensorView, device::Stream) const {
  return make_error(ErrorCode::kUnsupported, std::string("format ") + name() + " cannot give back single rows");
}

Expected<PackedWeight> pack_weight(device::Device& device, const WeightFormat& format, TensorView source) {
  if (source.rank != 2) return make_error(ErrorCode::kInvalidArgument, "pack: a weight has two dimensions");
  PackedWeight w;
  w.format = &format;
  w.n = source.dim[0], w.k = source.dim[1];
  TERN_ASSIGN_OR_RETURN(w.data, device.allocate(format.packed_bytes(w.n, w.k)));
  TERN_RETURN_IF_ERROR(format.pack(source, 0, w.n, w.k, w.data.data()));
  return w;
}

}  // namespace tern::ops
