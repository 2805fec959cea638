#include "cuda/gemm/gemm_facts.h"

namespace tern::cuda {

GemmFacts gemm_facts(device::Stream stream) {
  GemmFacts f{device_facts(stream), {}};
  if (!f.hopper() || f.deterministic || !f.sm90_files) return f;
  count_large_tile_clusters(f.clusters, stream);
  count_gate_clusters(f.clusters, stream);
  return f;
}

}  // namespace tern::cuda
