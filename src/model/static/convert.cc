#include "model/static/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/checked.h"
#include "model/opened_folder.h"
#include "model/quantized/compressed.h"
#include "model/static/static_source.h"

namespace tern::model {
namespace {

constexpr int64_t kBlock = 128;            // rows and columns of an FP8 scale
constexpr int64_t kChunkBytes = 32 << 20;  // read between two writes

enum class Kind : uint8_t { kValues, kCodes, kScales, kShape };

struct Written {
  Kind kind = Kind::kValues;
  int parameter = 0;
};

class Converter {
 public:
  Converter(const ConvertOptions& options, const OpenedFolder& folder, const WeightPlan& plan,
            std::vector<StaticPlace> places, FolderWriter& to)
      : options_(options),
        folder_(folder),
        parameters_(plan.parameters),
        places_(places),
        source_(plan.parameters, std::move(places)),
        to_(to) {}

  Status run() {
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (!places_[i].parts.empty()) TERN_RETURN_IF_ERROR(list(static_cast<int>(i)));
    const auto joined = [&](size_t i) { return what_[i].kind == Kind::kScales || what_[i].kind == Kind::kShape; };
    TERN_RETURN_IF_ERROR(to_.weights(tensors_, joined, [&](size_t i) { return write(what_[i]); }));
    TERN_RETURN_IF_ERROR(config());
    return to_.other_files(options_.load.path, {"model.json", "model.pdmodel", "model.pdiparams", "rank_mapping.csv"});
  }

 private:
  const Parameter& parameter(int i) const { return parameters_[static_cast<size_t>(i)]; }
  Piece rows_of(int i, int64_t row, int64_t rows) const { return {i, row, rows, 0, parameter(i).cols}; }
  bool floats(int i) const { return source_.code_type(i) == DType::kF8E4M3; }
  int bits_of(int i) const { return places_[static_cast<size_t>(i)].parts.front().matrix.layout.bits; }
  int64_t group_of(int i) const { return source_.group_of(rows_of(i, 0, parameter(i).rows)); }
  static int64_t groups(const Parameter& p, int64_t group) { return group == 0 ? 1 : ceil_div(p.cols, group); }

  // ---- which tensors there are
  Status list(int i) {
    const Parameter& p = parameter(i);
    const bool matrix = p.kind == ParameterKind::kLinear || p.kind == ParameterKind::kRouter;
    const std::string module = p.name.substr(0, p.name.rfind('.'));
    const auto add = [&](std::string name, FileType type, std::vector<int64_t> shape, Kind kind) {
      tensors_.push_back({std::move(name), type, std::move(shape)});
      what_.push_back({kind, i});
    };
    if (!source_.code_type(i)) {
      add(p.name, source_.value_type(i), p.is_vector() ? std::vector{p.rows} : std::vector{p.rows, p.cols},
          Kind::kValues);
      if (matrix) ignore_.push_back(json::Value(module));
      return {};
    }
    const int64_t group = group_of(i);
    targets_[{floats(i), bits_of(i), group}].push_back(json::Value(module));
    if (floats(i)) {
      TERN_RETURN_IF_ERROR(check_blocks(i));
      add(p.name, FileType::kF8E4M3, {p.rows, p.cols}, Kind::kCodes);
      add(module + ".weight_scale_inv", FileType::kF32, {ceil_div(p.rows, kBlock), groups(p, kBlock)}, Kind::kScales);
    } else {
      add(module + ".weight_packed", FileType::kI32, {p.rows, ceil_div<int64_t>(p.cols, 32 / bits_of(i))},
          Kind::kCodes);
      add(module + ".weight_scale", FileType::kF32, {p.rows, groups(p, group)}, Kind::kScales);
      add(module + ".weight_shape", FileType::kI64, {2}, Kind::kShape);
    }
    return {};
  }

  // Files have one scale for each block of the whole matrix.
  Status check_blocks(int i) const {
    for (const StaticPart& part : places_[static_cast<size_t>(i)].parts) {
      const int64_t begin = part.at_row % part.matrix.section_rows;
      if (part.row % kBlock == 0 && begin % kBlock == 0 && part.col % kBlock == 0) continue;
      return make_error(
          ErrorCode::kUnsupported,
          fmt::format("{}: ranks begin inside of blocks of 128 x 128, so that files cannot keep their FP8 "
                      "scales; the export itself can be served",
                      parameter(i).name));
    }
    return {};
  }

  // ---- their bytes
  Status write(const Written& w) {
    const Parameter& p = parameter(w.parameter);
    if (w.kind == Kind::kScales) return to_.put(scales_.data(), scales_.size() * sizeof(float));
    if (w.kind == Kind::kShape) {
      const int64_t shape[] = {p.rows, p.cols};
      return to_.put(shape, sizeof shape);
    }
    const int64_t row_bytes =
        p.cols *
        (w.kind == Kind::kValues ? static_cast<int64_t>(file_type_bytes(source_.value_type(w.parameter))) : int64_t{1});
    const int64_t step = round_up(std::max<int64_t>(kChunkBytes / row_bytes, 1), kBlock);
    scales_.clear();
    for (int64_t row = 0; row < p.rows; row += step) {
      const int64_t rows = std::min(step, p.rows - row);
      std::vector<char> out(static_cast<size_t>(rows * row_bytes));
      if (w.kind == Kind::kValues) {
        source_.copy_rows(w.parameter, row, rows, out.data());
      } else {
        TERN_RETURN_IF_ERROR(codes(w.parameter, row, rows, out));
      }
      TERN_RETURN_IF_ERROR(to_.put(out.data(), out.size()));
      source_.release(rows_of(w.parameter, row, rows));
      TERN_RETURN_IF_ERROR(source_.check(rows_of(w.parameter, row, rows)));
    }
    return {};
  }

  // Rows of codes as the file has them; their scales are appended to scales_.
  Status codes(int i, int64_t row, int64_t rows, std::vector<char>& out) {
    const Parameter& p = parameter(i);
    const int64_t group = group_of(i), count = groups(p, group), width = group == 0 ? p.cols : group;
    std::vector<float> scales(static_cast<size_t>(rows * count));
    TERN_RETURN_IF_ERROR(source_.read_codes(rows_of(i, row, rows),
                                            tensor2(out.data(), *source_.code_type(i), rows, p.cols),
                                            tensor2(scales.data(), DType::kF32, rows, count), {}));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t g = 0; g < count; ++g) {
        float& scale = scales[static_cast<size_t>(r * count + g)];
        if (scale != 0.0f) continue;
        // Readers want a scale that is not 0, and its codes stand for zeros.
        scale = 1.0f;
        const int64_t begin = r * p.cols + g * width, end = std::min(begin + width, (r + 1) * p.cols);
        std::fill(out.begin() + begin, out.begin() + end, '\0');
      }
      if (floats(i) && r % kBlock != 0) continue;
      scales_.insert(scales_.end(), scales.begin() + r * count, scales.begin() + (r + 1) * count);
    }
    if (floats(i)) return {};
    std::vector<char> words(static_cast<size_t>(rows * ceil_div<int64_t>(p.cols, 32 / bits_of(i)) * 4));
    pack_words(reinterpret_cast<const uint8_t*>(out.data()), rows, p.cols, bits_of(i), words.data());
    out = std::move(words);
    return {};
  }

  // ---- config.json
  json::Object quantization_config() {
    if (targets_.size() == 1 && targets_.begin()->first.floats)
      return {{"quant_method", "fp8"},
              {"fmt", "e4m3"},
              {"activation_scheme", "dynamic"},
              {"weight_block_size", json::Array{128, 128}},
              {"modules_to_not_convert", ignore_}};
    const bool mixed = std::ranges::any_of(targets_, [](const auto& t) { return t.first.floats; });
    json::Object all;
    for (auto& [key, modules] : targets_) {
      json::Object group = compressed_group(key.bits, key.floats ? 0 : key.group, std::move(modules));
      if (mixed) group["format"] = key.floats ? "float-quantized" : "pack-quantized";
      if (key.floats) {
        json::Object& weights = group["weights"].get_object();
        weights["type"] = "float", weights["strategy"] = "block", weights["block_structure"] = json::Array{128, 128};
      }
      all[fmt::format("group_{}", all.size())] = std::move(group);
    }
    return compressed_config(mixed ? "mixed-precision" : "pack-quantized", std::move(all), ignore_);
  }

  Status config() {
    json::Object config = folder_.config;
    // What is said about the export alone.
    for (const char* key : {"quant_type", "moe_quant_type", "weightonly_group_size", "weight_block_size",
                            "tensor_parallel_degree", "tensor_parallel_rank", "quantization_config"})
      config.erase(key);
    config["architectures"] = json::Array{json::Value(folder_.spec.architecture)};
    config["tie_word_embeddings"] = folder_.presences.output.tied;
    if (!targets_.empty()) config["quantization_config"] = quantization_config();
    return to_.text_file("config.json", json::dump(config) + "\n");
  }

  // How codes are kept.
  struct Format {
    bool floats = false;
    int bits = 8;
    int64_t group = 0;
    auto operator<=>(const Format&) const = default;
  };

  const ConvertOptions& options_;
  const OpenedFolder& folder_;
  const std::vector<Parameter>& parameters_;
  const std::vector<StaticPlace> places_;
  const StaticSource source_;
  FolderWriter& to_;
  std::vector<TensorToWrite> tensors_;
  std::vector<Written> what_;  // one for each of them
  std::map<Format, json::Array> targets_;
  json::Array ignore_;
  std::vector<float> scales_;  // of the codes written last
};

}  // namespace

Status convert_static(const ConvertOptions& options) {
  if (!has_static_weights(options.load.path))
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} holds no static export that would be used: {}", options.load.path,
                    has_weights(options.load.path) ? "there are safetensors" : "there is no model.pdiparams"),
        "model");
  TERN_ASSIGN_OR_RETURN(OpenedFolder folder, OpenedFolder::open(options.load, true));
  DecoderWeights weights;
  TERN_ASSIGN_OR_RETURN(const WeightPlan plan, folder.plan(weights));
  if (const auto count = count_parameters(folder.spec, plan); !count.ok()) return count.error();
  TERN_ASSIGN_OR_RETURN(std::vector<StaticPlace> places,
                        find_static_places(folder.spec, *folder.exported, plan.parameters));
  FolderWriter out(options.write);
  TERN_RETURN_IF_ERROR(out.make());
  TERN_RETURN_IF_ERROR(Converter(options, folder, plan, std::move(places), out).run());
  TERN_RETURN_IF_ERROR(folder.check());
  return out.commit();
}

}  // namespace tern::model
