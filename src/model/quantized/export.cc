#include "model/quantized/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/checked.h"
#include "device/compute_pool.h"
#include "model/quantized/compressed.h"
#include "model/quantized/export_plan.h"
#include "ops/quantize.h"

namespace tern::model {
namespace {

using Kind = ExportTensor::Kind;

constexpr int64_t kBlockRows = 128;        // that one thread makes at a time: whole blocks of every format
constexpr int64_t kChunkBytes = 32 << 20;  // of values read between two writes

class Exporter {
 public:
  Exporter(const ExportOptions& options, const OpenedFolder& folder, const PackOptions& pack, const WeightPlan& plan,
           std::vector<Stored> stored, ExportPlan what, FolderWriter& to)
      : options_(options),
        folder_(folder),
        pack_(pack),
        plan_(plan),
        source_(plan.parameters, std::move(stored)),
        what_(std::move(what)),
        to_(to),
        pool_(options.load.threads, false) {}

  Status run() {
    TERN_RETURN_IF_ERROR(weights());
    TERN_RETURN_IF_ERROR(config());
    return to_.other_files(options_.load.path);
  }

 private:
  Status weights() {
    std::vector<TensorToWrite> tensors;
    for (const ExportTensor& t : what_.tensors) tensors.push_back(t.tensor);
    // Scales come from the codes before them: both lie in one file.
    const auto joined = [&](size_t i) {
      return what_.tensors[i].kind == Kind::kScales || what_.tensors[i].kind == Kind::kShape;
    };
    return to_.weights(tensors, joined, [&](size_t i) { return tensor(what_.tensors[i]); });
  }

  Status tensor(const ExportTensor& t) {
    switch (t.kind) {
      case Kind::kValues:
        return values(t);
      case Kind::kCodes:
        return codes(t);
      case Kind::kScales:
        return to_.put(scales_.data(), scales_.size() * sizeof(float));
      case Kind::kShape: {
        const Parameter& p = plan_.parameters[static_cast<size_t>(t.parameter)];
        const int64_t shape[] = {p.rows, p.cols};
        return to_.put(shape, sizeof shape);
      }
      case Kind::kCopy:
        break;
    }
    for (size_t at = 0; at < t.copied->bytes; at += kChunkBytes) {
      const size_t n = std::min<size_t>(kChunkBytes, t.copied->bytes - at);
      TERN_RETURN_IF_ERROR(to_.put(t.copied->data + at, n));
      t.copied->file->release(t.copied->data + at, n);
    }
    return {};
  }

  Status values(const ExportTensor& t) {
    const Parameter& p = plan_.parameters[static_cast<size_t>(t.parameter)];
    const DType type = t.tensor.type == FileType::kBF16 ? DType::kBF16 : DType::kF32;
    const int64_t row_bytes = p.cols * static_cast<int64_t>(dtype_bytes(type));
    const int64_t step = std::clamp<int64_t>(kChunkBytes / row_bytes, 1, p.rows);
    std::vector<char> block(static_cast<size_t>(step * row_bytes));
    for (int64_t row = 0; row < p.rows; row += step) {
      const Piece piece{t.parameter, row, std::min(step, p.rows - row), 0, p.cols};
      source_.read(piece, tensor2(block.data(), type, piece.rows, p.cols));
      TERN_RETURN_IF_ERROR(to_.put(block.data(), static_cast<size_t>(piece.rows * row_bytes)));
      source_.release(piece);
    }
    return {};
  }

  // All codes of a matrix, chunk by chunk; its scales stay in scales_.
  Status codes(const ExportTensor& t) {
    const Parameter& p = plan_.parameters[static_cast<size_t>(t.parameter)];
    const ops::ScaleBlocks blocks = t.format->scale_blocks();
    const int64_t groups = blocks.cols == 0 ? 1 : ceil_div(p.cols, blocks.cols);
    scales_.assign(static_cast<size_t>(ceil_div(p.rows, blocks.rows) * groups), 1.0f);
    const auto row_bytes = static_cast<int64_t>(t.tensor.bytes()) / p.rows;
    const int64_t step = round_up(std::max<int64_t>(kChunkBytes / (p.cols * 4), 1), kBlockRows);
    std::vector<char> out(static_cast<size_t>(std::min(step, p.rows) * row_bytes));
    for (int64_t row = 0; row < p.rows; row += step) {
      const int64_t rows = std::min(step, p.rows - row);
      std::atomic<int64_t> bad{-1};
      auto part = [&](int i) {
        const int64_t at = row + i * kBlockRows, n = std::min(kBlockRows, row + rows - at);
        if (!encode(t, at, n, groups, out.data() + (at - row) * row_bytes)) bad = at;
      };
      pool_.parallel(static_cast<int>(ceil_div(rows, kBlockRows)), part);
      if (bad >= 0)
        return make_error(ErrorCode::kCorrupt,
                          fmt::format("{} holds NaN or infinity in rows {} to {} and cannot be quantized", p.name,
                                      bad.load(), std::min(bad + kBlockRows, p.rows) - 1));
      TERN_RETURN_IF_ERROR(to_.put(out.data(), static_cast<size_t>(rows * row_bytes)));
      source_.release({t.parameter, row, rows, 0, p.cols});
    }
    return {};
  }

  // Rows [row, row + n), at most kBlockRows; false: one of them holds no number.
  bool encode(const ExportTensor& t, int64_t row, int64_t n, int64_t groups, char* out) {
    const int64_t k = plan_.parameters[static_cast<size_t>(t.parameter)].cols;
    const ops::ScaleBlocks blocks = blocks_made(*t.format, pack_);
    const DType type = source_.natural_type(t.parameter);
    std::vector<char> memory(static_cast<size_t>(n * k) * dtype_bytes(type));
    const TensorView values = tensor2(memory.data(), type, n, k);
    source_.read({t.parameter, row, n, 0, k}, values);
    std::vector<float> scales(static_cast<size_t>(n * groups));
    const int64_t width = blocks.cols == 0 ? k : blocks.cols;
    for (int64_t r = 0; r < n; r += blocks.rows) {
      const int64_t height = std::min(blocks.rows, n - r);
      const TensorView block = tensor2(values.row_bytes(r), type, height, k);
      for (int64_t g = 0; g < groups; ++g) {
        const float scale = ops::scale_of(blocks, block, g * width, std::min((g + 1) * width, k));
        if (scale < 0.0f) return false;
        // Where all codes are 0 any scale will do, and readers want one that is not.
        if (scale > 0.0f) scales_[static_cast<size_t>((row + r) / blocks.rows * groups + g)] = scale;
        for (int64_t i = r; i < r + height; ++i) scales[static_cast<size_t>(i * groups + g)] = scale;
      }
    }
    const bool floats = t.tensor.type == FileType::kF8E4M3;
    std::vector<uint8_t> bytes(static_cast<size_t>(n * k));
    ops::encode_rows(values, tensor2(scales.data(), DType::kF32, n, groups), blocks, floats,
                     tensor2(bytes.data(), DType::kU8, n, k));
    if (floats) {
      std::memcpy(out, bytes.data(), bytes.size());
    } else {
      pack_words(bytes.data(), n, k, blocks.bound == 7.0f ? 4 : 8, out);
    }
    return true;
  }

  Status config() {
    json::Object config = folder_.config;
    config["quantization_config"] = what_.quantization_config;
    if (json::Value* text = config.if_contains("text_config"); text != nullptr && text->is_object())
      text->get_object().erase("quantization_config");
    return to_.text_file("config.json", json::dump(config) + "\n");
  }

  const ExportOptions& options_;
  const OpenedFolder& folder_;
  const PackOptions& pack_;
  const WeightPlan& plan_;
  const CheckpointSource source_;
  const ExportPlan what_;
  FolderWriter& to_;
  device::ComputePool pool_;
  std::vector<float> scales_;
};

}  // namespace

Status export_model(const ExportOptions& options) {
  TERN_ASSIGN_OR_RETURN(OpenedFolder folder, OpenedFolder::open(options.load, true));
  if (folder.files.codes)
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{} is quantized already ({}); export an unquantized checkpoint", options.load.path,
                                  folder.files.codes->method));
  if (folder.exported != nullptr)
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{} is a static export of PaddleNLP; tern convert-static makes a checkpoint of it, "
                                  "which can be exported",
                                  options.load.path));
  DecoderWeights places;
  TERN_ASSIGN_OR_RETURN(const WeightPlan plan, folder.plan(places));
  TERN_ASSIGN_OR_RETURN(const PackOptions pack, pack_options(folder.options, device::DeviceKind::kCpu));
  TERN_ASSIGN_OR_RETURN(std::vector<Stored> stored, folder.resolve(plan));
  TERN_ASSIGN_OR_RETURN(ExportPlan what, plan_export(folder, plan, stored, pack));
  FolderWriter out(options.write);
  TERN_RETURN_IF_ERROR(out.make());
  TERN_RETURN_IF_ERROR(Exporter(options, folder, pack, plan, std::move(stored), std::move(what), out).run());
  TERN_RETURN_IF_ERROR(folder.checkpoint.check());
  return out.commit();
}

}  // namespace tern::model
