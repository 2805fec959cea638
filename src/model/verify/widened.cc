#include "model/verify/widened.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "model/run/sequence_runner.h"
#include "model/verify/checks.h"
#include "model/verify/probes.h"

namespace tern::model {
namespace {

class Widened final : public ops::WeightFormat {
 public:
  Widened(const ops::WeightFormat& codes, const ops::WeightFormat& wide)
      : codes_(codes), wide_(wide), name_(std::string(codes.name()) + ", widened") {}
  const char* name() const override { return name_.c_str(); }
  size_t packed_bytes(int64_t n, int64_t k) const override { return wide_.packed_bytes(n, k); }
  int64_t row_granularity() const override {
    return std::lcm(std::max<int64_t>(codes_.row_granularity(), 1), std::max<int64_t>(wide_.row_granularity(), 1));
  }
  ops::ScaleBlocks scale_blocks() const override { return codes_.scale_blocks(); }
  int64_t column_grain() const override { return codes_.column_grain(); }
  Status pack(TensorView, int64_t, int64_t, int64_t, void*) const override {
    return make_error(ErrorCode::kInternal, "a widened weight is packed with its scales");
  }

  Status pack_scaled(const ops::ScaledRows& rows, void* dst) const override {
    const int64_t count = rows.source.dim[0];
    std::vector<char> memory(codes_.packed_bytes(count, rows.k));
    ops::ScaledRows slice = rows;
    slice.row_begin = 0, slice.n = count;
    TERN_RETURN_IF_ERROR(codes_.pack_scaled(slice, memory.data()));
    const ops::PackedWeight packed{&codes_, count, rows.k, rows.first_group,
                                   device::Buffer(memory.data(), memory.size(), nullptr)};
    std::vector<int32_t> ids(static_cast<size_t>(count));
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<float> values(static_cast<size_t>(count * rows.k));
    const TensorView wide = tensor2(values.data(), DType::kF32, count, rows.k);
    TERN_RETURN_IF_ERROR(codes_.gather_rows(packed, tensor1(ids.data(), DType::kI32, count), wide, {}));
    return wide_.pack(wide, rows.row_begin, rows.n, rows.k, dst);
  }

  Status run(const ops::LinearParams& p, device::Stream stream) const override {
    const ops::PackedWeight weight = as_wide(*p.weight);
    ops::LinearParams q = p;
    q.weight = &weight;
    return wide_.run(q, stream);
  }
  Status run_grouped(const ops::GroupedLinearParams& p, device::Stream stream) const override {
    const std::vector<ops::PackedWeight> weights = all_wide(p.weights);
    ops::GroupedLinearParams q = p;
    q.weights = weights;
    return wide_.run_grouped(q, stream);
  }
  Status run_heads(const ops::HeadLinearParams& p, device::Stream stream) const override {
    const std::vector<ops::PackedWeight> weights = all_wide(p.weights);
    ops::HeadLinearParams q = p;
    q.weights = weights;
    return wide_.run_heads(q, stream);
  }

 private:
  ops::PackedWeight as_wide(const ops::PackedWeight& w) const {
    return {&wide_, w.n, w.k, 0, device::Buffer(w.data.data(), w.data.bytes(), nullptr)};
  }
  std::vector<ops::PackedWeight> all_wide(std::span<const ops::PackedWeight> weights) const {
    std::vector<ops::PackedWeight> wide;
    for (const ops::PackedWeight& w : weights) wide.push_back(as_wide(w));
    return wide;
  }

  const ops::WeightFormat& codes_;
  const ops::WeightFormat& wide_;
  const std::string name_;
};

double log_sum(std::span<const float> row, int32_t id) {
  const double top = static_cast<double>(*std::max_element(row.begin(), row.end()));
  double sum = 0.0;
  for (const float v : row) sum += std::exp(static_cast<double>(v) - top);
  return static_cast<double>(row[static_cast<size_t>(id)]) - top - std::log(sum);
}

}  // namespace

const ops::WeightFormat* WidenedFormats::of(const ops::WeightFormat& codes) {
  std::unique_ptr<ops::WeightFormat>& made = made_[codes.name()];
  if (made == nullptr) {
    // Made on the host, whatever device the codes are for: all make the same ones.
    const ops::WeightFormat* host = ops::find_weight_format(device::DeviceKind::kCpu, codes.name());
    made = std::make_unique<Widened>(host != nullptr ? *host : codes, *ops::find_weight_format(kind_, "f32"));
  }
  return made.get();
}

void replace_tensor(GoldenCase& golden, const std::string& name, std::span<const float> values) {
  const auto found = golden.tensors.find(name);
  if (found == golden.tensors.end()) return;
  std::vector<float>& kept = found->second.values;
  const size_t n = std::min(kept.size(), values.size());  // the last rows
  kept.assign(values.end() - static_cast<std::ptrdiff_t>(n), values.end());
}

Status replace_greedy(const std::vector<int32_t>& banned, std::span<const float> last, const NextLogits& step,
                      GoldenPrompt& p) {
  for (size_t i = 0; i < p.greedy.size(); ++i) {
    if (i > 0) {
      TERN_ASSIGN_OR_RETURN(last, step(i - 1));
    }
    p.greedy[i] = arg_max(last, banned);
    std::vector<int32_t> others = banned;
    others.push_back(p.greedy[i]);
    p.margins[i] = static_cast<double>(last[static_cast<size_t>(p.greedy[i])]) -
                   static_cast<double>(last[static_cast<size_t>(arg_max(last, others))]);
  }
  return {};
}

Expected<GoldenCase> widened_case(GoldenCase golden, const Model& widened, device::Device& device) {
  const auto v = static_cast<size_t>(widened.info().outputs());
  int longest = 1;
  for (const GoldenPrompt& p : golden.prompts)
    longest = std::max(longest, static_cast<int>(p.ids.size() + p.greedy.size()));
  for (GoldenPrompt& p : golden.prompts) {
    TERN_ASSIGN_OR_RETURN(
        auto run,
        SequenceRunner::make(widened, device, {.max_tokens = longest, .max_rows = 1, .max_length = longest + 1}));
    VerifyProbe probe(device);
    const SequenceRunner::Row row{0, p.ids, true};
    TERN_ASSIGN_OR_RETURN(const auto logits, run->step({&row, 1}, &probe));
    for (const auto& [name, values] : probe.tensors()) replace_tensor(golden, p.name + "." + name, values);
    replace_tensor(golden, p.name + ".logits", logits);
    float sum = 0.0f;
    for (size_t i = 0; i + 1 < p.ids.size(); ++i)
      sum += static_cast<float>(log_sum(logits.subspan(i * v, v), p.ids[i + 1]));
    replace_tensor(golden, p.name + ".logprob_sum", {&sum, 1});
    const std::vector<float> last(logits.end() - static_cast<std::ptrdiff_t>(v), logits.end());
    const auto step = [&](size_t i) {
      const SequenceRunner::Row next{0, {&p.greedy[i], 1}, false};
      return run->step({&next, 1});
    };
    TERN_RETURN_IF_ERROR(replace_greedy(golden.banned, last, step, p));
  }
  return golden;
}

}  // namespace tern::model
