// How many clusters of a kernel run at once.
#pragma once

#include <algorithm>
#include <atomic>

#include "cuda/ptx/launch.cuh"

namespace tern::cuda {

// Asked once per GPU: the answer is kept by the caller, in a static object of each kernel. Clusters are of neighbouring
// multiprocessors: of large ones fewer find room than there are multiprocessors for. 0: the kernel cannot run so.
// `each`: blocks that a multiprocessor has room for.
class ClusterCount {
 public:
  template <class... P>
  int of(const char* name, void (*kernel)(P...), const Shape& shape, int each, device::Stream stream) {
    const StreamState& s = state(stream);
    std::atomic<int>& mine = known_[s.ordinal % kGpus];
    if (const int n = mine.load(); n != 0) return n - 1;
    const int most = each * s.multiprocessors / static_cast<int>(shape.cluster);
    int n = 0;
    if (allow_shared(name, kernel, shape.shared).ok()) {
      cudaLaunchAttribute cluster{};
      cluster.id = cudaLaunchAttributeClusterDimension, cluster.val.clusterDim = {shape.cluster, 1, 1};
      cudaLaunchConfig_t config{};
      config.gridDim = dim3(static_cast<unsigned>(most) * shape.cluster), config.blockDim = shape.block;
      config.dynamicSmemBytes = shape.shared, config.attrs = &cluster, config.numAttrs = 1;
      if (cudaOccupancyMaxActiveClusters(&n, kernel, &config) != cudaSuccess) n = 0;
      (void)cudaGetLastError();
    }
    n = std::min(n, most);
    mine.store(n + 1);
    return n;
  }

 private:
  static constexpr int kGpus = 16;
  std::atomic<int> known_[kGpus] = {};
};

}  // namespace tern::cuda
