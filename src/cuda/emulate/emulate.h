// Kernels on a CPU, for machines without a GPU: transform.py turns launches into calls, and this header stands in for
// what nvcc knows. One block or cluster at a time, a fiber per thread; barriers and warp exchanges are exact,
// tensor-core steps follow the fragment layouts of the PTX manual (mma_emulated.cuh). It finds wrong indices, missing
// barriers that deadlock, misaligned copies and wrong arithmetic. Warps run in a drawn order, some far ahead of others,
// so a missing barrier shows where the order happens to tell and only as a wrong result; TERN_EMULATE_SEED draws
// another order. Blocks of a cluster have their own dynamic shared memory, but one copy of what a kernel declares by
// size. It says nothing about the real hardware.
#pragma once
#define TERN_EMULATED 1
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#undef __shared__
#define __shared__ static
#undef __global__
#define __global__
#undef __device__
#define __device__
#undef __host__
#define __host__
#undef __forceinline__
#define __forceinline__ inline
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
namespace emu {
struct Id {
  unsigned x, y, z;
};
extern Id tid, bid, bdim, gdim;
void launch(dim3 g, dim3 b, size_t smem, const std::function<void()>& f, int cluster = 1);
void* dynamic();
void arrive_cluster();
void wait_cluster();
void* of_block(const void* own, int rank);  // the same place in the shared memory of a block of the cluster
void pause();                               // lets other threads of the block run
void sync_block();
void sync_warp();
uint64_t exchange(uint64_t v, int from);  // value of lane `from`, all lanes of the warp together
uint64_t* warp_slots();
int warp_of_cluster();
int block_or(int v);
}  // namespace emu
#define threadIdx emu::tid
#define blockIdx emu::bid
#define blockDim emu::bdim
#define gridDim emu::gdim
inline void __syncthreads() { emu::sync_block(); }
inline void __threadfence() {}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
inline void __syncwarp() { emu::sync_warp(); }
inline int __syncthreads_or(int v) { return emu::block_or(v); }
template <class T>
T emu_x(T v, int from) {
  uint64_t u = 0;
  std::memcpy(&u, &v, sizeof v);
  u = emu::exchange(u, from);
  T r;
  std::memcpy(&r, &u, sizeof r);
  return r;
}
template <class T>
T __shfl_xor_sync(unsigned, T v, int d) {
  return emu_x(v, (threadIdx.x & 31) ^ d);
}
template <class T>
T __shfl_sync(unsigned, T v, int l) {
  return emu_x(v, l & 31);
}
template <class T>
T __shfl_up_sync(unsigned, T v, int d) {
  int l = int(threadIdx.x & 31) - d;
  return emu_x(v, l < 0 ? int(threadIdx.x & 31) : l);
}
unsigned __ballot_sync(unsigned, int p);
unsigned __reduce_max_sync(unsigned, unsigned v);
unsigned __match_any_sync(unsigned, int v);
int __reduce_add_sync(unsigned, int v);
template <class T, class U>
T atomicAdd(T* p, U v) {
  T o = *p;
  *p = o + static_cast<T>(v);
  return o;
}
template <class T, class U>
T atomicOr(T* p, U v) {
  T o = *p;
  *p = o | v;
  return o;
}
template <class T, class U>
T atomicMax(T* p, U v) {
  T o = *p;
  if (v > o) *p = v;
  return o;
}
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return __builtin_expf(x); }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ull2double_rn(unsigned long long a) { return double(a); }
template <class To, class From>
To emu_bits(From from) {
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline unsigned __float_as_uint(float f) { return emu_bits<unsigned>(f); }
inline float __uint_as_float(unsigned u) { return emu_bits<float>(u); }
inline int __float_as_int(float f) { return emu_bits<int>(f); }
inline float __int_as_float(int u) { return emu_bits<float>(u); }
inline long long __double_as_longlong(double d) { return emu_bits<long long>(d); }
inline double __longlong_as_double(long long u) { return emu_bits<double>(u); }
inline unsigned __float2uint_rn(float f) { return unsigned(__builtin_nearbyintf(f)); }
inline int __clz(int v) { return v == 0 ? 32 : __builtin_clz(unsigned(v)); }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
using std::isfinite;
inline int min(int a, int b) { return a < b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
