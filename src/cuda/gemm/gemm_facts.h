// What the choice of a product's kernel may know: the device, and how many clusters of some kernels run at once, which
// only the driver knows.
#pragma once

#include "cuda/runtime/device_facts.h"

namespace tern::cuda {

// Clusters of four blocks each.
struct ClusterFacts {
  int large_tile_slim = 0, large_tile_64 = 0, large_tile_128 = 0;  // gemm_large_tile_cluster_sm90.cu
  int gate_narrow = 0, gate_small = 0;                             // gemm_gate_sm90.cu
};

struct GemmFacts : DeviceFacts {
  ClusterFacts clusters;  // on Hopper outside deterministic mode, else 0
};

GemmFacts gemm_facts(device::Stream stream);

// Each asks the driver once per GPU.
void count_large_tile_clusters(ClusterFacts& facts, device::Stream stream);
void count_gate_clusters(ClusterFacts& facts, device::Stream stream);

}  // namespace tern::cuda
