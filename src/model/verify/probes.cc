#include "model/verify/probes.h"

#include <algorithm>
#include <span>

namespace tern::model {

void VerifyProbe::tensor(std::string_view name, TensorView value) {
  const auto [it, fresh] = tensors_.try_emplace(std::string(name));
  if (!fresh) return;
  for (int64_t r = 0; r < value.dim[0]; ++r) {
    const char* row = value.row_bytes(r);
    for (int64_t c = 0; c < value.dim[1]; ++c)
      it->second.push_back(value.dtype == DType::kBF16 ? to_float(reinterpret_cast<const bf16*>(row)[c])
                                                       : reinterpret_cast<const float*>(row)[c]);
  }
}

bool VerifyProbe::routing(int layer, TensorView ids) {
  const auto k = static_cast<size_t>(ids.dim[1]);
  record_.top_k = static_cast<int>(k);
  std::vector<int32_t>& mine = record_.layers[layer];
  const size_t begin = mine.size();
  for (int64_t t = 0; t < ids.dim[0]; ++t) {
    const auto* row = reinterpret_cast<const int32_t*>(ids.row_bytes(t));
    mine.insert(mine.end(), row, row + k);
  }
  if (mode_ == Mode::kWatch || reference_ == nullptr) return false;
  const auto found = reference_->layers.find(layer);
  if (found == reference_->layers.end()) return false;
  const std::vector<int32_t>& theirs = found->second;
  for (int64_t t = 0; t < ids.dim[0]; ++t) {
    const size_t at = begin + static_cast<size_t>(t) * k;
    if (at + k > theirs.size()) return false;
    std::vector<int32_t> a(mine.begin() + static_cast<std::ptrdiff_t>(at),
                           mine.begin() + static_cast<std::ptrdiff_t>(at + k));
    std::vector<int32_t> b(theirs.begin() + static_cast<std::ptrdiff_t>(at),
                           theirs.begin() + static_cast<std::ptrdiff_t>(at + k));
    if (mode_ == Mode::kForce) std::copy(b.begin(), b.end(), reinterpret_cast<int32_t*>(ids.row_bytes(t)));
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    ++compared_;
    flips_ += a != b;
  }
  return mode_ == Mode::kForce;
}

}  // namespace tern::model
