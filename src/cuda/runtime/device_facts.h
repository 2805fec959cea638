// What the choice of a kernel may know of a device and its mode: plain values, so that choices are tested without a
// GPU.
#pragma once

#include <cstddef>

#include "device/device.h"

namespace tern::cuda {

struct DeviceFacts {
  int multiprocessors = 1;
  int arch = 80;               // compute capability as 80, 86, 90
  int smem_limit = 48 * 1024;  // bytes of shared memory that one block may use
  bool deterministic = false;  // one chain of operations per value, whatever else is in the batch
  bool library = false;        // cuBLASLt is there, for products of this stream
  bool parts = false;          // this stream has memory for the parts of products whose k is cut
  size_t wide_bytes = 0;       // memory of this stream for weights that are widened first (runtime/wide_room.h)
  bool waits = false;          // blocks of a kernel may wait for each other on this stream
  bool sm90_files = true;      // the build has the kernels of *_sm90.cu: not where they are emulated

  // Hopper's own kernels may run, unless the options hold the device to what smaller GPUs have.
  bool hopper() const { return arch >= 90 && arch < 100 && smem_limit >= 200 * 1024; }
};

DeviceFacts device_facts(device::Stream stream);

}  // namespace tern::cuda
