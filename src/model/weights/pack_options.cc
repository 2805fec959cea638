// Which format each matrix gets.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "model/quantized/module_names.h"
#include "model/weights/pack.h"

namespace tern::model {
namespace {

constexpr float kFloat8Bound = 448.0f;  // of e4m3

// Formats of the parts that `options.quantization` names.
Status choose(const LoadOptions& options, device::DeviceKind kind, PackOptions& pack) {
  const Quantization& q = options.quantization;
  const std::pair<MatrixRole, const std::string*> parts[] = {
      {MatrixRole::kLinear, &q.dense},   {MatrixRole::kSharedExpert, &q.dense},
      {MatrixRole::kExpert, &q.experts}, {MatrixRole::kPictureExpert, &q.picture_experts},
      {MatrixRole::kHead, &q.head},
  };
  for (const auto& [role, name] : parts) {
    if (name->empty()) continue;
    const ops::WeightFormat* format = ops::find_weight_format(kind, *name);
    if (format == nullptr)
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("{}: weights of type {} are not built for this device; leave the flag out, or use "
                                    "--device cpu",
                                    q.method, *name),
                        "quantization");
    pack.formats[static_cast<size_t>(role)] = options.instead ? options.instead(*format) : format;
  }
  return {};
}

// The name of a parameter's module.
std::string_view module_of(const Parameter& p) {
  std::string_view name = p.name;
  if (name.ends_with(".weight")) name.remove_suffix(7);
  return name;
}

bool quantizable(MatrixRole role) { return role != MatrixRole::kPlain && role != MatrixRole::kRouter; }

}  // namespace

Expected<PackOptions> pack_options(const LoadOptions& options, device::DeviceKind kind) {
  if (options.activation != DType::kBF16 && options.activation != DType::kF32)
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("activations in {} are not supported", dtype_name(options.activation)), "dtype");
  const auto find = [&](const std::string& name) { return ops::find_weight_format(kind, name); };
  PackOptions pack;
  pack.activation = options.activation;
  pack.progress = options.progress;
  pack.threads = options.threads;
  pack.pow2_scales = options.quantization.pow2_scales;
  const ops::WeightFormat* plain = find(options.activation == DType::kF32 ? "f32" : "bf16");
  const ops::WeightFormat* router = find("f32");
  if (plain == nullptr || router == nullptr)
    return make_error(ErrorCode::kUnsupported, "this device has no plain weight formats");
  const ops::WeightFormat* linear = options.format != nullptr       ? options.format
                                    : options.weight_format.empty() ? plain
                                                                    : find(options.weight_format);
  if (linear == nullptr)
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("weight format {} is not known on this device", options.weight_format),
                      "quantization");
  pack.formats.fill(plain);
  const auto set = [&](MatrixRole role, const ops::WeightFormat* format) {
    pack.formats[static_cast<size_t>(role)] = format;
  };
  for (const MatrixRole role :
       {MatrixRole::kLinear, MatrixRole::kSharedExpert, MatrixRole::kExpert, MatrixRole::kPictureExpert})
    set(role, linear);
  set(MatrixRole::kRouter, router);
  TERN_RETURN_IF_ERROR(choose(options, kind, pack));
  return pack;
}

ops::ScaleBlocks blocks_made(const ops::WeightFormat& format, const PackOptions& options) {
  ops::ScaleBlocks blocks = format.scale_blocks();
  blocks.powers_of_two = options.pow2_scales && blocks.bound == kFloat8Bound;
  return blocks;
}

Status leave_out(const std::vector<std::string>& ignore, WeightPlan& plan) {
  std::vector<bool> left(plan.parameters.size(), false);
  for (const std::string& entry : ignore) {
    ModuleNames names;
    if (Status s = names.add(entry); !s.ok())
      return make_error(ErrorCode::kInvalidArgument, "ignore: " + s.error().message, "quantization");
    bool any = false;
    for (size_t i = 0; i < plan.parameters.size(); ++i)
      if (names.contains(module_of(plan.parameters[i]))) left[i] = any = true;
    if (!any)
      return make_error(ErrorCode::kInvalidArgument, fmt::format("ignore: {} names no weight of this model", entry),
                        "quantization");
  }
  for (MatrixPlan& m : plan.matrices) {
    const auto is_left = [&](const Piece& p) { return left[static_cast<size_t>(p.parameter)]; };
    const auto count = std::count_if(m.pieces.begin(), m.pieces.end(), is_left);
    if (count == 0 || !quantizable(m.role)) continue;
    if (static_cast<size_t>(count) != m.pieces.size()) {
      std::vector<std::string_view> names;
      for (const Piece& p : m.pieces) names.push_back(module_of(plan.parameters[static_cast<size_t>(p.parameter)]));
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("ignore: {} are one product and can only be left out together", fmt::join(names, ", ")),
          "quantization");
    }
    m.role = MatrixRole::kPlain;
  }
  return {};
}

void leave_out(const StoredCodes& codes, WeightPlan& plan) {
  for (MatrixPlan& m : plan.matrices) {
    const auto coded = [&](const Piece& p) {
      return codes.scheme_of(module_of(plan.parameters[static_cast<size_t>(p.parameter)])) != nullptr;
    };
    if (quantizable(m.role) && m.role != MatrixRole::kHead && !std::ranges::all_of(m.pieces, coded))
      m.role = MatrixRole::kPlain;
  }
}

Status take_stored_formats(const WeightSource& source, const LoadOptions& options, device::DeviceKind kind,
                           WeightPlan& plan) {
  for (MatrixPlan& m : plan.matrices) {
    if (!quantizable(m.role)) continue;
    const std::string name = source.code_format(m.pieces.front());
    for (const Piece& p : m.pieces)
      if (source.code_format(p) != name)
        return make_error(ErrorCode::kUnsupported,
                          fmt::format("{} and {} are one product, but the files hold them in different formats",
                                      plan.parameters[static_cast<size_t>(m.pieces.front().parameter)].name,
                                      plan.parameters[static_cast<size_t>(p.parameter)].name));
    if (name.empty()) continue;
    const ops::WeightFormat* format = ops::find_weight_format(kind, name);
    if (format == nullptr)
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("the files hold weights of type {}, which are not built for this device; use "
                                    "--device cpu, or an unquantized checkpoint",
                                    name));
    m.format = options.instead ? options.instead(*format) : format;
  }
  return {};
}

std::string formats_line(const WeightPlan& plan, const PackOptions& options) {
  constexpr const char* kNames[kMatrixRoles] = {"projections",  "shared experts", "experts", "picture experts",
                                                "output layer", "left alone",     "routers"};
  std::map<std::pair<size_t, std::string>, size_t> counts;
  for (const MatrixPlan& m : plan.matrices) {
    const auto role = static_cast<size_t>(m.role);
    ++counts[{role, m.format != nullptr ? m.format->name() : options.formats[role]->name()}];
  }
  std::vector<std::string> parts;
  for (const auto& [what, count] : counts)
    parts.push_back(fmt::format("{} {} in {}", count, kNames[what.first], what.second));
  return fmt::format("{}; embeddings, norms and activations in {}", fmt::join(parts, ", "),
                     dtype_name(options.activation));
}

}  // namespace tern::model
