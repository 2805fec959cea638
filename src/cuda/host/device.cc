// One GPU: streams, memory, copies, events, graphs. Owned and used by one thread, except for what it allocates at
// start.
#include "cuda/host/device.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "cuda/fusion/fusion.h"
#include "cuda/gemm/blaslt.h"
#include "cuda/gemm/gemm.h"
#include "cuda/host/copies.h"
#include "cuda/host/range.h"
#include "cuda/host/timing.h"
#include "cuda/runtime/context.h"
#include "cuda/runtime/modules.h"
#include "cuda/runtime/wide_room.h"

namespace tern::cuda {
namespace {

using device::Buffer;
using device::Stream;

std::string dotted(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

class CudaEvent final : public device::Event {
 public:
  explicit CudaEvent(cudaEvent_t event) : event_(event) {}
  ~CudaEvent() override { (void)cudaEventDestroy(event_); }
  Status record(Stream s) override { return check(cudaEventRecord(event_, raw(s))); }
  Status wait_on(Stream s) override {
    state(s).joins = state(s).microbatches;
    return check(cudaStreamWaitEvent(raw(s), event_, 0));
  }
  Status synchronize() override { return check(cudaEventSynchronize(event_)); }
  bool done() override { return cudaEventQuery(event_) != cudaErrorNotReady; }

 private:
  static Status check(cudaError_t e) { return e == cudaSuccess ? Status() : cuda_error("event", e); }
  cudaEvent_t event_;
};

class CudaGraph final : public device::Graph {
 public:
  explicit CudaGraph(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaGraph() override { (void)cudaGraphExecDestroy(graph_); }
  Status launch(Stream s) override {
    const cudaError_t e = cudaGraphLaunch(graph_, raw(s));
    return e == cudaSuccess ? Status() : cuda_error("graph launch", e);
  }

 private:
  cudaGraphExec_t graph_;
};

void free_device(void* data, size_t) { (void)cudaFree(data); }
void free_host(void* data, size_t) { (void)cudaFreeHost(data); }

class CudaDevice final : public device::Device {
 public:
  ~CudaDevice() override {
    (void)cudaSetDevice(ordinal_);
    if (room_.data != nullptr) set_wide_room(ordinal_, {});
    (void)cudaFree(room_.data);
    for (StreamState& s : streams_) {
      if (s.stream != nullptr) (void)cudaStreamDestroy(s.stream);
      (void)cudaFree(s.parts);
      (void)cudaFree(s.tickets);
      (void)cudaFree(s.squares);
    }
  }
  Status open(const device::CudaOptions& options);

  const device::DeviceInfo& info() const override { return info_; }
  Stream stream() override { return as_stream(0); }
  Stream side_stream(device::StreamRole role) override { return as_stream(1 + static_cast<size_t>(role)); }
  int microbatch_streams() const override { return microbatches_; }
  Stream microbatch_stream(int i) override { return as_stream(kFirstMicrobatch + static_cast<size_t>(i)); }
  Status bind_thread() override { return check("choosing the device", cudaSetDevice(ordinal_)); }
  Expected<Buffer> allocate(size_t bytes) override;
  Expected<Buffer> allocate_host(size_t bytes) override;
  void copy_to_device(void* dst, const void* src, size_t bytes, Stream s) override {
    if (bytes > 0) keep(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, raw(s)));
  }
  void copy_to_host(void* dst, const void* src, size_t bytes, Stream s) override {
    if (bytes > 0) keep(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, raw(s)));
  }
  Status synchronize(Stream s) override {
    keep(cudaStreamSynchronize(raw(s)));
    return check("a step", fault_.load());
  }
  size_t memory_available() const override {
    size_t free = 0, total = 0;
    (void)cudaSetDevice(ordinal_);
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
  }
  Expected<std::unique_ptr<device::Event>> make_event() override;
  Expected<std::unique_ptr<device::Event>> make_timed_event() override {
    if (Status s = bind_thread(); !s.ok()) return std::move(s).error();
    return cuda::make_timed_event();
  }
  void range_push(const char* name) override { cuda::range_push(name); }
  void range_pop() override { cuda::range_pop(); }
  bool has_graphs() const override { return true; }
  Status begin_capture(Stream s) override {
    return check("capture", cudaStreamBeginCapture(raw(s), cudaStreamCaptureModeThreadLocal));
  }
  Expected<std::unique_ptr<device::Graph>> end_capture(Stream s) override;
  Expected<std::unique_ptr<device::AddressRange>> reserve(size_t bytes) override {
    if (Status s = bind_thread(); !s.ok()) return std::move(s).error();
    return reserve_range(ordinal_, bytes, allocations_);
  }
  bool own_memory() const override { return true; }
  Status copy_many(std::span<const device::CopySpan> pieces, Stream s) override { return cuda::copy_many(pieces, s); }
  Status copy_in_turn(const std::array<std::span<const device::CopySpan>, 2>& sets, const device::HostTurn& turn,
                      Stream s) override {
    return cuda::copy_in_turn(sets, turn, s);
  }
  Status status() const override { return check("a step", fault_.load()); }
  uint64_t allocations() const override { return allocations_; }
  Status inject(device::Fault fault, Stream s) override { return cuda::inject(fault, s); }
  Status load_kernels() override {
    if (Status s = bind_thread(); !s.ok()) return s;
    TERN_RETURN_IF_ERROR(make_wide_room());
    return cuda::load_kernels();
  }

 private:
  static Status check(const char* what, cudaError_t e) { return e == cudaSuccess ? Status() : cuda_error(what, e); }
  // Copies give no status: the first fault is told by synchronize().
  void keep(cudaError_t e) {
    cudaError_t none = cudaSuccess;
    if (e != cudaSuccess) (void)fault_.compare_exchange_strong(none, e);
  }
  Stream as_stream(size_t i) { return {device::DeviceKind::kCuda, nullptr, &streams_[i]}; }
  // Of the streams those that this device has.
  size_t stream_count() const {
    return kFirstMicrobatch + (microbatches_ == 1 ? 0 : static_cast<size_t>(microbatches_));
  }
  static int microbatches_of(const cudaDeviceProp& p, const device::CudaOptions& options);
  void fill_state(const cudaDeviceProp& p, const device::CudaOptions& options);
  Status make_scratch();
  Status make_wide_room();

  static constexpr size_t kCompute = 0, kVision = 1 + static_cast<size_t>(device::StreamRole::kVision);
  static constexpr size_t kFirstMicrobatch = kVision + 1, kMicrobatches = 4;
  int ordinal_ = 0, microbatches_ = 1;
  device::DeviceInfo info_;
  std::unique_ptr<BlasLt> blas_;  // of the compute stream; the vision stream has its own
  std::unique_ptr<BlasLt> vision_blas_;
  std::array<StreamState, kFirstMicrobatch + kMicrobatches> streams_;
  std::array<Deferred, kFirstMicrobatch + kMicrobatches> deferred_;
  std::atomic<cudaError_t> fault_{cudaSuccess};  // other ranks' threads ask for it, too
  std::atomic<uint64_t> allocations_{0};
  WideRoom room_;  // of the compute stream
};

void CudaDevice::fill_state(const cudaDeviceProp& p, const device::CudaOptions& options) {
  for (StreamState& s : streams_) {
    s.ordinal = ordinal_;
    s.multiprocessors = p.multiProcessorCount;
    s.arch = p.major * 10 + p.minor;
    if (options.arch_limit > 0 && options.arch_limit < s.arch) s.arch = options.arch_limit;
    s.smem_limit = static_cast<int>(p.sharedMemPerBlockOptin);
    const int limit = options.shared_memory_limit * 1024;
    if (limit > 0 && limit < s.smem_limit) s.smem_limit = limit;
    s.deterministic = options.deterministic, s.microbatches = microbatches_ > 1;
    s.pdl = options.pdl && s.arch >= 90 && waits_compiled();
  }
  for (size_t i = 0; i < streams_.size(); ++i) streams_[i].deferred = &deferred_[i];
  for (size_t i = kFirstMicrobatch; i < streams_.size(); ++i) streams_[i].microbatch = true;
  streams_[kCompute].blas = blas_.get();
  streams_[kVision].blas = vision_blas_.get();
}

// What products leave between the blocks of a launch; only the streams that models run on need it.
Status CudaDevice::make_scratch() {
  for (const size_t i : {kCompute, kVision}) {
    StreamState& s = streams_[i];
    s.waits = i == kCompute;
    if (s.arch < 90 || (s.deterministic && !s.waits)) continue;
    cudaError_t e = cudaMalloc(&s.parts, s.waits ? parts_bytes(s.multiprocessors) : streamk_bytes(s.multiprocessors));
    if (e == cudaSuccess) e = cudaMalloc(&s.tickets, kTickets * sizeof(uint32_t));
    if (e == cudaSuccess) e = cudaMemsetAsync(s.tickets, 0, kTickets * sizeof(uint32_t), s.stream);
    if (e == cudaSuccess && !s.deterministic) e = cudaMalloc(&s.squares, kNormSquaresBytes);
    if (e != cudaSuccess) return cuda_error("memory for products", e);
  }
  for (size_t i = kFirstMicrobatch; i < stream_count(); ++i) {
    const cudaError_t e = cudaMalloc(&streams_[i].squares, kNormSquaresBytes);
    if (e != cudaSuccess) return cuda_error("memory for norms", e);
  }
  return {};
}

// Two where kernels for Hopper leave each other room. Parts of a step have other company, and so other bits.
int CudaDevice::microbatches_of(const cudaDeviceProp& p, const device::CudaOptions& options) {
  const bool hopper = p.major == 9 && (options.arch_limit == 0 || options.arch_limit >= 90);
  const int wanted = options.microbatches > 0 ? options.microbatches : hopper ? 2 : 1;
  return options.deterministic ? 1 : std::min(wanted, static_cast<int>(kMicrobatches));
}

Status CudaDevice::open(const device::CudaOptions& options) {
  ordinal_ = options.ordinal;
  if (Status s = bind_thread(); !s.ok()) return s;
  cudaDeviceProp p{};
  if (const cudaError_t e = cudaGetDeviceProperties(&p, ordinal_); e != cudaSuccess) return cuda_error("the device", e);
  if (p.major < 8) {
    return make_error(ErrorCode::kUnsupported,
                      std::string(p.name) + " has compute capability " + std::to_string(p.major) + "." +
                          std::to_string(p.minor) + "; 8.0 or newer is needed",
                      "device");
  }
  int least = 0, greatest = 0;
  (void)cudaDeviceGetStreamPriorityRange(&least, &greatest);
  microbatches_ = microbatches_of(p, options);
  for (size_t i = 0; i < stream_count(); ++i) {
    // Steps go first; what runs beside them gives way.
    const cudaError_t e = cudaStreamCreateWithPriority(&streams_[i].stream, cudaStreamNonBlocking,
                                                       i == kCompute || i >= kFirstMicrobatch ? greatest : least);
    if (e != cudaSuccess) return cuda_error("a stream", e);
  }
  if (options.cublaslt && !options.deterministic) {
    const LibraryPlaces places{options.search_folders, options.more_folders};
    blas_ = BlasLt::open(places, p.name, options.blas_cache_file);
    if (blas_ != nullptr) vision_blas_ = BlasLt::open(places, p.name, "");
  }
  fill_state(p, options);
  TERN_RETURN_IF_ERROR(make_scratch());
  int driver_version = 0;
  (void)cudaDriverGetVersion(&driver_version);
  info_.kind = device::DeviceKind::kCuda;
  info_.name = std::string(p.name) + ", compute capability " + std::to_string(p.major) + "." + std::to_string(p.minor) +
               ", driver for CUDA " + dotted(driver_version) + (blas_ != nullptr ? ", cuBLASLt" : ", own products");
  info_.memory_total = p.totalGlobalMem;
  info_.memory_available = memory_available();
  return {};
}

// For weights of codes that have been packed by now; not where their products never widen them.
Status CudaDevice::make_wide_room() {
  const size_t bytes = wanted_wide_room(ordinal_);
  if (bytes <= room_.bytes || blas_ == nullptr) return {};
  (void)cudaFree(room_.data);
  room_ = {};
  ++allocations_;
  if (const cudaError_t e = cudaMalloc(&room_.data, bytes); e != cudaSuccess) {
    (void)cudaGetLastError();
    return make_error(ErrorCode::kResourceExhausted,
                      "cannot allocate " + std::to_string(bytes) + " bytes on the GPU for widened weights");
  }
  room_.bytes = bytes;
  set_wide_room(ordinal_, room_);
  return {};
}

Expected<Buffer> CudaDevice::allocate(size_t bytes) {
  if (bytes == 0) return Buffer();
  if (Status s = bind_thread(); !s.ok()) return std::move(s).error();
  ++allocations_;
  void* p = nullptr;
  if (const cudaError_t e = cudaMalloc(&p, bytes); e != cudaSuccess) {
    (void)cudaGetLastError();
    return make_error(ErrorCode::kResourceExhausted,
                      "cannot allocate " + std::to_string(bytes) + " bytes on the GPU: " + cudaGetErrorString(e));
  }
  Buffer buffer(p, bytes, free_device);
  cudaError_t e = cudaMemsetAsync(p, 0, bytes, streams_[0].stream);
  if (e == cudaSuccess) e = cudaStreamSynchronize(streams_[0].stream);
  if (e != cudaSuccess) return cuda_error("clearing memory", e);
  return buffer;
}

Expected<Buffer> CudaDevice::allocate_host(size_t bytes) {
  if (bytes == 0) return Buffer();
  if (Status s = bind_thread(); !s.ok()) return std::move(s).error();
  ++allocations_;
  void* p = nullptr;
  if (const cudaError_t e = cudaHostAlloc(&p, bytes, cudaHostAllocPortable); e != cudaSuccess) {
    (void)cudaGetLastError();
    return make_error(ErrorCode::kResourceExhausted,
                      "cannot pin " + std::to_string(bytes) + " bytes of host memory: " + cudaGetErrorString(e));
  }
  Buffer buffer(p, bytes, free_host);
  __builtin_memset(p, 0, bytes);
  return buffer;
}

Expected<std::unique_ptr<device::Event>> CudaDevice::make_event() {
  cudaEvent_t event = nullptr;
  if (const cudaError_t e = cudaEventCreateWithFlags(&event, cudaEventDisableTiming); e != cudaSuccess) {
    return cuda_error("an event", e);
  }
  return std::unique_ptr<device::Event>(std::make_unique<CudaEvent>(event));
}

Expected<std::unique_ptr<device::Graph>> CudaDevice::end_capture(Stream s) {
  cudaGraph_t graph = nullptr;
  if (const cudaError_t e = cudaStreamEndCapture(raw(s), &graph); e != cudaSuccess) return cuda_error("capture", e);
  cudaGraphExec_t ready = nullptr;
  cudaError_t e = cudaGraphInstantiate(&ready, graph, 0);
  (void)cudaGraphDestroy(graph);
  if (e != cudaSuccess) return cuda_error("a graph", e);
  auto owner = std::make_unique<CudaGraph>(ready);
  // Now and not with the first launch, which would wait some 0.3 ms for it and take its memory from a running engine.
  e = cudaGraphUpload(ready, raw(s));
  if (e != cudaSuccess) return cuda_error("a graph", e);
  return std::unique_ptr<device::Graph>(std::move(owner));
}

}  // namespace

Expected<int> device_count() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) {
    return make_error(ErrorCode::kUnavailable, "there is no NVIDIA driver (libcuda.so.1 cannot be loaded)", "device");
  }
  constexpr int kNeeded = CUDART_VERSION / 1000 * 1000;  // any minor version of the same major one will do
  if (version < kNeeded) {
    return make_error(ErrorCode::kUnsupported,
                      "the NVIDIA driver is for CUDA " + dotted(version) + ", this build needs " + dotted(kNeeded) +
                          ": update the driver, install the package cuda-compat-" + std::to_string(kNeeded / 1000) +
                          "-0 and put its folder into LD_LIBRARY_PATH, or use a build with CUDA 12.8",
                      "device");
  }
  int count = 0;
  if (const cudaError_t e = cudaGetDeviceCount(&count); e != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    return make_error(ErrorCode::kUnavailable, std::string("the NVIDIA driver shows no GPU: ") + cudaGetErrorString(e),
                      "device");
  }
  return count;
}

Expected<std::unique_ptr<device::Device>> make_device(const device::CudaOptions& options) {
  TERN_ASSIGN_OR_RETURN(const int count, device_count());
  if (options.ordinal < 0 || options.ordinal >= count) {
    return make_error(ErrorCode::kInvalidArgument,
                      "there is no GPU " + std::to_string(options.ordinal) + " among " + std::to_string(count),
                      "device");
  }
  auto made = std::make_unique<CudaDevice>();
  if (Status s = made->open(options); !s.ok()) return std::move(s).error();
  return std::unique_ptr<device::Device>(std::move(made));
}

}  // namespace tern::cuda
