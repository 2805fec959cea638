// What a back-end offers to the rooms above ops: memory, streams, copies. The CPU's is in device_cpu.cc; a CUDA device
// comes from a shared object loaded at run time and implements the same interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"

namespace tern::device {

class ComputePool;

enum class DeviceKind : uint8_t { kCpu, kCuda };

// An in-order queue of work. On the CPU work runs in the calling thread at once (a rank's own thread gives the order);
// `pool` then carries parallel loops. On a GPU `native` is the driver's handle.
struct Stream {
  DeviceKind kind = DeviceKind::kCpu;
  ComputePool* pool = nullptr;
  void* native = nullptr;
};

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

// What a stream of its own is for: work that runs beside the steps.
enum class StreamRole : uint8_t { kCopyIn, kCopyOut, kCommunication, kVision };

// A point in the work of a stream. On a CPU everything before it is done when record() returns.
class Event {
 public:
  virtual ~Event() = default;
  virtual Status record(Stream stream) = 0;
  // Later work of `stream` waits for the recorded point; the calling thread does not.
  virtual Status wait_on(Stream stream) = 0;
  virtual Status synchronize() = 0;
  virtual bool done() = 0;  // true before the first record()
};

// Work that was captured once and is submitted as a whole.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual Status launch(Stream stream) = 0;
};

// Addresses that are taken at once and get memory later, from the start on: what is captured before the memory is there
// keeps its addresses.
class AddressRange {
 public:
  virtual ~AddressRange() = default;
  virtual char* base() const = 0;
  virtual size_t reserved() const = 0;  // bytes of addresses
  virtual size_t mapped() const = 0;    // bytes with memory behind them
  // Memory for at least the first `bytes`, zero-filled. What is mapped stays as it is.
  virtual Status grow(size_t bytes) = 0;
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
  virtual Stream side_stream(StreamRole) { return stream(); }
  virtual Expected<std::unique_ptr<Event>> make_event();
  virtual bool has_graphs() const { return false; }
  // From begin to end, work given to the stream by this thread is recorded and not run.
  virtual Status begin_capture(Stream stream);
  virtual Expected<std::unique_ptr<Graph>> end_capture(Stream stream);
  virtual Expected<std::unique_ptr<AddressRange>> reserve(size_t bytes);
};

struct CpuOptions {
  int threads = 0;  // --cpu-threads; 0: physical cores this process may use
  bool pin = true;
};
Expected<std::unique_ptr<Device>> make_cpu_device(const CpuOptions& options);

}  // namespace tern::device
