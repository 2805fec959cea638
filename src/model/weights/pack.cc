#include "model/weights/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "base/checked.h"
#include "device/compute_pool.h"
#include "ops/quantize.h"

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
  return m.format != nullptr ? *m.format : *o.formats[static_cast<size_t>(m.role)];
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
  Packer(const std::vector<Parameter>& parameters, const WeightSource& source, const PackOptions& options,
         device::Device& device)
      : parameters_(parameters),
        source_(source),
        options_(options),
        device_(device),
        stream_(device.stream()),
        own_memory_(device.own_memory()) {
    pool_ = stream_.pool;
    if (pool_ == nullptr) pool_ = (own_pool_ = std::make_unique<device::ComputePool>(options.threads, false)).get();
  }

  void add(const MatrixPlan& m) {
    const DType type = m.format != nullptr ? *source_.code_type(m.pieces.front().parameter) : source_type(m.pieces);
    cut({&m.pieces, &m, m.out->data.data(), type, m.k * static_cast<int64_t>(dtype_bytes(type))}, m.n,
        m.out->format->row_granularity());
  }

  void add(const ArrayPlan& a) {
    const DType type = a.out->dtype;
    cut({&a.pieces, nullptr, static_cast<char*>(a.out->data), type, a.cols * static_cast<int64_t>(dtype_bytes(type))},
        a.rows, 1);
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
    if (m.format != nullptr) return pack_codes(c, staging);
    const TensorView source = rows(m.pieces, c.begin, c.end, m.k, t.type, staging);
    const ops::WeightFormat& format = format_of(m, options_);
    const ops::ScaleBlocks blocks = blocks_made(format, options_);
    if (blocks.rows == 0) return format.pack(source, c.begin, m.n, m.k, t.dst);
    const int64_t groups = ops::scale_groups(blocks, m.k, m.out->first_group);
    std::vector<float> scales(static_cast<size_t>((c.end - c.begin) * groups));
    Status status;
    for_pieces(m.pieces, c.begin, c.end, [&](const Piece& p, int64_t at) {
      const TensorView mine = tensor2(source.row_bytes(at), source.dtype, p.rows, m.k, source.stride[0]);
      if (status.ok()) status = piece_scales(p, mine, blocks, scales.data() + at * groups);
    });
    TERN_RETURN_IF_ERROR(std::move(status));
    return format.pack_scaled(
        {source, tensor2(scales.data(), DType::kF32, c.end - c.begin, groups), c.begin, m.n, m.k, m.out->first_group},
        t.dst);
  }

  // Codes, scales and zero points as the files hold them.
  Status pack_codes(const Chunk& c, std::vector<char>& staging) {
    const Target& t = targets_[c.target];
    const MatrixPlan& m = *t.matrix;
    const ops::ScaleBlocks blocks = m.format->scale_blocks();
    const int64_t count = c.end - c.begin, groups = ops::scale_groups(blocks, m.k, m.out->first_group);
    staging.resize(static_cast<size_t>(count * m.k));
    std::vector<float> scales(static_cast<size_t>(count * groups)), zeros(blocks.zeros ? scales.size() : 0);
    const TensorView codes = tensor2(staging.data(), t.type, count, m.k);
    const TensorView scale = tensor2(scales.data(), DType::kF32, count, groups);
    const TensorView zero = blocks.zeros ? tensor2(zeros.data(), DType::kF32, count, groups) : TensorView{};
    const auto part = [](TensorView v, int64_t at, int64_t n) {
      if (v.data != nullptr) v.data = v.row_bytes(at), v.dim[0] = n;
      return v;
    };
    Status status;
    for_pieces(m.pieces, c.begin, c.end, [&](const Piece& p, int64_t at) {
      if (own_memory_) source_.expect(p);
      if (status.ok())
        status = source_.read_codes(p, part(codes, at, p.rows), part(scale, at, p.rows), part(zero, at, p.rows));
    });
    TERN_RETURN_IF_ERROR(std::move(status));
    return m.format->pack_scaled({codes, scale, c.begin, m.n, m.k, m.out->first_group, zero}, t.dst);
  }

  // Scales of a piece's rows, by group of columns. They belong to the whole matrix: blocks that reach beyond the piece
  // are read once more. `mine`: the piece's values.
  Status piece_scales(const Piece& p, const TensorView& mine, const ops::ScaleBlocks& blocks, float* scales) {
    const Parameter& whole = parameters_[static_cast<size_t>(p.parameter)];
    if (p.transposed) return make_error(ErrorCode::kInternal, "pack: a transposed block has no scales");
    const int64_t cols = blocks.cols == 0 ? whole.cols : blocks.cols;
    Piece cover = p;
    cover.row = p.row / blocks.rows * blocks.rows, cover.col = p.col / cols * cols;
    cover.rows = std::min(round_up(p.row + p.rows, blocks.rows), whole.rows) - cover.row;
    cover.cols = std::min(round_up(p.col + p.cols, cols), whole.cols) - cover.col;
    TensorView values = mine;
    std::vector<char> staging;
    if (cover.rows != p.rows || cover.cols != p.cols) {
      staging.resize(static_cast<size_t>(cover.rows * cover.cols) * dtype_bytes(mine.dtype));
      values = tensor2(staging.data(), mine.dtype, cover.rows, cover.cols);
      source_.read(cover, values);
    }
    const int64_t groups = ceil_div(cover.cols, cols);
    for (int64_t r = 0; r < cover.rows; r += blocks.rows) {
      const int64_t height = std::min(blocks.rows, cover.rows - r);
      const TensorView block = tensor2(values.row_bytes(r), values.dtype, height, cover.cols, values.stride[0]);
      for (int64_t g = 0; g < groups; ++g) {
        const float scale = ops::scale_of(blocks, block, g * cols, std::min((g + 1) * cols, cover.cols));
        if (scale < 0.0f)
          return make_error(ErrorCode::kCorrupt,
                            fmt::format("{} holds NaN or infinity in rows {} to {} and cannot be quantized", whole.name,
                                        cover.row + r, cover.row + r + height - 1));
        const int64_t begin = std::max(cover.row + r, p.row), end = std::min(cover.row + r + height, p.row + p.rows);
        for (int64_t i = begin; i < end; ++i) scales[(i - p.row) * groups + g] = scale;
      }
    }
    return {};
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

  const std::vector<Parameter>& parameters_;
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

size_t packed_bytes(const WeightPlan& plan, const PackOptions& options) {
  size_t bytes = 0;
  for (const MatrixPlan& m : plan.matrices) bytes += round_up(format_of(m, options).packed_bytes(m.n, m.k), kAlign);
  for (const ArrayPlan& a : plan.arrays) bytes += array_bytes(a, options.activation);
  return bytes;
}

namespace {

// Where a rank's columns may begin inside a group of scales.
Status check_slices(const WeightPlan& plan, const PackOptions& options) {
  for (const MatrixPlan& m : plan.matrices) {
    const ops::WeightFormat& format = format_of(m, options);
    const int64_t begin = m.pieces.front().col;
    if (format.scale_blocks().cols == 0 || begin % format.column_grain() == 0) continue;
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("{}: a rank's columns would begin at column {}, and {} needs multiples of {}; use fewer ranks",
                    plan.parameters[static_cast<size_t>(m.pieces.front().parameter)].name, begin, format.name(),
                    format.column_grain()));
  }
  return {};
}

}  // namespace

Status place_plan(const WeightPlan& plan, const PackOptions& options, device::Device& device, WeightMemory& memory) {
  TERN_RETURN_IF_ERROR(check_slices(plan, options));
  const size_t bytes = packed_bytes(plan, options);
  const size_t available = device.memory_available();
  if (bytes > available)
    return make_error(
        ErrorCode::kResourceExhausted,
        fmt::format("the weights take {:.2f} GB, but only {:.2f} GB of memory are available; use a smaller model or "
                    "fewer layers (--model-override)",
                    static_cast<double>(bytes) / 1e9, static_cast<double>(available) / 1e9));
  TERN_ASSIGN_OR_RETURN(memory.range, device.reserve(std::max<size_t>(bytes, 1)));
  TERN_RETURN_IF_ERROR(memory.range->grow(bytes));
  memory.bytes = bytes;
  memory.layout = lay_out(plan, options, memory.data());
  return {};
}

Hash128 lay_out(const WeightPlan& plan, const PackOptions& options, char* base) {
  std::string said;
  char* at = base;
  for (const MatrixPlan& m : plan.matrices) {
    const ops::WeightFormat& format = format_of(m, options);
    const size_t size = format.packed_bytes(m.n, m.k);
    m.out->format = &format;
    m.out->n = m.n, m.out->k = m.k;
    m.out->first_group = ops::first_group_of(format.scale_blocks(), m.pieces.front().col);
    m.out->data = device::Buffer(at, size, nullptr);
    said += fmt::format("{} {} {} {} {}\n", at - base, format.name(), m.n, m.k, m.out->first_group);
    at += round_up(size, kAlign);
  }
  for (const ArrayPlan& a : plan.arrays) {
    const DType type = a.activation_type ? options.activation : DType::kF32;
    *a.out = a.cols == 1 ? tensor1(at, type, a.rows) : tensor2(at, type, a.rows, a.cols);
    said += fmt::format("{} {} {} {}\n", at - base, dtype_name(type), a.rows, a.cols);
    at += array_bytes(a, options.activation);
  }
  return siphash128({}, said.data(), said.size());
}

Status fill_plan(const WeightPlan& plan, const WeightSource& source, const PackOptions& options,
                 device::Device& device) {
  Packer packer(plan.parameters, source, options, device);
  for (const MatrixPlan& m : plan.matrices) packer.add(m);
  for (const ArrayPlan& a : plan.arrays) packer.add(a);
  return packer.run();
}

Status pack_plan(const WeightPlan& plan, const WeightSource& source, const PackOptions& options, device::Device& device,
                 WeightMemory& memory) {
  TERN_RETURN_IF_ERROR(place_plan(plan, options, device, memory));
  return fill_plan(plan, source, options, device);
}

Status pack_weights(const WeightPlan& plan, const WeightSource& source, const PackOptions& options,
                    device::Device& device, DecoderWeights& weights) {
  return pack_plan(plan, source, options, device, weights.memory);
}

}  // namespace tern::model
