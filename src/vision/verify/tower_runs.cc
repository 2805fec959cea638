#include "vision/verify/tower_runs.h"

namespace tern::vision {

Expected<std::vector<float>> Encoded::values(device::Device& device, int64_t begin, int64_t count) const {
  const auto n = static_cast<size_t>(count * rows.dim[1]);
  std::vector<char> host(n * dtype_bytes(rows.dtype));
  const device::Stream stream = device.stream();
  device.copy_to_host(host.data(), rows.row_bytes(begin), host.size(), stream);
  TERN_RETURN_IF_ERROR(device.synchronize(stream));
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i)
    out[i] = rows.dtype == DType::kBF16 ? to_float(reinterpret_cast<const bf16*>(host.data())[i])
                                        : reinterpret_cast<const float*>(host.data())[i];
  return out;
}

Expected<Encoded> encode_items(const Tower& tower, device::Device& device, std::span<const Grid> grids,
                               const void* patches, model::Probe* probe) {
  const TowerInfo& info = tower.info();
  const device::Stream stream = device.stream();
  int64_t rows = 0, tokens = 0;
  for (const Grid& g : grids) rows += g.rows(), tokens += tower.tokens(g);
  TowerIndex index;
  tower.index(grids, index);
  const int items = static_cast<int>(grids.size());
  if (index.ints.size() > tower.max_ints(rows, items) || index.floats.size() > tower.max_floats(rows, items))
    return make_error(ErrorCode::kInternal, "the tower's index exceeds what it announced");
  const size_t patch_bytes = static_cast<size_t>(rows * info.patch_values) * dtype_bytes(info.patch_type);
  device::Buffer in, ints, floats, space;
  Encoded out;
  TERN_ASSIGN_OR_RETURN(in, device.allocate(patch_bytes + 64));
  TERN_ASSIGN_OR_RETURN(ints, device.allocate(index.ints.size() * 4 + 64));
  TERN_ASSIGN_OR_RETURN(floats, device.allocate(index.floats.size() * 4 + 64));
  const size_t workspace = tower.workspace_bytes(rows, items, stream);
  TERN_ASSIGN_OR_RETURN(space, device.allocate(workspace + 64));
  TERN_ASSIGN_OR_RETURN(out.memory,
                        device.allocate(static_cast<size_t>(tokens * info.hidden) * dtype_bytes(info.out_type) + 64));
  device.copy_to_device(in.data(), patches, patch_bytes, stream);
  device.copy_to_device(ints.data(), index.ints.data(), index.ints.size() * 4, stream);
  device.copy_to_device(floats.data(), index.floats.data(), index.floats.size() * 4, stream);
  out.rows = tensor2(out.memory.data(), info.out_type, tokens, info.hidden);
  device::Arena arena(space.data(), workspace);
  const TowerCall call{grids,
                       tensor2(in.data(), info.patch_type, rows, info.patch_values),
                       tensor1(ints.data(), DType::kI32, static_cast<int64_t>(index.ints.size())),
                       tensor1(floats.data(), DType::kF32, static_cast<int64_t>(index.floats.size())),
                       out.rows,
                       stream,
                       arena,
                       probe};
  TERN_RETURN_IF_ERROR(tower.encode(call));
  TERN_RETURN_IF_ERROR(device.synchronize(stream));
  return out;
}

}  // namespace tern::vision
