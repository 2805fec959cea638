#include "model/weights/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "base/checked.h"
#include "device/compute_pool.h"

namespace tern::model {
namespace {

constexpr size_t kAlign = 256;
// Bytes one thread packs at a time. A device with its own memory (a GPU) gets larger chunks, so that transfer latency
// weighs less.
constexpr int64_t kChunkBytes = 1 << 20, kDeviceChunkBytes = 4 << 20;
// If neighbouring chunks read the same file pages, the pages are released only when a whole group of chunks is done;
// this is the group's size.
constexpr int64_t kGroupBytes = 8 << 20, kDeviceGroupBytes = 64 << 20;

size_t array_bytes(const ArrayPlan& a, DType activation) {
  const DType type = a.activation_type ? activation : DType::kF32;
  return round_up<size_t>(static_cast<size_t>(a.rows * a.cols) * dtype_bytes(type), kAlign);
}

const ops::WeightFormat& format_of(const MatrixPlan& m, const PackOptions& o) {
  return *(m.role == MatrixRole::kRouter ? o.router : m.role == MatrixRole::kPlain ? o.plain : o.linear);
}

// Calls f(part, row) for what each piece contributes to target rows [begin, end); `row` counts from begin.
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

// Cuts every target into chunks. All chunks lie in one list, so no thread idles at the end of a small matrix, and
// copying overlaps with reading.
class Packer {
 public:
  Packer(const WeightSource& source, const PackOptions& options, device::Device& device)
      : source_(source),
        options_(options),
        device_(device),
        stream_(device.stream()),
        own_memory_(device.own_memory()) {
    pool_ = stream_.pool;
    if (pool_ == nullptr) pool_ = (own_pool_ = std::make_unique<device::ComputePool>(options.threads, false)).get();
  }

  void add(const MatrixPlan& m, char* dst) {
    const ops::WeightFormat& format = format_of(m, options_);
    m.out->format = &format;
    m.out->n = m.n, m.out->k = m.k;
    m.out->data = device::Buffer(dst, format.packed_bytes(m.n, m.k), nullptr);
    const DType type = source_type(m.pieces);
    cut({&m.pieces, &m, dst, type, m.k * static_cast<int64_t>(dtype_bytes(type))}, m.n, format.row_granularity());
  }

  void add(const ArrayPlan& a, char* dst) {
    const DType type = a.activation_type ? options_.activation : DType::kF32;
    *a.out = a.cols == 1 ? tensor1(dst, type, a.rows) : tensor2(dst, type, a.rows, a.cols);
    cut({&a.pieces, nullptr, dst, type, a.cols * static_cast<int64_t>(dtype_bytes(type))}, a.rows, 1);
  }

  Status run() {
    std::atomic<size_t> next{0};
    auto body = [&](int) {
      record_error(device_.bind_thread());
      std::vector<char> staging;
      for (size_t i = next.fetch_add(1); i < chunks_.size() && !failed_.load(); i = next.fetch_add(1)) {
        const Chunk& c = chunks_[i];
        record_error(targets_[c.target].matrix != nullptr ? pack_matrix(c, staging) : copy_array(c, staging));
        finish(groups_[c.group]);
      }
    };
    pool_->parallel(pool_->threads(), body);
    return std::move(error_);
  }

 private:
  struct Target {
    const std::vector<Piece>* pieces;
    const MatrixPlan* matrix;  // null: an array
    char* dst;
    DType type;  // element type: of the rows read (matrix) or of the rows stored (array)
    int64_t row_bytes;
  };
  struct Group {  // chunks whose source pages are released together
    size_t target;
    int64_t begin, end;
    std::atomic<int> left;  // chunks not done yet
    Group(size_t t, int64_t b, int64_t e, int n) : target(t), begin(b), end(e), left(n) {}
  };
  struct Chunk {
    size_t target, group;
    int64_t begin, end;  // rows
  };

  void cut(const Target& target, int64_t rows, int64_t granularity) {
    const bool pages_shared =
        std::any_of(target.pieces->begin(), target.pieces->end(), [&](const Piece& p) { return source_.scattered(p); });
    const int64_t bytes = own_memory_ ? kDeviceChunkBytes : kChunkBytes;
    const int64_t group_bytes = !pages_shared ? bytes : own_memory_ ? kDeviceGroupBytes : kGroupBytes;
    const int64_t chunk = round_up(std::clamp<int64_t>(bytes / target.row_bytes, 1, rows), granularity);
    const int64_t group = chunk * std::max<int64_t>(1, group_bytes / (chunk * target.row_bytes));
    const size_t t = targets_.size();
    targets_.push_back(target);
    total_ += static_cast<size_t>(rows * target.row_bytes);
    for (int64_t begin = 0; begin < rows; begin += group) {
      const int64_t end = std::min(begin + group, rows);
      for (int64_t lo = begin; lo < end; lo += chunk)
        chunks_.push_back({t, groups_.size(), lo, std::min(lo + chunk, end)});
      groups_.emplace_back(t, begin, end, static_cast<int>(ceil_div(end - begin, chunk)));
    }
  }

  Status pack_matrix(const Chunk& c, std::vector<char>& staging) {
    const Target& t = targets_[c.target];
    const MatrixPlan& m = *t.matrix;
    const TensorView source = rows(m.pieces, c.begin, c.end, m.k, t.type, staging);
    return format_of(m, options_).pack(source, c.begin, m.n, m.k, t.dst);
  }

  Status copy_array(const Chunk& c, std::vector<char>& staging) {
    const Target& t = targets_[c.target];
    char* const dst = t.dst + c.begin * t.row_bytes;
    char* to = dst;
    if (own_memory_) {
      staging.resize(static_cast<size_t>((c.end - c.begin) * t.row_bytes));
      to = staging.data();
    }
    const int64_t cols = t.row_bytes / static_cast<int64_t>(dtype_bytes(t.type));
    for_pieces(*t.pieces, c.begin, c.end, [&](const Piece& p, int64_t at) {
      source_.read(p, tensor2(to + at * t.row_bytes, t.type, p.rows, cols));
    });
    if (!own_memory_) return {};
    const std::lock_guard lock(stream_mutex_);
    device_.copy_to_device(dst, staging.data(), staging.size(), stream_);
    return device_.synchronize(stream_);
  }

  // bf16 if all pieces can be read as bf16 without loss, else f32.
  DType source_type(const std::vector<Piece>& pieces) const {
    for (const Piece& p : pieces)
      if (source_.natural_type(p.parameter) != DType::kBF16) return DType::kF32;
    return DType::kBF16;
  }

  // Rows [lo, hi) of the target. A view into the source when one piece holds all rows and allows it; otherwise copied
  // to `staging`.
  TensorView rows(const std::vector<Piece>& pieces, int64_t lo, int64_t hi, int64_t k, DType type,
                  std::vector<char>& staging) {
    TensorView view;
    for_pieces(pieces, lo, hi, [&](const Piece& p, int64_t) {
      if (own_memory_) source_.expect(p);
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

  // One chunk of the group is done. The last one releases the pages and reports the overall progress.
  void finish(Group& g) {
    if (g.left.fetch_sub(1) != 1) return;
    const Target& t = targets_[g.target];
    for_pieces(*t.pieces, g.begin, g.end, [&](const Piece& p, int64_t) {
      source_.release(p);
      record_error(source_.check(p));
    });
    const std::lock_guard lock(mutex_);
    done_ += static_cast<size_t>((g.end - g.begin) * t.row_bytes);
    if (options_.progress && !failed_.load()) options_.progress(done_, total_);
  }
  // Keeps the first error; it stops the other threads.
  void record_error(Status s) {
    if (s.ok()) return;
    const std::lock_guard lock(mutex_);
    if (!failed_.exchange(true)) error_ = std::move(s);
  }

  const WeightSource& source_;
  const PackOptions& options_;
  device::Device& device_;
  const device::Stream stream_;
  const bool own_memory_;  // the device has memory of its own, so rows are copied there
  device::ComputePool* pool_ = nullptr;
  std::unique_ptr<device::ComputePool> own_pool_;
  std::vector<Target> targets_;
  std::deque<Group> groups_;
  std::vector<Chunk> chunks_;
  std::mutex mutex_, stream_mutex_;
  std::atomic<bool> failed_{false};
  Status error_;
  size_t done_ = 0, total_ = 0;
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
  pack.threads = options.threads;
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
  char* at = memory.data();
  for (const MatrixPlan& m : plan.matrices) {
    packer.add(m, at);
    at += round_up(format_of(m, options).packed_bytes(m.n, m.k), kAlign);
  }
  for (const ArrayPlan& a : plan.arrays) {
    packer.add(a, at);
    at += array_bytes(a, options.activation);
  }
  return packer.run();
}

Status pack_weights(const WeightPlan& plan, const WeightSource& source, const PackOptions& options,
                    device::Device& device, DecoderWeights& weights) {
  return pack_plan(plan, source, options, device, weights.memory, weights.bytes);
}

}  // namespace tern::model
