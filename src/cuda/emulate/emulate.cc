// Fibers of one block; see emulate.h.
#include "cuda/emulate/emulate.h"

#include "cuda/emulate/mma_emulated.cuh"

#include <sys/mman.h>
#include <cstdio>
#include <cstdlib>
#include <vector>
namespace tern::cuda {
MmaSlot mma_slots[32][32];
}

namespace emu {
Id tid, bid, bdim, gdim;
namespace {

enum Wait : int { kRunning, kBlock, kWarp };

struct Fiber {
  void* sp;
  char* stack;
  bool done;
  int wait;      // what it waits for
  unsigned gen;  // generation of that barrier when it began to wait
};

// The block that runs now. One thread of the process runs all of it.
std::vector<Fiber> fibers;
int live, cur;  // threads that have not ended; the running one
unsigned bgen;  // generation of the block's barrier, and how many have arrived
int barrived;
unsigned wgen[32];  // the same for each warp
int warrived[32], wlive[32];
uint64_t slots[32][32];  // what lanes exchange
int orv, orr;            // of __syncthreads_or: growing, and of the barrier before
std::vector<char> smem;
const std::function<void()>* body;
void* main_sp;

// Saves the callee-saved registers and the stack pointer in *save, continues at `to`.
extern "C" void emu_switch(void** save, void* to);
asm(R"(.text
.globl emu_switch
.type emu_switch,@function
emu_switch:
 pushq %rbp
 pushq %rbx
 pushq %r12
 pushq %r13
 pushq %r14
 pushq %r15
 movq %rsp,(%rdi)
 movq %rsi,%rsp
 popq %r15
 popq %r14
 popq %r13
 popq %r12
 popq %rbx
 popq %rbp
 ret
)");
void yield() { emu_switch(&fibers[cur].sp, main_sp); }
void check_block() {
  if (live > 0 && barrived == live) {
    barrived = 0;
    ++bgen;
    orr = orv;
    orv = 0;
  }
}

void check_warp(int w) {
  if (wlive[w] > 0 && warrived[w] == wlive[w]) {
    warrived[w] = 0;
    ++wgen[w];
  }
}

void entry() {
  (*body)();
  Fiber& f = fibers[cur];
  f.done = true;
  --live;
  --wlive[cur / 32];
  check_warp(cur / 32);
  check_block();
  yield();
  std::abort();
}

constexpr size_t kStack = 64 << 10;  // bytes of a fiber
}  // namespace
void sync_block() {
  Fiber& f = fibers[cur];
  f.wait = kBlock;
  f.gen = bgen;
  ++barrived;
  check_block();
  if (bgen == f.gen) yield();
  f.wait = kRunning;
}

void sync_warp() {
  Fiber& f = fibers[cur];
  int w = cur / 32;
  f.wait = kWarp;
  f.gen = wgen[w];
  ++warrived[w];
  check_warp(w);
  if (wgen[w] == f.gen) yield();
  f.wait = kRunning;
}

uint64_t* warp_slots() { return slots[cur / 32]; }
uint64_t exchange(uint64_t v, int from) {
  uint64_t* s = slots[cur / 32];
  s[cur % 32] = v;
  sync_warp();
  uint64_t r = s[from];
  sync_warp();
  return r;
}

int block_or(int v) {
  orv |= v != 0;
  sync_block();
  int r = orr;
  sync_block();
  return r;
}

void* dynamic() { return (void*)(((uintptr_t)smem.data() + 127) / 128 * 128); }
namespace {

// Every thread of the block at the kernel's first line.
void start_block(int n) {
  live = n;
  barrived = 0;
  orv = 0;
  for (int w = 0; w < 32; ++w) warrived[w] = 0, wlive[w] = w * 32 < n ? (n - w * 32 < 32 ? n - w * 32 : 32) : 0;
  for (int i = 0; i < n; ++i) {
    Fiber& f = fibers[i];
    f.done = false;
    f.wait = kRunning;
    void** sp = (void**)(f.stack + kStack);
    *--sp = nullptr;
    *--sp = (void*)entry;
    for (int k = 0; k < 6; ++k) *--sp = nullptr;
    f.sp = sp;
  }
}

void run_block(int n) {
  start_block(n);
  while (live > 0) {
    bool ran = false;
    for (int i = 0; i < n; ++i) {
      Fiber& f = fibers[i];
      if (f.done || (f.wait == kBlock && f.gen == bgen) || (f.wait == kWarp && f.gen == wgen[i / 32])) continue;
      cur = i;
      tid = {(unsigned)i, 0, 0};
      ran = true;
      emu_switch(&main_sp, f.sp);
    }
    if (!ran && live > 0) {
      fprintf(stderr, "emulation: the threads of a block wait for each other\n");
      abort();
    }
  }
}

}  // namespace

void launch(dim3 g, dim3 b, size_t bytes, const std::function<void()>& f) {
  body = &f;
  gdim = {g.x, g.y, g.z};
  bdim = {b.x, b.y, b.z};
  const int n = b.x;
  if (n > 1024 || g.y > 65535 || g.z > 65535 || bytes > 227 * 1024) {
    fprintf(stderr, "emulation: a launch is larger than a GPU takes\n");
    abort();
  }
  smem.assign(bytes + 256, (char)0xff);
  while ((int)fibers.size() < n) {
    Fiber x{};
    x.stack = (char*)mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fibers.push_back(x);
  }
  for (unsigned z = 0; z < g.z; ++z) {
    for (unsigned y = 0; y < g.y; ++y) {
      for (unsigned x = 0; x < g.x; ++x) {
        bid = {x, y, z};
        run_block(n);
      }
    }
  }
}

}  // namespace emu

unsigned __ballot_sync(unsigned, int p) {
  unsigned r = 0;
  uint64_t* s = emu::warp_slots();
  s[threadIdx.x % 32] = p != 0;
  emu::sync_warp();
  for (int i = 0; i < 32; ++i) r |= unsigned(s[i]) << i;
  emu::sync_warp();
  return r;
}

unsigned __match_any_sync(unsigned, int v) {
  unsigned r = 0;
  uint64_t* s = emu::warp_slots();
  s[threadIdx.x % 32] = uint64_t(int64_t(v));
  emu::sync_warp();
  for (int i = 0; i < 32; ++i) r |= unsigned(s[i] == uint64_t(int64_t(v))) << i;
  emu::sync_warp();
  return r;
}

unsigned __reduce_max_sync(unsigned, unsigned v) {
  uint64_t* s = emu::warp_slots();
  s[threadIdx.x % 32] = v;
  emu::sync_warp();
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r = s[i] > r ? s[i] : r;
  emu::sync_warp();
  return r;
}

int __reduce_add_sync(unsigned, int v) {
  uint64_t* s = emu::warp_slots();
  s[threadIdx.x % 32] = (uint64_t)(int64_t)v;
  emu::sync_warp();
  int r = 0;
  for (int i = 0; i < 32; ++i) r += (int)s[i];
  emu::sync_warp();
  return r;
}
