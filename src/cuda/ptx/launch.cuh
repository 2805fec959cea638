// How kernels are launched, and how one hands over to the next. With programmatic dependent launch (StreamState::pdl) a
// kernel may be placed on the GPU while the one before it still runs. Rules that make this safe:
// - Every kernel started by launch() calls wait_for_previous() in all its threads before it reads or writes anything
//   that another kernel of the step reads or writes. Weights are never written during a step and may be read before.
// - As every kernel waits for the whole of the one before it, everything earlier is done too.
// - A block without work may end without the wait where another one of its kernel waits. let_next_start() may come at
//   any point, also first: the next kernel waits for the end of this one. Without the attribute both do nothing.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "cuda/runtime/context.h"
#include "cuda/runtime/deferred.h"
#include "cuda/runtime/modules.h"

namespace tern::cuda {
namespace {

// Every file with kernels is a module, to be loaded at start.
__global__ void module_anchor() {}
const ModuleNote module_note(reinterpret_cast<const void*>(module_anchor));

}  // namespace

__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Brings parameters of a kernel into the multiprocessor's cache of constants, which knows none of them when the kernel
// starts: what is first asked for behind wait_for_previous() would be waited for there. Called before that, behind what
// is to be under way early; one warp of a block is enough.
template <class... P>
__device__ __forceinline__ void bring_parameters(const P&... parameters) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr unsigned kLine = 64;  // bytes
  uint32_t all = 0;
  const auto read = [&](const auto& p) {
    const auto* words = reinterpret_cast<const uint32_t*>(&p);
    constexpr unsigned kWords = sizeof(p) / sizeof(uint32_t);
#pragma unroll
    for (unsigned i = 0; i < kWords; i += kLine / sizeof(uint32_t)) all ^= words[i];
    all ^= words[kWords - 1];
  };
  (read(parameters), ...);
  // Something has to become of what was read.
  asm volatile("{.reg .pred p;\nsetp.eq.u32 p, %0, 0x9e3779b9;\n@p nanosleep.u32 1;\n}" ::"r"(all));
#endif
}

// Has a value in its register here, where the compiler would work it out behind the wait (the assembler may still move
// some of that there); of pointers to global memory it stays known that they are such.
template <class T>
__device__ __forceinline__ void settle(T*& p) {
  size_t at = __cvta_generic_to_global(p);
  asm volatile("" : "+l"(at));
  p = static_cast<T*>(__cvta_global_to_generic(at));
}
__device__ __forceinline__ void settle(int& v) { asm volatile("" : "+r"(v)); }

struct Shape {
  dim3 grid, block;
  size_t shared = 0;     // bytes of dynamic shared memory
  unsigned cluster = 1;  // neighbouring blocks that run together (compute capability 9.0)
};

// Lets blocks of this kernel use so many bytes of dynamic shared memory. launch() does it; who asks how many blocks of
// a kernel run at once does it first.
template <class... P>
Status allow_shared(const char* name, void (*kernel)(P...), size_t bytes) {
  return allow_shared(name, reinterpret_cast<const void*>(kernel), bytes);
}

// What every kernel may have unasked beside its static shared memory; 48 KiB together.
inline constexpr size_t kSharedAnyway = 32 * 1024;

// Starts kernel(args...) on the stream; `name` is what last_kernel will say.
template <class... P, class... A>
Status launch(device::Stream stream, const char* name, const Shape& shape, void (*kernel)(P...), A&&... args) {
  TERN_RETURN_IF_ERROR(launch_deferred(stream));
  if (shape.shared > kSharedAnyway) TERN_RETURN_IF_ERROR(allow_shared(name, kernel, shape.shared));
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid, config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared, config.stream = raw(stream);
  config.attrs = attributes;
  if (state(stream).pdl && !state(stream).joins) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {shape.cluster, 1, 1};
  }
  state(stream).joins = false;
  (void)cudaLaunchKernelEx(&config, kernel, P(std::forward<A>(args))...);
  return launched(stream, name);
}

}  // namespace tern::cuda
