#include "model/quantized/scheme.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tern::model {
namespace {

constexpr std::string_view kWorks =
    "what works: fp8 (blocks of 128 x 128, per row or per tensor), compressed-tensors (pack-, int- and "
    "float-quantized), "
    "gptq and awq of 4 bits, gptq of 8 bits, Paddle's wint8 with is_permuted false, and unquantized checkpoints with "
    "--quantization";

Error refused(std::string what) { return make_error(ErrorCode::kUnsupported, fmt::format("{}; {}", what, kWorks)); }
Error bad(std::string what) { return make_error(ErrorCode::kCorrupt, std::move(what)); }

// A column count of scales as configs write it: -1 and null for whole rows.
Expected<int64_t> group_of(const json::Object& o, std::string_view key, std::string_view other = "") {
  TERN_ASSIGN_OR_RETURN(std::optional<int64_t> group, json::get_int(o, key));
  if (!group && !other.empty()) {
    TERN_ASSIGN_OR_RETURN(group, json::get_int(o, other));
  }
  const int64_t g = group.value_or(-1);
  if (g == -1) return int64_t{0};
  if (g != 32 && g != 64 && g != 128)
    return refused(fmt::format("group_size {} is not read; 32, 64, 128 and -1 are", g));
  return g;
}

Status add_list(const json::Value& list, std::string_view key, ModuleNames& names) {
  if (!list.is_array()) return bad(fmt::format("{} must be a list of names", key));
  for (const json::Value& entry : list.get_array()) {
    if (!entry.is_string()) return bad(fmt::format("{} must be a list of names", key));
    TERN_RETURN_IF_ERROR(names.add(std::string(entry.get_string())));
  }
  return {};
}

Status add_names(const json::Object& o, std::string_view key, ModuleNames& names) {
  const json::Value* list = json::find(o, key);
  return list == nullptr ? Status() : add_list(*list, key, names);
}

// Modules that a config of a single group leaves out: `key` is a list of parts of names, or null. Where there is one,
// whatever it does not name has codes.
Status leave_parts(const json::Object& o, std::string_view key, StoredCodes& codes) {
  if (const json::Value* list = json::find(o, key); list == nullptr || list->is_null()) return {};
  codes.ignore.allow_parts();
  TERN_RETURN_IF_ERROR(add_names(o, key, codes.ignore));
  codes.complete = codes.complete || !codes.ignore.empty();
  return {};
}

std::string described(std::string_view method, const CodeScheme& s) {
  const std::string place = s.rows == 0    ? "one scale"
                            : s.rows > 1   ? fmt::format("blocks of {} x {}", s.rows, s.group)
                            : s.group == 0 ? "a scale per row"
                                           : fmt::format("groups of {}", s.group);
  return fmt::format("{}, {} bits, {}{}", method, s.bits, place, s.zeros ? ", zero points" : "");
}

StoredCodes all_modules(std::string_view method, const CodeScheme& scheme) {
  StoredCodes codes;
  codes.method = described(method, scheme);
  (void)codes.groups.emplace_back(StoredCodes::Group{{}, scheme}).targets.add("Linear");
  return codes;
}

// "dynamic": patterns after "-:" are of modules that are left alone. "modules_in_block_to_quantize": lists of the
// others.
Status read_gptq_modules(const json::Object& o, StoredCodes& codes) {
  if (const json::Value* dynamic = json::find(o, "dynamic"); dynamic != nullptr && !dynamic->is_null()) {
    if (!dynamic->is_object()) return bad("dynamic must be an object");
    for (const auto& member : dynamic->get_object()) {
      const std::string_view key = member.key();
      if (!key.starts_with("-:"))
        return refused(fmt::format("gptq with settings of their own for some modules (dynamic: {}) is not read", key));
      TERN_RETURN_IF_ERROR(codes.ignore.add(fmt::format("re:{}", key.substr(2))));
    }
    codes.complete = !codes.ignore.empty();
  }
  const json::Value* inside = json::find(o, "modules_in_block_to_quantize");
  if (inside == nullptr || inside->is_null()) return {};
  if (!inside->is_array()) return bad("modules_in_block_to_quantize must be a list of lists of names");
  ModuleNames targets;
  targets.allow_parts();
  for (const json::Value& entry : inside->get_array())
    TERN_RETURN_IF_ERROR(add_list(entry, "modules_in_block_to_quantize", targets));
  if (!targets.empty()) codes.groups.front().targets = std::move(targets), codes.complete = true;
  return {};
}

Expected<FileQuantization> read_gptq(const json::Object& o) {
  CodeScheme s{.layout = CodeLayout::kGptq};
  TERN_ASSIGN_OR_RETURN(const auto bits, json::get_int(o, "bits"));
  if (bits != 4 && bits != 8) return refused(fmt::format("gptq of {} bits is not read", bits.value_or(0)));
  s.bits = static_cast<int>(*bits);
  TERN_ASSIGN_OR_RETURN(s.group, group_of(o, "group_size"));
  TERN_ASSIGN_OR_RETURN(const auto kept, json::get_string(o, "checkpoint_format"));
  const std::string version = kept.value_or("gptq");
  if (version != "gptq" && version != "gptq_v2")
    return refused(fmt::format("gptq's checkpoint_format {} is not read", version));
  s.zero_shift = version == "gptq" ? 1 : 0;
  TERN_ASSIGN_OR_RETURN(const auto symmetric, json::get_bool(o, "sym"));
  s.neutral = symmetric.value_or(true);
  s.zeros = !s.neutral;
  FileQuantization f;
  f.codes = all_modules(version, s);
  TERN_RETURN_IF_ERROR(read_gptq_modules(o, *f.codes));
  return f;
}

Expected<FileQuantization> read_awq(const json::Object& o) {
  CodeScheme s{.layout = CodeLayout::kAwq, .bits = 4, .zeros = true};
  TERN_ASSIGN_OR_RETURN(auto bits, json::get_int(o, "bits"));
  if (!bits) {
    TERN_ASSIGN_OR_RETURN(bits, json::get_int(o, "w_bit"));
  }
  if (bits != 4) return refused(fmt::format("awq of {} bits is not read", bits.value_or(0)));
  TERN_ASSIGN_OR_RETURN(s.group, group_of(o, "group_size", "q_group_size"));
  TERN_ASSIGN_OR_RETURN(const auto zeros, json::get_bool(o, "zero_point"));
  if (!zeros.value_or(true)) return refused("awq without zero points is not read");
  TERN_ASSIGN_OR_RETURN(const auto version, json::get_string(o, "version"));
  if (version.value_or("gemm") != "gemm" && *version != "GEMM")
    return refused(fmt::format("awq's version {} is not read", *version));
  FileQuantization f;
  f.codes = all_modules("awq", s);
  TERN_RETURN_IF_ERROR(leave_parts(o, "modules_to_not_convert", *f.codes));
  return f;
}

Expected<FileQuantization> read_fp8(const json::Object& o) {
  CodeScheme s{.layout = CodeLayout::kFloat8, .rows = 0};
  if (const json::Value* blocks = json::find(o, "weight_block_size"); blocks != nullptr) {
    if (json::dump(*blocks) != "[128,128]")
      return refused(fmt::format("fp8 with weight_block_size {} is not read", json::dump(*blocks)));
    s.rows = s.group = 128;
  }
  for (const char* key : {"fmt", "weight_fmt"}) {
    TERN_ASSIGN_OR_RETURN(const auto format, json::get_string(o, key));
    if (format && *format != "e4m3") return refused(fmt::format("fp8 of the type {} is not read", *format));
  }
  TERN_ASSIGN_OR_RETURN(const auto scales, json::get_string(o, "scale_fmt"));
  if (scales && *scales != "ue8m0") return refused(fmt::format("fp8 with scale_fmt {} is not read", *scales));
  s.pow2 = scales.has_value();
  FileQuantization f;
  f.codes = all_modules("fp8", s);
  for (const char* key : {"modules_to_not_convert", "ignored_layers"})
    TERN_RETURN_IF_ERROR(leave_parts(o, key, *f.codes));
  f.notes.push_back("the checkpoint (fp8) wants activations in 8 bits; they stay in bfloat16 here");
  return f;
}

// `weights` of a group of compressed-tensors.
Expected<CodeScheme> read_weights(const json::Object& w, const std::string& format) {
  CodeScheme s;
  TERN_ASSIGN_OR_RETURN(const auto bits, json::get_int(w, "num_bits"));
  TERN_ASSIGN_OR_RETURN(const auto type, json::get_string(w, "type"));
  TERN_ASSIGN_OR_RETURN(const auto strategy, json::get_string(w, "strategy"));
  TERN_ASSIGN_OR_RETURN(const auto symmetric, json::get_bool(w, "symmetric"));
  const std::string kind = type.value_or("int"), place = strategy.value_or("tensor");
  s.bits = static_cast<int>(std::clamp<int64_t>(bits.value_or(8), 0, 64));
  s.zeros = !symmetric.value_or(true);
  if (kind == "float" && s.bits == 8 && !s.zeros && (format == "float-quantized" || format == "naive-quantized")) {
    s.layout = CodeLayout::kFloat8;
  } else if (kind == "int" && (s.bits == 4 || s.bits == 8) && format == "pack-quantized") {
    s.layout = CodeLayout::kPacked;
  } else if (kind == "int" && (s.bits == 4 || s.bits == 8) &&
             (format == "int-quantized" || format == "naive-quantized")) {
    s.layout = CodeLayout::kInt8;
  } else {
    return refused(
        fmt::format("compressed-tensors {} of {} bits of type {} is not read", format, bits.value_or(0), kind));
  }
  if (place == "group") {
    TERN_ASSIGN_OR_RETURN(s.group, group_of(w, "group_size"));
    if (s.layout == CodeLayout::kFloat8) return refused("groups of float codes are not read");
  } else if (place == "tensor") {
    s.rows = 0;
    if (s.zeros && s.layout == CodeLayout::kPacked) return refused("packed codes with one zero point are not read");
  } else if (place == "block") {
    const json::Value* blocks = json::find(w, "block_structure");
    if (s.layout != CodeLayout::kFloat8 || blocks == nullptr ||
        (json::dump(*blocks) != "[128,128]" && json::dump(*blocks) != "\"128x128\""))
      return refused("compressed-tensors with blocks other than 128 x 128 of float codes is not read");
    s.rows = s.group = 128;
  } else if (place != "channel") {
    return refused(fmt::format("compressed-tensors with the strategy {} is not read", place));
  }
  return s;
}

// What stands beside the groups and would change the outcome.
Status check_rest(const json::Object& o, FileQuantization& f) {
  if (const json::Value* sparse = json::find(o, "sparsity_config"); sparse != nullptr && sparse->is_object()) {
    TERN_ASSIGN_OR_RETURN(const auto format, json::get_string(sparse->get_object(), "format"));
    if (format && *format != "dense") return refused(fmt::format("sparse weights ({}) are not read", *format));
  }
  if (const json::Value* turned = json::find(o, "transform_config");
      turned != nullptr && !(turned->is_object() && turned->get_object().empty()))
    return refused("weights that are multiplied by other matrices (transform_config) are not read");
  if (json::find(o, "kv_cache_scheme") != nullptr)
    f.notes.push_back("the checkpoint wants a quantized cache (kv_cache_scheme); it stays in bfloat16 here");
  TERN_ASSIGN_OR_RETURN(const auto status, json::get_string(o, "quantization_status"));
  if (status && *status != "compressed")
    return refused(fmt::format("a checkpoint whose quantization_status is {} is not read", *status));
  return {};
}

Expected<FileQuantization> read_compressed(const json::Object& o) {
  FileQuantization f;
  StoredCodes& codes = f.codes.emplace();
  codes.complete = true;
  TERN_RETURN_IF_ERROR(check_rest(o, f));
  TERN_ASSIGN_OR_RETURN(const auto whole, json::get_string(o, "format"));
  const json::Value* groups = json::find(o, "config_groups");
  if (groups == nullptr || !groups->is_object() || groups->get_object().empty())
    return bad("config_groups must be an object of groups");
  bool activations = false;
  for (const auto& member : groups->get_object()) {
    const json::Object* group = member.value().if_object();
    const json::Value* weights = group == nullptr ? nullptr : json::find(*group, "weights");
    if (weights == nullptr || !weights->is_object())
      return refused(
          fmt::format("compressed-tensors without weights in {} is not read", std::string_view(member.key())));
    TERN_ASSIGN_OR_RETURN(const auto own, json::get_string(*group, "format"));
    StoredCodes::Group& g = codes.groups.emplace_back();
    TERN_ASSIGN_OR_RETURN(g.scheme, read_weights(weights->get_object(), own.value_or(whole.value_or("none"))));
    TERN_RETURN_IF_ERROR(add_names(*group, "targets", g.targets));
    if (g.targets.empty()) return bad(fmt::format("{} has no targets", std::string_view(member.key())));
    activations = activations || json::find(*group, "input_activations") != nullptr;
    codes.method += (codes.method.empty() ? "" : " and ") + described("compressed-tensors", g.scheme);
  }
  TERN_RETURN_IF_ERROR(add_names(o, "ignore", codes.ignore));
  if (activations)
    f.notes.push_back("the checkpoint (compressed-tensors) wants activations in 8 bits; they stay in bfloat16 here");
  return f;
}

// FastDeploy's own dictionary: a method's name, and whether the files hold codes.
Expected<FileQuantization> read_paddle(const json::Object& o, const std::string& architecture) {
  FileQuantization f;
  bool stored = false;
  for (const char* key : {"is_quantized", "is_moe_quantized"}) {
    TERN_ASSIGN_OR_RETURN(const auto is, json::get_bool(o, key));
    stored = stored || is.value_or(false);
  }
  TERN_ASSIGN_OR_RETURN(const auto method, json::get_string(o, "quantization"));
  if (!stored) {
    TERN_ASSIGN_OR_RETURN(f.made, read_quantization(o, architecture));
    return f;
  }
  constexpr const char* kInstead = "take the bf16 checkpoint (-Paddle or -PT) with --quantization wint8 or wint4";
  TERN_ASSIGN_OR_RETURN(const auto permuted, json::get_bool(o, "is_permuted"));
  if (permuted.value_or(true))
    return refused(
        fmt::format("a Paddle checkpoint whose weights are permuted for one kernel is not read: {}", kInstead));
  if (method.value_or("") != "wint8")
    return refused(fmt::format("a Paddle checkpoint with stored codes of the type {} is not read: {}",
                               method.value_or("?"), kInstead));
  f.codes = all_modules("Paddle wint8", {.layout = CodeLayout::kPaddle});
  TERN_RETURN_IF_ERROR(add_names(o, "ignore", f.codes->ignore));
  return f;
}

Expected<FileQuantization> read_dictionary(const json::Object& o, const std::string& architecture) {
  TERN_ASSIGN_OR_RETURN(const auto method, json::get_string(o, "quant_method"));
  if (!method && json::find(o, "quantization") != nullptr) return read_paddle(o, architecture);
  const std::string name = method.value_or("");
  if (name == "gptq") return read_gptq(o);
  if (name == "awq") return read_awq(o);
  if (name == "fp8") return read_fp8(o);
  if (name == "compressed-tensors") return read_compressed(o);
  if (name.empty()) return bad("has neither quant_method nor quantization");
  const char* instead = name == "bitsandbytes" ? ": take the unquantized checkpoint with --quantization wint4 or wint8"
                        : name == "gguf"       ? ": take the safetensors files of the model"
                                               : "";
  return refused(fmt::format("the method {} is not read{}", name, instead));
}

Error in_config(Error error) {
  error.message = "quantization_config: " + error.message;
  return error;
}

}  // namespace

std::string CodeScheme::format() const {
  if (layout == CodeLayout::kFloat8) return rows > 1 ? "block_wise_fp8" : "channel_wise_fp8";
  return fmt::format("wint{}{}{}", bits, group == 0 ? "" : fmt::format("-{}", group), zeros ? "-zp" : "");
}

const CodeScheme* StoredCodes::scheme_of(std::string_view module) const {
  if (ignore.contains(module)) return nullptr;
  const auto found = std::ranges::find_if(groups, [&](const Group& g) { return g.targets.contains(module); });
  return found == groups.end() ? nullptr : &found->scheme;
}

Expected<FileQuantization> read_quantization_config(const json::Value& config, const std::string& architecture) {
  if (config.is_null()) return FileQuantization{};
  const json::Object* o = config.if_object();
  if (o == nullptr) return in_config(bad("must be an object"));
  auto read = read_dictionary(*o, architecture);
  if (!read.ok()) return in_config(std::move(read).error());
  return read;
}

Quantization made_instead(const StoredCodes& codes) {
  CodeScheme s = codes.groups.front().scheme;
  s.zeros = false;
  Quantization q;
  q.method = codes.method;
  q.dense = q.experts = q.picture_experts = s.format();
  q.pow2_scales = s.pow2;
  return q;
}

}  // namespace tern::model
