#include "model/quantization.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace tern::model {
namespace {

constexpr std::string_view kWorks = "wint8, wint4, block_wise_fp8, weight_only, mix_quant and kvcache work";
constexpr std::array<std::string_view, 15> kKeys = {
    "quantization",        "dense_quant_type",  "moe_quant_type", "image_moe_quant_type",
    "kv_cache_quant_type", "group_size",        "ignore",         "algo",
    "lm_head_quant_type",  "weight_block_size", "is_quantized",   "is_moe_quantized",
    "is_channel_wise",     "has_zero_point",    "scale_fmt"};

Error wrong(std::string message) { return make_error(ErrorCode::kInvalidArgument, std::move(message)); }

// Reads the keys of an object one after the other and keeps the first mistake.
class Reader {
 public:
  explicit Reader(const json::Object& object) : object_(object) {}

  std::string text(std::string_view key) {
    auto value = json::get_string(object_, key);
    if (!value.ok()) return fail(value.error()), std::string();
    return value->value_or("");
  }
  int64_t integer(std::string_view key) {
    auto value = json::get_int(object_, key);
    if (!value.ok()) return fail(value.error()), 0;
    return value->value_or(0);
  }
  bool boolean(std::string_view key) {
    auto value = json::get_bool(object_, key);
    if (!value.ok()) return fail(value.error()), false;
    return value->value_or(false);
  }
  const json::Value* find(std::string_view key) const { return json::find(object_, key); }
  void fail(Error error) {
    if (status_.ok()) status_ = std::move(error);
  }
  Status& status() { return status_; }

 private:
  const json::Object& object_;
  Status status_;
};

// A type of weights as the name of a format; `group`: of int4, 0: a scale per row.
Expected<std::string> format_name(const std::string& type, int64_t group) {
  if (type.empty() || type == "none" || type == "None") return std::string();
  if (type == "wint8" || type == "block_wise_fp8") return type;
  if (type == "wint4") return group == 0 ? type : fmt::format("wint4-{}", group);
  return wrong(fmt::format("weights of type {} are not built; wint8, wint4 and block_wise_fp8 are", type));
}

std::string algo_type(Reader& r) {
  const std::string algo = r.text("algo");
  if (algo.empty() || algo == "weight_only_int8") return "wint8";
  if (algo == "weight_only_int4") return "wint4";
  r.fail(wrong(fmt::format("algo {} is neither weight_only_int8 nor weight_only_int4", algo)));
  return "";
}

void read_ignore(Reader& r, Quantization& q) {
  const json::Value* list = r.find("ignore");
  if (list == nullptr) return;
  const json::Array* names = list->if_array();
  bool good = names != nullptr;
  for (size_t i = 0; good && i < names->size(); ++i) {
    good = (*names)[i].is_string();
    if (good) q.ignore.emplace_back((*names)[i].get_string());
  }
  if (!good) r.fail(wrong("ignore must be a list of names"));
}

void read_scale_format(Reader& r, Quantization& q) {
  const std::string format = r.text("scale_fmt");
  if (format.empty()) return;
  if (format != "ue8m0") r.fail(wrong(fmt::format("scale_fmt {} is not built; ue8m0 is", format)));
  q.pow2_scales = true;
  if (q.dense != "block_wise_fp8" && q.experts != "block_wise_fp8" && q.picture_experts != "block_wise_fp8")
    r.fail(wrong("scale_fmt goes with block_wise_fp8 only"));
}

// What would change the outcome and is not there.
void refuse(Reader& r) {
  if (r.boolean("has_zero_point")) r.fail(wrong("has_zero_point: a cache with zero points is not built"));
  for (const char* key : {"is_quantized", "is_moe_quantized"})
    if (r.boolean(key))
      r.fail(wrong(fmt::format(
          "{} is about the files of a checkpoint; it belongs into quantization_config of config.json", key)));
  if (const json::Value* blocks = r.find("weight_block_size"); blocks != nullptr && json::dump(*blocks) != "[128,128]")
    r.fail(wrong("weight_block_size must be [128, 128]"));
}

// Whether scales are by channel follows from their number (fastdeploy.md 7.6); is_channel_wise says nothing more.
void read_cache(Reader& r, Quantization& q) {
  (void)r.boolean("is_channel_wise");
  q.cache = r.text("kv_cache_quant_type");
  if (q.cache == "none" || q.cache == "None") q.cache.clear();
  if (!q.cache.empty() && q.cache != "int8" && q.cache != "float8_e4m3fn" && q.cache != "block_wise_fp8")
    r.fail(
        wrong(fmt::format("kv_cache_quant_type {} is not built; int8, float8_e4m3fn and block_wise_fp8 are", q.cache)));
  if (q.cache.empty() && q.method == "kvcache") r.fail(wrong("kvcache needs kv_cache_quant_type"));
}

bool is_ernie(const std::string& architecture) { return architecture.starts_with("Ernie4_5"); }

// The types of the four parts, before they are names of formats.
void read_types(Reader& r, const std::string& architecture, Quantization& q) {
  std::string type = q.method;
  if (type == "weight_only") type = algo_type(r);
  if (type == "kvcache") {  // weights stay as they are
    for (const char* key :
         {"dense_quant_type", "moe_quant_type", "image_moe_quant_type", "lm_head_quant_type", "ignore"})
      if (r.find(key) != nullptr) r.fail(wrong(fmt::format("{} does not go with kvcache", key)));
    return;
  }
  if (type == "mix_quant") {
    q.dense = r.text("dense_quant_type"), q.experts = r.text("moe_quant_type");
    q.picture_experts = r.text("image_moe_quant_type");
    if (q.picture_experts.empty()) q.picture_experts = q.experts;
    if (q.dense.empty() && q.experts.empty() && q.picture_experts.empty() && q.cache.empty())
      r.fail(wrong("mix_quant needs dense_quant_type, moe_quant_type, image_moe_quant_type or kv_cache_quant_type"));
  } else if (type == "wint8" || type == "wint4" || type == "block_wise_fp8") {
    q.dense = q.experts = q.picture_experts = type;
    if (type == "wint4" && is_ernie(architecture)) q.dense = "wint8";
    for (const char* key : {"dense_quant_type", "moe_quant_type", "image_moe_quant_type"})
      if (r.find(key) != nullptr) r.fail(wrong(fmt::format("{} goes with mix_quant only", key)));
  } else {
    r.fail(wrong(fmt::format("\"{}\" is not built; {}", q.method, kWorks)));
  }
  q.head = r.text("lm_head_quant_type");
}

Expected<Quantization> read_object(const json::Object& object, const std::string& architecture) {
  for (const auto& member : object)
    if (std::find(kKeys.begin(), kKeys.end(), member.key()) == kKeys.end())
      return wrong(
          fmt::format("has no key \"{}\"; its keys are {}", std::string(member.key()), fmt::join(kKeys, ", ")));
  Reader r(object);
  Quantization q;
  q.method = r.text("quantization");
  TERN_RETURN_IF_ERROR(r.status());
  if (r.find("quantization") == nullptr) return wrong("needs the key \"quantization\"");
  const bool none = q.method.empty() || q.method == "none" || q.method == "None";
  if (none && r.find("kv_cache_quant_type") == nullptr) return Quantization{};
  if (none) q.method = "kvcache";
  refuse(r);
  read_cache(r, q);
  read_types(r, architecture, q);
  read_ignore(r, q);
  int64_t group = r.integer("group_size");
  if (group == -1) group = 0;  // whole rows
  if (group != 0 && group != 32 && group != 64 && group != 128)
    r.fail(wrong(fmt::format("group_size {} is none of 32, 64 and 128", group)));
  const bool groups = q.dense == "wint4" || q.experts == "wint4" || q.picture_experts == "wint4";
  if (group != 0 && !groups) r.fail(wrong("group_size goes with wint4 only"));
  if (!q.head.empty() && q.head != "wint8")
    r.fail(wrong(fmt::format("lm_head_quant_type {} is not built; wint8 is", q.head)));
  read_scale_format(r, q);
  TERN_RETURN_IF_ERROR(std::move(r.status()));
  for (std::string* type : {&q.dense, &q.experts, &q.picture_experts}) {
    TERN_ASSIGN_OR_RETURN(*type, format_name(*type, group));
  }
  return q;
}

}  // namespace

Expected<Quantization> read_quantization(const json::Value& asked, const std::string& architecture) {
  if (asked.is_null()) return Quantization{};
  if (const json::Object* object = asked.if_object()) return read_object(*object, architecture);
  if (!asked.is_string()) return wrong("is neither a name nor an object");
  return read_object(json::Object{{"quantization", asked.get_string()}}, architecture);
}

}  // namespace tern::model
