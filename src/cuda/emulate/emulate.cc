// Fibers of one block, or of the blocks of one cluster; see emulate.h.
#include "cuda/emulate/emulate.h"

#include "cuda/emulate/mma_emulated.cuh"

#include <sys/mman.h>
#include <cstdio>
#include <cstdlib>
#include <vector>
namespace tern::cuda {
MmaSlot mma_slots[256][32];
}

namespace emu {
Id tid, bid, bdim, gdim;
namespace {

enum Wait : int { kRunning, kBlock, kWarp, kCluster };
constexpr int kMostBlocks = 8, kMostWarps = 32 * kMostBlocks;  // of a cluster

struct Fiber {
  void* sp;
  char* stack;
  bool done;
  int wait;          // what it waits for
  unsigned gen;      // generation of that barrier when it began to wait
  unsigned arrived;  // generation of the cluster's barrier when it arrived there
};

// The cluster that runs now, most often one block. One thread of the process runs all of it.
std::vector<Fiber> fibers;
int size, cur;                                 // threads of a block; the running one of the cluster
int live[kMostBlocks], barrived[kMostBlocks];  // threads of each block that have not ended, that are at its barrier
unsigned bgen[kMostBlocks];                    // generation of the block's barrier
unsigned wgen[kMostWarps];                     // the same for each warp
int warrived[kMostWarps], wlive[kMostWarps];
unsigned cgen;  // and for the cluster
int carrived, clive;
uint64_t slots[kMostWarps][32];          // what lanes exchange
int orv[kMostBlocks], orr[kMostBlocks];  // of __syncthreads_or: growing, and of the barrier before
size_t stride;                           // bytes from one block's shared memory to the next one's
std::vector<char> smem;
const std::function<void()>* body;
bool paused;
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
int block() { return cur / size; }
void check_block(int b) {
  if (live[b] > 0 && barrived[b] == live[b]) {
    barrived[b] = 0;
    ++bgen[b];
    orr[b] = orv[b];
    orv[b] = 0;
  }
}
void check_cluster() {
  if (clive > 0 && carrived == clive) carrived = 0, ++cgen;
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
  --live[block()];
  --wlive[cur / 32];
  --clive;
  check_warp(cur / 32);
  check_block(block());
  check_cluster();
  yield();
  std::abort();
}

constexpr size_t kStack = 64 << 10;  // bytes of a fiber
}  // namespace
void pause() {
  paused = true;
  yield();
}
void sync_block() {
  Fiber& f = fibers[cur];
  f.wait = kBlock;
  f.gen = bgen[block()];
  ++barrived[block()];
  check_block(block());
  if (bgen[block()] == f.gen) yield();
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
int warp_of_cluster() { return cur / 32; }
uint64_t exchange(uint64_t v, int from) {
  uint64_t* s = slots[cur / 32];
  s[cur % 32] = v;
  sync_warp();
  uint64_t r = s[from];
  sync_warp();
  return r;
}

int block_or(int v) {
  orv[block()] |= v != 0;
  sync_block();
  int r = orr[block()];
  sync_block();
  return r;
}

void arrive_cluster() {
  fibers[cur].arrived = cgen;
  ++carrived;
  check_cluster();
}
void wait_cluster() {
  Fiber& f = fibers[cur];
  f.wait = kCluster;
  if (cgen == f.arrived) yield();
  f.wait = kRunning;
}

void* dynamic() { return (void*)(((uintptr_t)smem.data() + 127) / 128 * 128 + block() * stride); }
void* of_block(const void* own, int rank) { return (char*)own + (rank - block()) * (ptrdiff_t)stride; }
namespace {

// Every thread of `blocks` blocks of n at the kernel's first line.
void start(int n, int blocks) {
  clive = n * blocks;
  carrived = 0;
  for (int b = 0; b < blocks; ++b) live[b] = n, barrived[b] = 0, orv[b] = 0;
  for (int w = 0; w < 32 * blocks; ++w) {
    warrived[w] = 0, wlive[w] = w * 32 < n * blocks ? (n * blocks - w * 32 < 32 ? n * blocks - w * 32 : 32) : 0;
  }
  for (int i = 0; i < n * blocks; ++i) {
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

bool waits(const Fiber& f, int i) {
  return (f.wait == kBlock && f.gen == bgen[i / size]) || (f.wait == kWarp && f.gen == wgen[i / 32]) ||
         (f.wait == kCluster && f.arrived == cgen);
}

bool can_run(int i) { return !fibers[i].done && !waits(fibers[i], i); }

// Which warp runs next, and for how long, is drawn: warps get ahead of each other as far as barriers let them, so that
// one writes what another has yet to read. TERN_EMULATE_SEED in the environment chooses another order.
uint64_t draws = [] {
  const char* seed = getenv("TERN_EMULATE_SEED");
  return (seed ? strtoull(seed, nullptr, 10) : 1) * 0x9e3779b97f4a7c15u | 1;
}();
unsigned drawn(unsigned bound) {
  draws ^= draws << 13, draws ^= draws >> 7, draws ^= draws << 17;
  return unsigned(draws >> 33) % bound;
}

// Lets the lanes of warp w that can run do so, each to its next barrier or exchange; `all` threads there are.
bool run_warp(int w, int n, int all, unsigned first) {
  bool ran = false;
  const unsigned turn = drawn(32);
  for (unsigned k = 0; k < 32; ++k) {
    const int i = 32 * w + int(k ^ turn);
    if (i >= all || !can_run(i)) continue;
    cur = i;
    tid = {unsigned(i % n), 0, 0};
    bid.x = first + i / n;
    ran = true;
    emu_switch(&main_sp, fibers[i].sp);
  }
  return ran;
}

void run(int n, int blocks) {
  const unsigned first = bid.x;
  const int all = n * blocks, warps = (all + 31) / 32;
  size = n;
  start(n, blocks);
  while (clive > 0) {
    bool ran = false;
    const int from = int(drawn(warps));
    for (int k = 0; k < warps && !ran; ++k) {
      const int w = (from + k) % warps;
      const unsigned turns = drawn(2) == 0 ? ~0u : 1 + drawn(8);
      paused = false;  // a thread that waits for another kernel: what it waits for may want other warps first
      for (unsigned t = 0; t < turns && !paused && run_warp(w, n, all, first); ++t) ran = true;
    }
    if (!ran && clive > 0) {
      fprintf(stderr, "emulation: the threads of a block wait for each other\n");
      abort();
    }
  }
}

}  // namespace

void launch(dim3 g, dim3 b, size_t bytes, const std::function<void()>& f, int cluster) {
  body = &f;
  gdim = {g.x, g.y, g.z};
  bdim = {b.x, b.y, b.z};
  const int n = b.x;
  if (n > 1024 || cluster > kMostBlocks || g.x % cluster != 0 || (cluster > 1 && n % 32 != 0) || g.y > 65535 ||
      g.z > 65535 || bytes > 227 * 1024) {
    fprintf(stderr, "emulation: a launch is larger than a GPU takes\n");
    abort();
  }
  stride = (bytes + 127) / 128 * 128;
  smem.assign(stride * cluster + 256, (char)0xff);
  while ((int)fibers.size() < n * cluster) {
    Fiber x{};
    x.stack = (char*)mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fibers.push_back(x);
  }
  for (unsigned z = 0; z < g.z; ++z) {
    for (unsigned y = 0; y < g.y; ++y) {
      for (unsigned x = 0; x < g.x; x += cluster) {
        bid = {x, y, z};
        run(n, cluster);
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
