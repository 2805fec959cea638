#include "model/weights/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/checked.h"
#include "device/compute_pool.h"

namespace tern::model {
namespace {

constexpr size_t kAlign = 256;
constexpr int64_t kChunkBytes = 1 << 20;  // packed by one thread at a time; its staging buffer
constexpr int64_t kWaveBytes = 16 << 20;  // source bytes between two releases of pages

size_t array_bytes(const ArrayPlan& a, DType activation) {
  const DType type = a.activation_type ? activation : DType::kF32;
  return round_up<size_t>(static_cast<size_t>(a.rows * a.cols) * dtype_bytes(type), kAlign);
}

const ops::WeightFormat& format_of(const MatrixPlan& m, const PackOptions& o) {
  return *(m.role == MatrixRole::kRouter ? o.router : m.role == MatrixRole::kPlain ? o.plain : o.linear);
}

// Rows [begin, end) of a plan's target, as parts of its pieces.
template <class F>
void for_pieces(const std::vector<Piece>& pieces, int64_t begin, int64_t end, F&& f) {
  int64_t at = 0;
  for (const Piece& p : pieces) {
    const int64_t lo = std::max(begin, at), hi = std::min(end, at + p.target_rows());
    if (lo < hi) {
      Piece part = p;
      (p.transposed ? part.col : part.row) += lo - at;
      (p.transposed ? part.cols : part.rows) = hi - lo;
      f(part, lo - begin);
    }
    at += p.target_rows();
  }
}

class Packer {
 public:
  Packer(const WeightSource& source, const PackOptions& options, device::Device& device)
      : source_(source), options_(options), device_(device), stream_(device.stream()) {
    staging_.resize(static_cast<size_t>(threads()));
  }

  Status matrix(const MatrixPlan& m, char* dst) {
    const ops::WeightFormat& format = format_of(m, options_);
    m.out->format = &format;
    m.out->n = m.n, m.out->k = m.k;
    m.out->data = device::Buffer(dst, format.packed_bytes(m.n, m.k), nullptr);
    const DType type = natural(m.pieces);
    const int64_t row_bytes = m.k * static_cast<int64_t>(dtype_bytes(type));
    const int64_t step = format.row_granularity();
    const int64_t chunk = round_up(std::clamp<int64_t>(kChunkBytes / row_bytes, 1, m.n), step);
    const int64_t wave = chunk * std::max<int64_t>(1, kWaveBytes / (chunk * row_bytes));
    for (int64_t begin = 0; begin < m.n; begin += wave) {
      const int64_t end = std::min(begin + wave, m.n);
      parallel(static_cast<int>(ceil_div(end - begin, chunk)), [&](int part, std::vector<char>& staging) {
        const int64_t lo = begin + part * chunk, hi = std::min(lo + chunk, end);
        return format.pack(rows(m.pieces, lo, hi, m.k, type, staging), lo, m.n, m.k, dst);
      });
      TERN_RETURN_IF_ERROR(take_error());
      for_pieces(m.pieces, begin, end, [&](const Piece& p, int64_t) { source_.release(p); });
      advance(static_cast<size_t>((end - begin) * row_bytes));
    }
    return {};
  }

  Status array(const ArrayPlan& a, char* dst) {
    const DType type = a.activation_type ? options_.activation : DType::kF32;
    *a.out = a.cols == 1 ? tensor1(dst, type, a.rows) : tensor2(dst, type, a.rows, a.cols);
    const auto row_bytes = a.cols * static_cast<int64_t>(dtype_bytes(type));
    const int64_t chunk = std::clamp<int64_t>(kChunkBytes / row_bytes, 1, a.rows);
    for (int64_t begin = 0; begin < a.rows; begin += chunk) {
      const int64_t end = std::min(begin + chunk, a.rows);
      auto& staging = staging_.front();
      staging.resize(static_cast<size_t>((end - begin) * row_bytes));
      for_pieces(a.pieces, begin, end, [&](const Piece& p, int64_t at) {
        source_.read(p, tensor2(staging.data() + at * row_bytes, type, p.rows, a.cols));
        source_.release(p);
      });
      device_.copy_to_device(dst + begin * row_bytes, staging.data(), staging.size(), stream_);
      TERN_RETURN_IF_ERROR(device_.synchronize(stream_));
      advance(staging.size());
    }
    return {};
  }

  size_t total = 0;  // for progress

 private:
  int threads() const { return stream_.pool == nullptr ? 1 : stream_.pool->threads(); }

  DType natural(const std::vector<Piece>& pieces) const {
    for (const Piece& p : pieces)
      if (source_.natural_type(p.parameter) != DType::kBF16) return DType::kF32;
    return DType::kBF16;
  }

  // Rows [lo, hi) of the target: where they lie when one piece holds them all, else gathered in `staging`.
  TensorView rows(const std::vector<Piece>& pieces, int64_t lo, int64_t hi, int64_t k, DType type,
                  std::vector<char>& staging) {
    TensorView view;
    for_pieces(pieces, lo, hi, [&](const Piece& p, int64_t) {
      if (p.target_rows() == hi - lo) view = source_.in_place(p);
    });
    if (!view.empty()) return view;
    staging.resize(static_cast<size_t>((hi - lo) * k) * dtype_bytes(type));
    const TensorView whole = tensor2(staging.data(), type, hi - lo, k);
    for_pieces(pieces, lo, hi, [&](const Piece& p, int64_t at) {
      source_.read(p, tensor2(whole.row_bytes(at), type, p.target_rows(), k));
    });
    return whole;
  }

  // f(part, staging) -> Status for every part; threads take parts as they get free.
  template <class F>
  void parallel(int parts, F&& f) {
    std::atomic<int> next{0};
    auto body = [&](int worker) {
      for (int part = next.fetch_add(1); part < parts; part = next.fetch_add(1))
        keep(f(part, staging_[static_cast<size_t>(worker)]));
    };
    if (stream_.pool == nullptr || parts == 1) return body(0);
    stream_.pool->parallel(std::min(parts, threads()), body);
  }
  void keep(Status s) {
    if (s.ok()) return;
    const std::lock_guard lock(mutex_);
    if (error_.ok()) error_ = std::move(s);
  }
  Status take_error() { return std::exchange(error_, Status{}); }
  void advance(size_t bytes) {
    done_ += bytes;
    if (options_.progress) options_.progress(std::min(done_, total), total);
  }

  const WeightSource& source_;
  const PackOptions& options_;
  device::Device& device_;
  const device::Stream stream_;
  std::vector<std::vector<char>> staging_;  // one per thread
  std::mutex mutex_;
  Status error_;
  size_t done_ = 0;
};

}  // namespace

Expected<PackOptions> pack_options(const LoadOptions& options, device::DeviceKind kind) {
  if (options.activation != DType::kBF16 && options.activation != DType::kF32)
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("activations in {} are not supported", dtype_name(options.activation)), "dtype");
  const auto find = [&](const std::string& name) { return ops::find_weight_format(kind, name); };
  PackOptions pack;
  pack.activation = options.activation;
  pack.plain = find(options.activation == DType::kF32 ? "f32" : "bf16");
  pack.router = find("f32");
  pack.linear = options.format != nullptr       ? options.format
                : options.weight_format.empty() ? pack.plain
                                                : find(options.weight_format);
  pack.progress = options.progress;
  if (pack.linear == nullptr)
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("weight format {} is not known on this device", options.weight_format),
                      "quantization");
  if (pack.plain == nullptr || pack.router == nullptr)
    return make_error(ErrorCode::kUnsupported, "this device has no plain weight formats");
  return pack;
}

size_t packed_bytes(const WeightPlan& plan, const PackOptions& options) {
  size_t bytes = 0;
  for (const MatrixPlan& m : plan.matrices) bytes += round_up(format_of(m, options).packed_bytes(m.n, m.k), kAlign);
  for (const ArrayPlan& a : plan.arrays) bytes += array_bytes(a, options.activation);
  return bytes;
}

Status pack_plan(const WeightPlan& plan, const WeightSource& source, const PackOptions& options, device::Device& device,
                 device::Buffer& memory, size_t& bytes) {
  bytes = packed_bytes(plan, options);
  const size_t available = device.memory_available();
  if (bytes > available)
    return make_error(
        ErrorCode::kResourceExhausted,
        fmt::format("the weights take {:.2f} GB, but only {:.2f} GB of memory are available; use a smaller model or "
                    "fewer layers (--model-override)",
                    static_cast<double>(bytes) / 1e9, static_cast<double>(available) / 1e9));
  TERN_ASSIGN_OR_RETURN(memory, device.allocate(bytes));
  Packer packer(source, options, device);
  for (const MatrixPlan& m : plan.matrices)
    for (const Piece& p : m.pieces) packer.total += static_cast<size_t>(p.rows * p.cols) * 2;
  for (const ArrayPlan& a : plan.arrays) packer.total += array_bytes(a, options.activation);
  char* at = memory.data();
  for (const MatrixPlan& m : plan.matrices) {
    TERN_RETURN_IF_ERROR(packer.matrix(m, at));
    at += round_up(format_of(m, options).packed_bytes(m.n, m.k), kAlign);
  }
  for (const ArrayPlan& a : plan.arrays) {
    TERN_RETURN_IF_ERROR(packer.array(a, at));
    at += array_bytes(a, options.activation);
  }
  return {};
}

Status pack_weights(const WeightPlan& plan, const WeightSource& source, const PackOptions& options,
                    device::Device& device, DecoderWeights& weights) {
  return pack_plan(plan, source, options, device, weights.memory, weights.bytes);
}

}  // namespace tern::model
