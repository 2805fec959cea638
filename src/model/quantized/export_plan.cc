#include "model/quantized/export_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "base/checked.h"
#include "model/quantized/compressed.h"
#include "model/weights/output_layer.h"

namespace tern::model {
namespace {

using Kind = ExportTensor::Kind;

bool is_float(const ops::WeightFormat& f) { return std::string_view(f.name()) == "block_wise_fp8"; }
int bits_of(const ops::WeightFormat& f) { return f.scale_blocks().bound == 7.0f ? 4 : 8; }
std::string module_name(const std::string& weight) { return weight.substr(0, weight.size() - 7); }

class ExportPlanner {
 public:
  ExportPlanner(const OpenedFolder& folder, const WeightPlan& plan, const std::vector<Stored>& stored,
                const PackOptions& pack)
      : folder_(folder), plan_(plan), stored_(stored), root_(find_root(folder.checkpoint)) {
    if (root_ == "ernie.") root_ = "model.";  // Paddle's name, which stands for matrices stored the other way round
    formats_.resize(plan.parameters.size());
    for (const MatrixPlan& m : plan.matrices) {
      const ops::WeightFormat* format = pack.formats[static_cast<size_t>(m.role)];
      if (format->scale_blocks().rows == 0) continue;
      for (const Piece& p : m.pieces) formats_[static_cast<size_t>(p.parameter)] = format;
    }
  }

  Expected<ExportPlan> run() {
    std::set<const StoredTensor*> taken;
    for (size_t i = 0; i < plan_.parameters.size(); ++i) {
      if (stored_[i].tensor == nullptr) continue;
      taken.insert(stored_[i].tensor);
      TERN_RETURN_IF_ERROR(parameter(static_cast<int>(i)));
    }
    for (const auto& [name, tensor] : folder_.checkpoint.tensors()) {
      if (taken.contains(&tensor)) continue;
      if (tensor.shape.size() > 1 && name.ends_with(".weight")) ignore_.push_back(json::Value(module_name(name)));
      out_.tensors.push_back({{name, tensor.dtype, tensor.shape}, Kind::kCopy, -1, nullptr, &tensor});
    }
    TERN_RETURN_IF_ERROR(config());
    return std::move(out_);
  }

 private:
  std::string spelled(const std::string& name) const {
    return name.starts_with("model.") ? root_ + name.substr(6) : name;
  }

  Status parameter(int index) {
    const Parameter& p = plan_.parameters[static_cast<size_t>(index)];
    const std::string name = spelled(p.name);
    const ops::WeightFormat* format = formats_[static_cast<size_t>(index)];
    if (format != nullptr) return codes(index, p, name, *format);
    const bool is_bf16 = stored_[static_cast<size_t>(index)].tensor->dtype == FileType::kBF16;
    const auto shape = p.is_vector() ? std::vector<int64_t>{p.rows} : std::vector<int64_t>{p.rows, p.cols};
    out_.tensors.push_back({{name, is_bf16 ? FileType::kBF16 : FileType::kF32, shape}, Kind::kValues, index});
    if (p.kind == ParameterKind::kLinear || p.kind == ParameterKind::kRouter)
      ignore_.push_back(json::Value(module_name(name)));
    return {};
  }

  Status codes(int index, const Parameter& p, const std::string& name, const ops::WeightFormat& format) {
    if (p.kind == ParameterKind::kTable)
      return make_error(ErrorCode::kUnsupported,
                        "the output layer is the embedding, which files cannot keep both as values and as codes; leave "
                        "lm_head_quant_type out",
                        "quantization");
    const ops::ScaleBlocks blocks = format.scale_blocks();
    const std::string module = module_name(name);
    const bool floats = is_float(format);
    if (!floats && blocks.cols > 0 && p.cols % blocks.cols != 0)
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("groups of {} do not divide the {} columns of {}; choose another group_size",
                                    blocks.cols, p.cols, name),
                        "quantization");
    const int64_t groups = blocks.cols == 0 ? 1 : ceil_div(p.cols, blocks.cols);
    const auto add = [&](const char* leaf, FileType type, std::vector<int64_t> shape, Kind kind) {
      out_.tensors.push_back({{module + leaf, type, std::move(shape)}, kind, index, &format, nullptr});
    };
    if (floats) {
      add(".weight", FileType::kF8E4M3, {p.rows, p.cols}, Kind::kCodes);
      add(".weight_scale_inv", FileType::kF32, {ceil_div(p.rows, blocks.rows), groups}, Kind::kScales);
    } else {
      add(".weight_packed", FileType::kI32, {p.rows, ceil_div<int64_t>(p.cols, 32 / bits_of(format))}, Kind::kCodes);
      add(".weight_scale", FileType::kF32, {p.rows, groups}, Kind::kScales);
      add(".weight_shape", FileType::kI64, {2}, Kind::kShape);
    }
    targets_[&format].push_back(json::Value(module));
    return {};
  }

  Status config() {
    if (targets_.empty())
      return make_error(ErrorCode::kInvalidArgument, "nothing of this model would be quantized", "quantization");
    const bool floats = is_float(*targets_.begin()->first);
    for (const auto& [format, modules] : targets_)
      if (is_float(*format) != floats)
        return make_error(
            ErrorCode::kUnsupported,
            "no format of files that is written here holds both whole numbers and e4m3; choose one of them",
            "quantization");
    if (floats) {
      out_.quantization_config = json::Object{{"quant_method", "fp8"},
                                              {"fmt", "e4m3"},
                                              {"activation_scheme", "dynamic"},
                                              {"weight_block_size", json::Array{128, 128}},
                                              {"modules_to_not_convert", ignore_}};
      if (folder_.options.quantization.pow2_scales) out_.quantization_config.get_object()["scale_fmt"] = "ue8m0";
      return {};
    }
    // The format of most modules is that of whatever has none of its own; groups that name modules come before it.
    const auto most = std::ranges::max_element(targets_, {}, [](const auto& t) { return t.second.size(); });
    json::Object groups;
    const auto add = [&](const ops::WeightFormat& f, json::Array targets) {
      groups[fmt::format("group_{}", groups.size())] =
          compressed_group(bits_of(f), f.scale_blocks().cols, std::move(targets));
    };
    for (auto& [format, modules] : targets_)
      if (format != most->first) add(*format, modules);
    add(*most->first, {"Linear"});
    out_.quantization_config = compressed_config("pack-quantized", std::move(groups), std::move(ignore_));
    return {};
  }

  const OpenedFolder& folder_;
  const WeightPlan& plan_;
  const std::vector<Stored>& stored_;
  std::string root_;
  std::vector<const ops::WeightFormat*> formats_;  // by parameter; null: values
  std::map<const ops::WeightFormat*, json::Array> targets_;
  json::Array ignore_;
  ExportPlan out_;
};

}  // namespace

Expected<ExportPlan> plan_export(const OpenedFolder& folder, const WeightPlan& plan, const std::vector<Stored>& stored,
                                 const PackOptions& pack) {
  return ExportPlanner(folder, plan, stored, pack).run();
}

}  // namespace tern::model
