#include "model/quantized/export.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/checked.h"
#include "device/compute_pool.h"
#include "model/quantized/export_plan.h"
#include "ops/quantize.h"

namespace tern::model {
namespace {

namespace fs = std::filesystem;
using Kind = ExportTensor::Kind;

constexpr int64_t kBlockRows = 128;        // that one thread makes at a time: whole blocks of every format
constexpr int64_t kChunkBytes = 32 << 20;  // of values read between two writes

Error io_error(const char* what, const std::string& path, int code) {
  return make_error(ErrorCode::kIo, fmt::format("cannot {} {}: {}", what, path, std::strerror(code)));
}

Status sync_path(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return io_error("open", path, errno);
  const bool good = ::fsync(file) == 0;
  const int code = errno;
  ::close(file);
  return good ? Status() : Status(io_error("write", path, code));
}

// A folder beside the one that is to be, which gets its name when it is whole and disappears otherwise.
class NewFolder {
 public:
  ~NewFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

  Status make(const std::string& out) {
    std::error_code ec;
    out_ = fs::absolute(out, ec).lexically_normal().string();
    if (out_.ends_with('/')) out_.pop_back();
    if (fs::exists(out_, ec) && !(fs::is_directory(out_, ec) && fs::is_empty(out_, ec)))
      return make_error(ErrorCode::kInvalidArgument, fmt::format("{} is there already and not an empty folder", out));
    std::string name = out_ + ".partial-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) return io_error("make", name, errno);
    path_ = name;
    ::chmod(path_.c_str(), 0755);
    return {};
  }
  Status commit() {
    TERN_RETURN_IF_ERROR(sync_path(path_));
    if (::rename(path_.c_str(), out_.c_str()) != 0) return io_error("make", out_, errno);
    path_.clear();
    return sync_path(fs::path(out_).parent_path().string());
  }

 private:
  std::string out_, path_;
};

class Exporter {
 public:
  Exporter(const ExportOptions& options, const OpenedFolder& folder, const WeightPlan& plan, std::vector<Stored> stored,
           ExportPlan what, const std::string& to)
      : options_(options),
        folder_(folder),
        plan_(plan),
        source_(plan.parameters, std::move(stored)),
        what_(std::move(what)),
        to_(to),
        pool_(options.load.threads, false) {
    for (const ExportTensor& t : what_.tensors) total_ += t.tensor.bytes();
  }

  Status run() {
    TERN_RETURN_IF_ERROR(weights());
    TERN_RETURN_IF_ERROR(config());
    return other_files();
  }

 private:
  Status weights() {
    std::vector<std::pair<size_t, size_t>> files;  // first tensor, end
    size_t begin = 0, bytes = 0;
    for (size_t i = 0; i < what_.tensors.size(); ++i) {
      bytes += what_.tensors[i].tensor.bytes();
      // Scales come from the codes before them: both lie in one file.
      const bool more = i + 1 < what_.tensors.size();
      const Kind next = more ? what_.tensors[i + 1].kind : Kind::kValues;
      if (more && (bytes < options_.file_bytes || next == Kind::kScales || next == Kind::kShape)) continue;
      files.emplace_back(begin, i + 1);
      begin = i + 1, bytes = 0;
    }
    json::Object map;
    for (size_t f = 0; f < files.size(); ++f) {
      const std::string name = files.size() == 1 ? "model.safetensors"
                                                 : fmt::format("model-{:05}-of-{:05}.safetensors", f + 1, files.size());
      TERN_RETURN_IF_ERROR(file(name, files[f].first, files[f].second));
      for (size_t i = files[f].first; i < files[f].second; ++i) map[what_.tensors[i].tensor.name] = name;
    }
    if (files.size() == 1) return {};
    return text_file("model.safetensors.index.json",
                     json::dump(json::Object{{"metadata", json::Object{{"total_size", total_}}}, {"weight_map", map}}));
  }

  Status file(const std::string& name, size_t begin, size_t end) {
    std::vector<TensorToWrite> tensors;
    for (size_t i = begin; i < end; ++i) tensors.push_back(what_.tensors[i].tensor);
    TensorWriter writer;
    TERN_RETURN_IF_ERROR(writer.open(to_ + "/" + name, tensors));
    for (size_t i = begin; i < end; ++i) TERN_RETURN_IF_ERROR(tensor(what_.tensors[i], writer));
    return writer.close();
  }

  Status put(TensorWriter& writer, const void* data, size_t bytes) {
    if (options_.stop && options_.stop()) return make_error(ErrorCode::kCancelled, "interrupted; nothing was left");
    TERN_RETURN_IF_ERROR(writer.write(data, bytes));
    done_ += bytes;
    if (options_.progress) options_.progress(done_, total_);
    return {};
  }

  Status tensor(const ExportTensor& t, TensorWriter& writer) {
    switch (t.kind) {
      case Kind::kValues:
        return values(t, writer);
      case Kind::kCodes:
        return codes(t, writer);
      case Kind::kScales:
        return put(writer, scales_.data(), scales_.size() * sizeof(float));
      case Kind::kShape: {
        const Parameter& p = plan_.parameters[static_cast<size_t>(t.parameter)];
        const int64_t shape[] = {p.rows, p.cols};
        return put(writer, shape, sizeof shape);
      }
      case Kind::kCopy:
        break;
    }
    for (size_t at = 0; at < t.copied->bytes; at += kChunkBytes) {
      const size_t n = std::min<size_t>(kChunkBytes, t.copied->bytes - at);
      TERN_RETURN_IF_ERROR(put(writer, t.copied->data + at, n));
      t.copied->file->release(t.copied->data + at, n);
    }
    return {};
  }

  Status values(const ExportTensor& t, TensorWriter& writer) {
    const Parameter& p = plan_.parameters[static_cast<size_t>(t.parameter)];
    const DType type = t.tensor.type == FileType::kBF16 ? DType::kBF16 : DType::kF32;
    const int64_t row_bytes = p.cols * static_cast<int64_t>(dtype_bytes(type));
    const int64_t step = std::clamp<int64_t>(kChunkBytes / row_bytes, 1, p.rows);
    std::vector<char> block(static_cast<size_t>(step * row_bytes));
    for (int64_t row = 0; row < p.rows; row += step) {
      const Piece piece{t.parameter, row, std::min(step, p.rows - row), 0, p.cols};
      source_.read(piece, tensor2(block.data(), type, piece.rows, p.cols));
      TERN_RETURN_IF_ERROR(put(writer, block.data(), static_cast<size_t>(piece.rows * row_bytes)));
      source_.release(piece);
    }
    return {};
  }

  // All codes of a matrix, chunk by chunk; its scales stay in scales_.
  Status codes(const ExportTensor& t, TensorWriter& writer) {
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
      TERN_RETURN_IF_ERROR(put(writer, out.data(), static_cast<size_t>(rows * row_bytes)));
      source_.release({t.parameter, row, rows, 0, p.cols});
    }
    return {};
  }

  // Rows [row, row + n), at most kBlockRows; false: one of them holds no number.
  bool encode(const ExportTensor& t, int64_t row, int64_t n, int64_t groups, char* out) {
    const int64_t k = plan_.parameters[static_cast<size_t>(t.parameter)].cols;
    const ops::ScaleBlocks blocks = t.format->scale_blocks();
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
        const float scale = ops::scale_of(block, g * width, std::min((g + 1) * width, k), blocks.bound);
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
      pack_words(bytes, n, k, blocks.bound == 7.0f ? 4 : 8, out);
    }
    return true;
  }

  // Words of 32 bits along the columns, codes counted from the lowest (models-other.md 16.3).
  static void pack_words(const std::vector<uint8_t>& codes, int64_t n, int64_t k, int bits, char* out) {
    const int64_t per = 32 / bits, words = ceil_div(k, per);
    const uint32_t middle = 1u << (bits - 1), mask = (1u << bits) - 1;
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t w = 0; w < words; ++w) {
        uint32_t word = 0;
        for (int64_t i = 0; i < per && w * per + i < k; ++i)
          word |= ((codes[static_cast<size_t>(r * k + w * per + i)] + middle) & mask) << (i * bits);
        std::memcpy(out + (r * words + w) * 4, &word, sizeof word);
      }
    }
  }

  Status text_file(const std::string& name, const std::string& text) {
    const std::string path = to_ + "/" + name;
    std::ofstream stream(path, std::ios::binary);
    stream << text;
    stream.close();
    if (!stream) return io_error("write", path, errno);
    return sync_path(path);
  }

  Status config() {
    json::Object config = folder_.config;
    config["quantization_config"] = what_.quantization_config;
    if (json::Value* text = config.if_contains("text_config"); text != nullptr && text->is_object())
      text->get_object().erase("quantization_config");
    return text_file("config.json", json::dump(config) + "\n");
  }

  // Tokenizer, templates and whatever else is no weights.
  Status other_files() {
    constexpr std::string_view kWeights[] = {".safetensors", ".index.json", ".bin",  ".pt", ".pth",
                                             ".pdparams",    ".gguf",       ".onnx", ".h5", ".msgpack"};
    std::error_code ec;
    for (const auto& entry : fs::directory_iterator(options_.load.path, ec)) {
      const std::string name = entry.path().filename().string();
      const auto ends = [&](std::string_view tail) { return name.ends_with(tail); };
      if (name == "config.json" || !entry.is_regular_file(ec) || std::ranges::any_of(kWeights, ends)) continue;
      const std::string to = to_ + "/" + name;
      if (!fs::copy_file(entry.path(), to, ec)) return io_error("copy", entry.path().string(), ec.value());
      TERN_RETURN_IF_ERROR(sync_path(to));
    }
    return ec ? Status(io_error("read", options_.load.path, ec.value())) : Status();
  }

  const ExportOptions& options_;
  const OpenedFolder& folder_;
  const WeightPlan& plan_;
  const CheckpointSource source_;
  const ExportPlan what_;
  const std::string to_;
  device::ComputePool pool_;
  std::vector<float> scales_;
  size_t done_ = 0, total_ = 0;
};

}  // namespace

Status export_model(const ExportOptions& options) {
  TERN_ASSIGN_OR_RETURN(OpenedFolder folder, OpenedFolder::open(options.load, true));
  if (folder.files.codes)
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{} is quantized already ({}); export an unquantized checkpoint", options.load.path,
                                  folder.files.codes->method));
  DecoderWeights places;
  TERN_ASSIGN_OR_RETURN(const WeightPlan plan, folder.plan(places));
  TERN_ASSIGN_OR_RETURN(const PackOptions pack, pack_options(folder.options, device::DeviceKind::kCpu));
  TERN_ASSIGN_OR_RETURN(std::vector<Stored> stored, folder.resolve(plan));
  TERN_ASSIGN_OR_RETURN(ExportPlan what, plan_export(folder, plan, stored, pack));
  NewFolder out;
  TERN_RETURN_IF_ERROR(out.make(options.out));
  TERN_RETURN_IF_ERROR(Exporter(options, folder, plan, std::move(stored), std::move(what), out.path()).run());
  TERN_RETURN_IF_ERROR(folder.checkpoint.check());
  return out.commit();
}

}  // namespace tern::model
