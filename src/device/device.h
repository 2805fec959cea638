// What a back-end offers to the rooms above ops: memory, streams, copies. The CPU's is in device_cpu.cc; a CUDA device
// comes from a shared object loaded at run time and implements the same interface.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/stream.h"

namespace tern::device {

struct DeviceInfo {
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;             // as printed: "AMD EPYC ..., avx512bf16, 2 threads"
  size_t memory_total = 0;      // bytes
  size_t memory_available = 0;  // bytes free now (MemAvailable on a CPU, bounded by cgroup limits)
};

// Memory of one device. Movable owner; freed by the destructor.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, size_t bytes, void (*release)(void*, size_t)) : data_(data), bytes_(bytes), release_(release) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~Buffer() {
    if (release_ != nullptr) release_(data_, bytes_);
  }
  char* data() const { return static_cast<char*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    std::swap(release_, o.release_);
  }
  void* data_ = nullptr;
  size_t bytes_ = 0;
  void (*release_)(void*, size_t) = nullptr;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // The stream that steps run on.
  virtual Stream stream() = 0;
  // Zero-filled, 64-byte aligned at least; on a CPU pages are touched only when used, 2 MiB pages are asked for.
  virtual Expected<Buffer> allocate(size_t bytes) = 0;
  // Host memory the device can copy from and to without staging.
  virtual Expected<Buffer> allocate_host(size_t bytes) = 0;
  virtual void copy_to_device(void* dst, const void* src, size_t bytes, Stream stream) = 0;
  virtual void copy_to_host(void* dst, const void* src, size_t bytes, Stream stream) = 0;
  // Waits until everything queued on the stream is done.
  virtual Status synchronize(Stream stream) = 0;
  // Bytes available now for caches (see DeviceInfo::memory_available).
  virtual size_t memory_available() const = 0;

  // What only GPUs have; the defaults (device.cc) serve a CPU.
  // By each thread that will give this device work, once at its start.
  virtual Status bind_thread() { return {}; }
  // By the one thread that gives this device its steps, once at its start, beside bind_thread(): it may lose its
  // freedom to run on other cores, and so may threads that it starts later.
  virtual void settle_thread() {}
  // Lines about the machine that a person who wonders about speed should read at the start.
  virtual std::vector<std::string> notes() const { return {}; }
  virtual Stream side_stream(StreamRole) { return stream(); }
  // Streams on which parts of a step may run side by side; 1: none but stream().
  virtual int microbatch_streams() const { return 1; }
  virtual Stream microbatch_stream(int) { return stream(); }
  virtual Expected<std::unique_ptr<Event>> make_event();
  virtual bool has_graphs() const { return false; }
  // From begin to end, work given to the stream by this thread is recorded and not run.
  virtual Status begin_capture(Stream stream);
  virtual Expected<std::unique_ptr<Graph>> end_capture(Stream stream);
  virtual Expected<std::unique_ptr<AddressRange>> reserve(size_t bytes);
  // True: memory apart from the host's, and work that runs beside the thread that gives it. False: one memory, and work
  // is done when it has been given.
  virtual bool own_memory() const { return false; }
  // All of it in one submission, between memory of this device and memory of allocate_host(), either way; the pieces do
  // not overlap. The list may go after the call, what it points to not before the stream has passed. Can be captured;
  // addresses and sizes are then fixed.
  virtual Status copy_many(std::span<const CopySpan> pieces, Stream stream);
  // As copy_many, of the set of pieces whose turn it is once the copy runs. Piece i of both has the same size; a few
  // pieces at most. To be captured: a graph then serves two sets of host memory.
  virtual Status copy_in_turn(const std::array<std::span<const CopySpan>, 2>& sets, const HostTurn& turn,
                              Stream stream);
  // The first fault that is known by now; asks nothing of the device and never waits.
  virtual Status status() const { return {}; }
  // Allocations so far, host memory and mapped ranges included. None happens after the start of an engine.
  virtual uint64_t allocations() const { return 0; }
  // Brings all code of this device into its memory, so that none comes during a step.
  virtual Status load_kernels() { return {}; }
  // Makes the stream fail or never end at this point: tests of what happens then.
  virtual Status inject(Fault fault, Stream stream);
  // An event that remembers when its point was reached; recording it costs the device more than others do.
  virtual Expected<std::unique_ptr<Event>> make_timed_event();
  // Names what this thread does between the two for a profiler that looks on; costs nothing without one. They nest.
  virtual void range_push(const char*) {}
  virtual void range_pop() {}
};

struct CpuOptions {
  int threads = 0;  // --cpu-threads; 0: physical cores this process may use
  bool pin = true;
  // Of several ranks: which part of the cores, and of `threads`, is this one's.
  int part = 0, parts = 1;
};
Expected<std::unique_ptr<Device>> make_cpu_device(const CpuOptions& options);

}  // namespace tern::device
