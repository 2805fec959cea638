// The weight formats of the CPU: panels of values (linear_cpu.cc) and of codes (code_format.cc).
#pragma once

#include "ops/cpu/panel_product.h"
#include "ops/linear.h"

namespace tern::ops::cpu {

class PanelFormat : public WeightFormat {
 public:
  PanelFormat(const char* name, PanelLayout layout) : name_(name), layout_(layout) {}
  const char* name() const override { return name_; }
  size_t packed_bytes(int64_t n, int64_t k) const override {
    return static_cast<size_t>(ceil_div(n, kPanel) * layout_.bytes(k));
  }
  int64_t row_granularity() const override { return kPanel; }
  Status run(const LinearParams& p, device::Stream stream) const override;
  Status run_grouped(const GroupedLinearParams& p, device::Stream stream) const override;
  Status run_heads(const HeadLinearParams& p, device::Stream stream) const override;

 protected:
  bool usable(const PackedWeight& w) const {
    return w.format == this && w.n > 0 && w.k > 0 && w.data.bytes() >= packed_bytes(w.n, w.k);
  }
  // What every slice must be.
  static Status check_slice(const TensorView& source, int64_t row_begin, int64_t n, int64_t k);
  const PanelLayout& layout() const { return layout_; }

 private:
  // Of one shape, all packed by this format.
  bool alike(std::span<const PackedWeight> weights) const;
  PanelJob make_job(const TensorView& x, const PackedWeight& w, const TensorView& out) const;

  const char* name_;
  const PanelLayout layout_;
};

// Null for other names. code_format.cc.
const WeightFormat* find_code_format(const char* name);

}  // namespace tern::ops::cpu
