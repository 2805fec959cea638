// Ceilings of this GPU: bandwidth of reads and copies, products of cuBLASLt, what a launch costs. Everything is timed
// by events around replayed graphs, so that the host does not count.
#include "cuda/host/measure.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "cuda/gemm/blaslt.h"

namespace tern::cuda {

using device::Measured;
using device::MeasureRequest;

#ifdef __CUDACC__
namespace {

using device::MeasureKind;

// Memory that goes away with its scope.
class Scratch {
 public:
  explicit Scratch(size_t bytes) { error_ = cudaMalloc(&data_, bytes); }
  ~Scratch() { (void)cudaFree(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  bool ok() const { return error_ == cudaSuccess; }
  Error error() const { return cuda_error("memory to measure with", error_); }
  char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_ = nullptr;
  cudaError_t error_ = cudaSuccess;
};

// bfloat16 values of 1/16 to 1/8 in size, signs and mantissas random: constant data would draw less power and clock
// higher than real data.
__global__ void fill_kernel(uint32_t* data, int64_t words, uint32_t seed) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += step) {
    uint32_t v = (static_cast<uint32_t>(i) + seed) * 0x9e3779b9u;
    v = (v ^ (v >> 16)) * 0x85ebca6bu;
    v = (v ^ (v >> 13)) * 0xc2b2ae35u;
    v ^= v >> 16;
    data[i] = (v & 0x807f807fu) | 0x3d803d80u;
  }
}

__global__ void nothing_kernel() {}

template <int kUnroll, bool kStreaming>
__global__ void __launch_bounds__(512) read_kernel(const uint4* data, int64_t n, uint32_t* sink) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x * kUnroll;
  uint32_t folded = 0;
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * blockDim.x * kUnroll + threadIdx.x; base < n; base += step) {
    uint4 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t i = base + static_cast<int64_t>(u) * blockDim.x;
      v[u] = i >= n ? make_uint4(0, 0, 0, 0) : kStreaming ? __ldcs(data + i) : __ldg(data + i);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) folded ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  if (folded == 0x9e3779b9u) *sink = folded;  // keeps the loads
}

__global__ void __launch_bounds__(512) copy_kernel(const uint4* from, uint4* to, int64_t n) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += 4 * step) {
    uint4 v[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      if (i + u * step < n) v[u] = __ldcs(from + i + u * step);
    }
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      if (i + u * step < n) __stcs(to + i + u * step, v[u]);
    }
  }
}

struct Events {
  cudaEvent_t begin = nullptr, end = nullptr;
  Events() {
    (void)cudaEventCreate(&begin);
    (void)cudaEventCreate(&end);
  }
  ~Events() {
    (void)cudaEventDestroy(begin);
    (void)cudaEventDestroy(end);
  }
};

// Seconds of one `work`, the best of `repeats` replays of a graph that holds `per_graph` of them.
Expected<double> best_seconds(cudaStream_t stream, int repeats, int per_graph, const std::function<bool(int)>& work) {
  if (!work(0)) return make_error(ErrorCode::kUnsupported, "this cannot be measured here", "device");
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  cudaError_t e = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  bool did = e == cudaSuccess;
  for (int i = 0; did && i < per_graph; ++i) did = work(i);
  if (e == cudaSuccess) e = cudaStreamEndCapture(stream, &graph);
  if (e == cudaSuccess) e = cudaGraphInstantiate(&ready, graph, 0);
  const Events events;
  float best = 0;
  for (int i = 0; e == cudaSuccess && did && i <= repeats; ++i) {
    (void)cudaEventRecord(events.begin, stream);
    (void)cudaGraphLaunch(ready, stream);
    (void)cudaEventRecord(events.end, stream);
    e = cudaEventSynchronize(events.end);
    float ms = 0;
    if (e == cudaSuccess) e = cudaEventElapsedTime(&ms, events.begin, events.end);
    if (i > 0 && (best == 0 || ms < best)) best = ms;  // the first one warms up
  }
  if (ready != nullptr) (void)cudaGraphExecDestroy(ready);
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  if (e != cudaSuccess || !did) return cuda_error("measuring", e);
  return static_cast<double>(best) / 1e3 / per_graph;
}

void fill(char* data, size_t bytes, uint32_t seed, cudaStream_t stream) {
  fill_kernel<<<1024, 256, 0, stream>>>(reinterpret_cast<uint32_t*>(data), static_cast<int64_t>(bytes / 4), seed);
}

template <int kUnroll, bool kStreaming>
bool read_once(const Scratch& data, size_t bytes, int blocks, uint32_t* sink, cudaStream_t stream) {
  read_kernel<kUnroll, kStreaming>
      <<<blocks, 512, 0, stream>>>(reinterpret_cast<const uint4*>(data.data()), static_cast<int64_t>(bytes / 16), sink);
  return cudaGetLastError() == cudaSuccess;
}

Expected<Measured> read_rate(const MeasureRequest& r, const StreamState& s) {
  const size_t bytes = std::max<size_t>(r.bytes, 1 << 20) / 16384 * 16384;
  const Scratch data(bytes), sink(256);
  if (!data.ok()) return data.error();
  fill(data.data(), bytes, 1, s.stream);
  auto* const out = reinterpret_cast<uint32_t*>(sink.data());
  const int sms = s.multiprocessors;
  struct Variant {
    const char* name;
    std::function<bool(int)> run;
  };
  std::vector<Variant> variants = {
      {"loads, 8 in flight, 4 blocks", [&](int) { return read_once<8, false>(data, bytes, 4 * sms, out, s.stream); }},
      {"streaming loads, 4 in flight, 4 blocks",
       [&](int) { return read_once<4, true>(data, bytes, 4 * sms, out, s.stream); }},
      {"streaming loads, 8 in flight, a block per tile",
       [&](int) { return read_once<8, true>(data, bytes, static_cast<int>(bytes / (512 * 16 * 8)), out, s.stream); }},
  };
  if (s.arch >= 90) {
    variants.push_back({"bulk copies, 192 KiB in flight", [&](int) {
                          launch_bulk_read(data.data(), bytes, sms, out, s.stream);
                          return cudaGetLastError() == cudaSuccess;
                        }});
  }
  Measured best;
  for (const Variant& v : variants) {
    TERN_ASSIGN_OR_RETURN(const double seconds, best_seconds(s.stream, r.repeats, 1, v.run));
    const double rate = static_cast<double>(bytes) / seconds;
    if (rate > best.value) best = {rate, v.name};
  }
  return best;
}

Expected<Measured> copy_rate(const MeasureRequest& r, const StreamState& s) {
  const size_t bytes = std::max<size_t>(r.bytes / 2, 1 << 20) / 16384 * 16384;
  const Scratch from(bytes), to(bytes);
  if (!from.ok() || !to.ok()) return from.ok() ? to.error() : from.error();
  fill(from.data(), bytes, 1, s.stream);
  TERN_ASSIGN_OR_RETURN(const double own, best_seconds(s.stream, r.repeats, 1, [&](int) {
                          copy_kernel<<<8 * s.multiprocessors, 512, 0, s.stream>>>(
                              reinterpret_cast<const uint4*>(from.data()), reinterpret_cast<uint4*>(to.data()),
                              static_cast<int64_t>(bytes / 16));
                          return cudaGetLastError() == cudaSuccess;
                        }));
  TERN_ASSIGN_OR_RETURN(const double driver, best_seconds(s.stream, r.repeats, 1, [&](int) {
                          return cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, s.stream) ==
                                 cudaSuccess;
                        }));
  const double twice = 2 * static_cast<double>(bytes);
  return own < driver ? Measured{twice / own, "own copy"} : Measured{twice / driver, "driver's copy"};
}

// bfloat16 in and out. Weights take turns so that a product finds none of its own in the cache.
Expected<Measured> product_seconds(const MeasureRequest& r, const StreamState& s, device::Stream stream) {
  if (s.blas == nullptr) {
    return make_error(ErrorCode::kUnsupported, "cuBLASLt is not there or not in use", "device");
  }
  if (r.rows < 1 || r.n < 1 || r.k < 8 || r.k % 8 != 0 || r.n % 8 != 0) {
    return make_error(ErrorCode::kInvalidArgument, "products are measured with sizes that are multiples of 8");
  }
  const size_t weight = static_cast<size_t>(r.n * r.k) * 2;
  const int turns = static_cast<int>(std::clamp<size_t>((size_t{256} << 20) / weight + 1, 1, 64));
  const Scratch w(weight * static_cast<size_t>(turns)), x(static_cast<size_t>(r.rows * r.k) * 2),
      out(static_cast<size_t>(r.rows * r.n) * 2);
  for (const Scratch* one : {&w, &x, &out}) {
    if (!one->ok()) return one->error();
  }
  fill(w.data(), weight * static_cast<size_t>(turns), 1, s.stream);
  fill(x.data(), static_cast<size_t>(r.rows * r.k) * 2, 7, s.stream);
  Gemm g;
  g.x = x.data(), g.x_row = r.k, g.w_row = r.k;
  g.out = out.data(), g.out_row = r.n;
  g.rows = r.rows, g.n = r.n, g.k = r.k;
  const double flops = 2.0 * static_cast<double>(r.rows) * static_cast<double>(r.n) * static_cast<double>(r.k);
  const int launches = std::max(turns, static_cast<int>(std::min(64.0, 2e12 / flops)));
  TERN_ASSIGN_OR_RETURN(const double seconds, best_seconds(s.stream, r.repeats, launches, [&](int i) {
                          return s.blas->run(g, w.data() + weight * static_cast<size_t>(i % turns), stream);
                        }));
  return Measured{seconds, "cublaslt"};
}

Expected<Measured> launch_seconds(const MeasureRequest& r, const StreamState& s) {
  TERN_ASSIGN_OR_RETURN(const double seconds, best_seconds(s.stream, r.repeats, 256, [&](int) {
                          nothing_kernel<<<1, 32, 0, s.stream>>>();
                          return cudaGetLastError() == cudaSuccess;
                        }));
  return Measured{seconds, "empty kernels of one graph"};
}

// From the launch on the host until the host sees it done.
Expected<Measured> round_trip_seconds(const MeasureRequest& r, const StreamState& s) {
  double best = 0;
  for (int i = 0; i < 20 * r.repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    nothing_kernel<<<1, 32, 0, s.stream>>>();
    if (const cudaError_t e = cudaStreamSynchronize(s.stream); e != cudaSuccess) return cuda_error("measuring", e);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (i == 0 || seconds < best) best = seconds;
  }
  return Measured{best, "empty kernel and wait"};
}

}  // namespace

Expected<Measured> measure(const MeasureRequest& request, device::Stream stream) {
  const StreamState& s = state(stream);
  if (const cudaError_t e = cudaSetDevice(s.ordinal); e != cudaSuccess) return cuda_error("choosing the device", e);
  switch (request.kind) {
    case MeasureKind::kRead:
      return read_rate(request, s);
    case MeasureKind::kCopy:
      return copy_rate(request, s);
    case MeasureKind::kProduct:
      return product_seconds(request, s, stream);
    case MeasureKind::kLaunch:
      return launch_seconds(request, s);
    case MeasureKind::kRoundTrip:
      return round_trip_seconds(request, s);
  }
  return make_error(ErrorCode::kInvalidArgument, "there is no such thing to measure");
}

#else
// The emulation on a CPU has nothing to measure.
Expected<Measured> measure(const MeasureRequest&, device::Stream) {
  return make_error(ErrorCode::kUnsupported, "there is no GPU to measure");
}
#endif

}  // namespace tern::cuda
