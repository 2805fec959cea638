// Streams of work, and what can be said about them: events, graphs, lists of copies, addresses that get memory later.
#pragma once

#include <cstddef>
#include <cstdint>

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
  // Of two timed events (Device::make_timed_event) of one device that are done: nanoseconds from `earlier` to this one.
  virtual Expected<int64_t> nanoseconds_since(const Event& earlier) const;
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
  // Gives memory back behind the first `bytes`, as far as whole pages go; the addresses stay taken. Nothing may be at
  // work there.
  virtual Status shrink(size_t bytes) = 0;
};

// One piece of Device::copy_many(): `rows` runs of `bytes` bytes, their starts `*_stride` bytes apart. Addresses, sizes
// and strides are multiples of 4.
struct CopySpan {
  void* dst = nullptr;
  const void* src = nullptr;
  size_t bytes = 0;
  size_t rows = 1;
  size_t dst_stride = 0, src_stride = 0;
};

// Whose turn it is of two sets of host memory that a captured copy knows (Device::copy_in_turn).
struct HostTurn {
  int32_t* turn = nullptr;  // in the device's memory: 0 or 1, the set
  bool passes = false;      // after the copy it is the other one's turn
};

// What Device::inject() does to a stream.
enum class Fault : uint8_t {
  kNone,
  kTrap,  // an access to an illegal address
  kHang,  // work that never ends
};

}  // namespace tern::device
