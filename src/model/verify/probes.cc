#include "model/verify/probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tern::model {

std::vector<char> VerifyProbe::to_host(const TensorView& value) {
  const size_t row = static_cast<size_t>(value.dim[1]) * dtype_bytes(value.dtype);
  std::vector<char> host(row * static_cast<size_t>(value.dim[0]));
  const device::Stream stream = device_.stream();
  for (int64_t r = 0; r < value.dim[0]; ++r) {
    device_.copy_to_host(host.data() + static_cast<size_t>(r) * row, value.row_bytes(r), row, stream);
  }
  // A fault shows in the step's own status.
  (void)device_.synchronize(stream);
  return host;
}

void VerifyProbe::restore(const TensorView& value, const std::vector<char>& host) {
  const size_t row = static_cast<size_t>(value.dim[1]) * dtype_bytes(value.dtype);
  for (int64_t r = 0; r < value.dim[0]; ++r) {
    device_.copy_to_device(value.row_bytes(r), host.data() + static_cast<size_t>(r) * row, row, device_.stream());
  }
  (void)device_.synchronize(device_.stream());
}

void VerifyProbe::tensor(std::string_view name, TensorView value) {
  const auto [it, fresh] = tensors_.try_emplace(std::string(name));
  if (!fresh) return;
  const std::vector<char> host = to_host(value);
  const auto n = static_cast<size_t>(value.dim[0] * value.dim[1]);
  it->second.reserve(n);
  for (size_t i = 0; i < n; ++i)
    it->second.push_back(value.dtype == DType::kBF16 ? to_float(reinterpret_cast<const bf16*>(host.data())[i])
                                                     : reinterpret_cast<const float*>(host.data())[i]);
}

void VerifyProbe::router(int /*layer*/, TensorView scores) {
  if (mode_ != Mode::kDisturb) return;
  scores_ = scores, undisturbed_ = to_host(scores);
  std::vector<char> disturbed = undisturbed_;
  auto* row = reinterpret_cast<float*>(disturbed.data());
  std::normal_distribution<float> error;
  for (int64_t t = 0; t < scores.dim[0]; ++t, row += scores.dim[1]) {
    double square = 0.0;
    for (int64_t e = 0; e < scores.dim[1]; ++e) square += static_cast<double>(row[e]) * static_cast<double>(row[e]);
    const auto by = static_cast<float>(error_ * std::sqrt(square / static_cast<double>(scores.dim[1])));
    for (int64_t e = 0; e < scores.dim[1]; ++e) row[e] += by * error(random_);
  }
  restore(scores, disturbed);
}

bool VerifyProbe::routing(int layer, TensorView ids) {
  const auto k = static_cast<size_t>(ids.dim[1]);
  const std::vector<char> host = to_host(ids);
  const auto* const chosen = reinterpret_cast<const int32_t*>(host.data());
  record_.top_k = static_cast<int>(k);
  std::vector<int32_t>& mine = record_.layers[layer];
  const size_t begin = mine.size();
  mine.insert(mine.end(), chosen, chosen + static_cast<size_t>(ids.dim[0]) * k);
  if (mode_ == Mode::kDisturb) restore(scores_, undisturbed_);
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
    device_.copy_to_device(ids.row_bytes(t), b.data(), k * 4, device_.stream());
    // The copy has taken what it needs of `b`: it lies in pageable memory.
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    ++compared_;
    flips_ += a != b;
  }
  return true;
}

RoutingRecord joined(std::span<const RoutingRecord> sequences, std::span<const SequenceRunner::Row> rows) {
  RoutingRecord all;
  for (size_t i = 0; i < sequences.size(); ++i) {
    all.top_k = sequences[i].top_k;
    for (const auto& [layer, ids] : sequences[i].layers) {
      const size_t n = std::min(ids.size(), rows[i].tokens.size() * static_cast<size_t>(all.top_k));
      all.layers[layer].insert(all.layers[layer].end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
    }
  }
  return all;
}

Status RoutingFlips::disturb(SequenceRunner& run, const SequenceRunner::Row& row, device::Device& device,
                             const RoutingRecord& reference, double error) {
  for (uint32_t draw = 0; draw < kDraws; ++draw) {
    run.reset();
    VerifyProbe probe(device, VerifyProbe::Mode::kDisturb, &reference, error, draw);
    TERN_RETURN_IF_ERROR(run.step({&row, 1}, &probe));
    disturbed[draw] += probe.flips();
  }
  return {};
}

StatementCheck RoutingFlips::statement() const {
  const double all = static_cast<double>(std::max<int64_t>(compared, 1)) / 100.0;
  const int64_t allowed = *std::max_element(disturbed.begin(), disturbed.end());
  return {"free routing",
          fmt::format("{} of {} token-layers chose other experts ({:.2f} %, at most {:.2f} %)", flips, compared,
                      static_cast<double>(flips) / all, static_cast<double>(allowed) / all),
          compared > 0 && flips <= allowed};
}

}  // namespace tern::model
