// A CUDA runtime, driver and cuBLASLt that launch nothing: they note what would have been launched. libtern_cuda.so
// linked against this runs without a GPU, as on an H100. TERN_RECORD names the file of notes: one block of lines per
// captured graph.
#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

constexpr int kMultiprocessors = 132;
constexpr size_t kMemory = size_t{80} << 30;

struct Recorder {
  std::mutex mutex;
  std::map<const void*, std::string> names;  // of kernels, by the function that stands for them on the host
  std::map<void*, size_t> memory;
  size_t used = 0;
  std::atomic<intptr_t> handles = 0, streams = 0;
  FILE* file = nullptr;
};

// Of several ranks, which capture at once on threads of their own, the first one's launches are noted.
thread_local bool capturing = false;
thread_local int device = 0;

// Kernels are registered while libraries are loaded, in any order.
Recorder& recorder() {
  static auto* const r = new Recorder;
  return *r;
}

template <class T>
T handle() {
  return reinterpret_cast<T>(++recorder().handles);
}

void note(const std::string& line) {
  Recorder& r = recorder();
  if (!capturing || device != 0) return;
  if (r.file == nullptr) {
    const char* path = std::getenv("TERN_RECORD");
    r.file = path != nullptr ? std::fopen(path, "w") : stderr;
  }
  std::fprintf(r.file, "%s\n", line.c_str());
}

std::string demangled(const char* mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = status == 0 ? text : mangled;
  std::free(text);
  for (const std::string& drop : {std::string("tern::cuda::"), std::string("(anonymous namespace)::")}) {
    for (size_t at = name.find(drop); at != std::string::npos; at = name.find(drop, at)) name.erase(at, drop.size());
  }
  if (name.starts_with("void ")) name.erase(0, 5);
  // The parameters say nothing: up to the parenthesis that the last one closes.
  int depth = 0;
  for (size_t at = name.size(); at-- > 0;) {
    depth += (name[at] == ')') - (name[at] == '(');
    if (depth == 0) {
      if (name[at] == '(') name.erase(at);
      break;
    }
  }
  return name;
}

std::string dims(dim3 d) {
  std::string text = std::to_string(d.x);
  if (d.y > 1 || d.z > 1) text += "x" + std::to_string(d.y);
  if (d.z > 1) text += "x" + std::to_string(d.z);
  return text;
}

// Clusters of `size` blocks, one block per multiprocessor: six groups of 16 and two of 18 multiprocessors.
int clusters(int size) { return size < 1 ? 0 : 6 * (16 / size) + 2 * (18 / size); }

// What cuBLASLt is given.
struct Layout {
  cudaDataType type;
  uint64_t rows, columns;
};

}  // namespace

extern "C" {
// Registration, by code that nvcc makes.
void** __cudaRegisterFatBinary(void*) { return handle<void**>(); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  recorder().names[host] = demangled(name);
}
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*) { return 1; }  // 1: the launch is not made
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaErrorNotSupported; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* kernel, void**) {
  Recorder& r = recorder();
  const auto it = r.names.find(kernel);
  std::string line = it == r.names.end() ? "unknown kernel" : it->second;
  line += "  grid " + dims(c->gridDim) + "  block " + dims(c->blockDim);
  if (c->dynamicSmemBytes > 0) line += "  shared " + std::to_string(c->dynamicSmemBytes);
  for (unsigned i = 0; i < c->numAttrs; ++i) {
    const cudaLaunchAttribute& a = c->attrs[i];
    if (a.id == cudaLaunchAttributeClusterDimension) line += "  cluster " + std::to_string(a.val.clusterDim.x);
    if (a.id == cudaLaunchAttributeProgrammaticStreamSerialization) line += "  dependent";
  }
  note(line + "  stream " + std::to_string(reinterpret_cast<intptr_t>(c->stream)));
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int* n, const void*, const cudaLaunchConfig_t* c) {
  const int size = static_cast<int>(c->attrs[0].val.clusterDim.x);
  *n = clusters(size) * static_cast<int>((c->gridDim.x + kMultiprocessors - 1) / kMultiprocessors);
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void*) {
  std::memset(a, 0, sizeof *a);
  a->ptxVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "recorded"; }

// Memory of the GPU is addresses alone.
cudaError_t cudaMalloc(void** p, size_t n) {
  Recorder& r = recorder();
  const std::scoped_lock lock(r.mutex);
  *p = r.used + n > kMemory ? MAP_FAILED
                            : mmap(nullptr, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (*p == MAP_FAILED) return cudaErrorMemoryAllocation;
  r.memory[*p] = n, r.used += n;
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  Recorder& r = recorder();
  const std::scoped_lock lock(r.mutex);
  const auto it = r.memory.find(p);
  if (it == r.memory.end()) return cudaSuccess;
  munmap(p, it->second);
  r.used -= it->second;
  r.memory.erase(it);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) {
  *p = std::aligned_alloc(4096, (n + 4095) / 4096 * 4096);
  return *p != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaMallocHost(void** p, size_t n) { return cudaHostAlloc(p, n, 0); }
cudaError_t cudaFreeHost(void* p) {
  std::free(p);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemset(void*, int, size_t) { return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = kMemory, *free = kMemory - recorder().used;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void*) {
  a->type = cudaMemoryTypeDevice, a->device = 0;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* v) { return *v = 13000, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* v) { return *v = 2, cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 1, cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaSetDevice(int v) { return device = v, cudaSuccess; }
cudaError_t cudaGetDevice(int* v) { return *v = device, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr, int) { return *v = 0, cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -1, cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  std::memset(p, 0, sizeof *p);
  std::strcpy(p->name, "recorded H100");
  p->major = 9, p->multiProcessorCount = kMultiprocessors;
  p->sharedMemPerBlockOptin = 227 * 1024, p->totalGlobalMem = kMemory;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  return *s = reinterpret_cast<cudaStream_t>(++recorder().streams), cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int) {
  return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t, unsigned) {
  note("wait  stream " + std::to_string(reinterpret_cast<intptr_t>(s)));
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* e) { return *e = handle<cudaEvent_t>(), cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return *ms = 1, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* s) {
  *s = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  capturing = true;
  note("graph");
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* g) {
  capturing = false;
  if (device == 0 && recorder().file != nullptr) std::fflush(recorder().file);
  return *g = handle<cudaGraph_t>(), cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* g, cudaGraph_t, unsigned long long) {
  return *g = handle<cudaGraphExec_t>(), cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* host) { return __cudaGetKernel(kernel, host); }

// The driver: addresses, and no kernels to load.
CUresult cuMemAddressReserve(CUdeviceptr* p, size_t n, size_t, CUdeviceptr, unsigned long long) {
  void* at = mmap(nullptr, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *p = reinterpret_cast<CUdeviceptr>(at);
  return at != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemAddressFree(CUdeviceptr p, size_t n) {
  munmap(reinterpret_cast<void*>(p), n);
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* h, size_t, const CUmemAllocationProp*, unsigned long long) {
  return *h = 1, CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle) { return CUDA_SUCCESS; }
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }
CUresult cuMemGetAllocationGranularity(size_t* n, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  return *n = size_t{2} << 20, CUDA_SUCCESS;
}
CUresult cuKernelGetLibrary(CUlibrary* l, CUkernel) { return *l = reinterpret_cast<CUlibrary>(1), CUDA_SUCCESS; }
CUresult cuLibraryGetKernelCount(unsigned* n, CUlibrary) { return *n = 0, CUDA_SUCCESS; }
CUresult cuLibraryEnumerateKernels(CUkernel*, unsigned, CUlibrary) { return CUDA_SUCCESS; }
CUresult cuKernelGetFunction(CUfunction*, CUkernel) { return CUDA_SUCCESS; }
CUresult cuFuncLoad(CUfunction) { return CUDA_SUCCESS; }
CUresult cuTensorMapEncodeTiled(CUtensorMap* m, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  std::memset(m, 0, sizeof *m);
  return CUDA_SUCCESS;
}

// cuBLASLt: one algorithm for everything.
cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) { return *h = handle<cublasLtHandle_t>(), CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
size_t cublasLtGetVersion() { return 1; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t, cudaDataType_t) {
  return *d = handle<cublasLtMatmulDesc_t>(), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void*,
                                              size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType type, uint64_t rows, uint64_t columns,
                                          int64_t) {
  *l = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete reinterpret_cast<Layout*>(l);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t which,
                                                const void* value, size_t) {
  if (which == CUBLASLT_MATRIX_LAYOUT_COLS) std::memcpy(&reinterpret_cast<Layout*>(l)->columns, value, 8);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  return *p = handle<cublasLtMatmulPreference_t>(), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t* found,
                                              int* count) {
  std::memset(found, 0, sizeof *found);
  return *count = 1, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t*, cublasLtMatmulAlgoConfigAttributes_t,
                                                    void* value, size_t bytes, size_t*) {
  std::memset(value, 0, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*,
                              cublasLtMatrixLayout_t w, const void*, cublasLtMatrixLayout_t, const void* kept,
                              const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t out,
                              const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t s) {
  const auto& weight = *reinterpret_cast<const Layout*>(w);
  const auto& result = *reinterpret_cast<const Layout*>(out);
  note("cublaslt  rows " + std::to_string(result.columns) + "  n " + std::to_string(result.rows) + "  k " +
       std::to_string(weight.rows) + (result.type == CUDA_R_16BF ? "  bf16" : "  f32") +
       (*static_cast<const float*>(kept) != 0 ? "  added" : "") + "  stream " +
       std::to_string(reinterpret_cast<intptr_t>(s)));
  return CUBLAS_STATUS_SUCCESS;
}
}
