#include "model/quantized/cache_scales.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>

#include "base/bf16.h"
#include "json/json.h"

namespace tern::model {
namespace {

constexpr const char* kFile = "kv_cache_scale.json";
constexpr const char* kLeaf = "activation_scale";
constexpr float kFileBound = 448.0f;
constexpr json::Limits kLimits{.max_bytes = 64u << 20, .max_depth = 4, .max_nodes = 4u << 20};

Error bad(std::string message) { return make_error(ErrorCode::kCorrupt, std::move(message)); }

struct Place {
  int layer = 0;
  bool key = false;
};

// "....layers.N.self_attn.cachek_matmul.activation_scale"
std::optional<Place> place_of(std::string_view name) {
  const bool key = name.find(kKeyScaleName) != std::string_view::npos;
  const std::string tail = fmt::format(".self_attn{}{}", key ? kKeyScaleName : kValueScaleName, kLeaf);
  if (!name.ends_with(tail)) return std::nullopt;
  name.remove_suffix(tail.size());
  const size_t dot = name.rfind('.');
  const std::string_view before = dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
  if (before != "layers" && !before.ends_with(".layers")) return std::nullopt;
  Place p{-1, key};
  const char* end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + dot + 1, end, p.layer);
  if (read.ec != std::errc() || read.ptr != end || p.layer < 0) return std::nullopt;
  return p;
}

// Scales by layer until all of them are there.
class Collector {
 public:
  // What is handed in is multiplied with `factor`.
  Collector(const CacheScaleShape& shape, float factor, std::string source) : shape_(shape), factor_(factor) {
    out_.source = std::move(source);
  }

  Status add(std::string_view name, const std::vector<double>& values) {
    const std::optional<Place> place = place_of(name);
    if (!place || place->layer >= shape_.layers + shape_.spare_layers)
      return bad(fmt::format("{}: {} is no scale of a layer of this model", out_.source, name));
    if (place->layer >= shape_.layers) return {};
    const auto n = static_cast<int64_t>(values.size()), heads = shape_.kv_heads, all = heads * shape_.head_dim;
    if (n != heads && n != all)
      return bad(fmt::format("{}: {} has {} values, not {} (one per head) or {} (per channel)", out_.source, name, n,
                             heads, all));
    for (const double v : values)
      if (!(v > 0.0) || !std::isfinite(static_cast<float>(v)) || static_cast<float>(v) * factor_ == 0.0f)
        return bad(fmt::format("{}: {} holds {}, which is no scale", out_.source, name, v));
    if (size_ == 0) size_ = n;
    if (n != size_) return bad(fmt::format("{}: {} has {} values, others {}", out_.source, name, n, size_));
    auto& to = scales_[{place->layer, place->key}];
    if (!to.empty()) return bad(fmt::format("{}: {} is there twice", out_.source, name));
    for (const double v : values) to.push_back(static_cast<float>(v) * factor_);
    return {};
  }

  Expected<CacheScales> finish() {
    for (const bool key : {true, false}) {
      for (int layer = 0; layer < shape_.layers; ++layer) {
        const auto found = scales_.find({layer, key});
        if (found == scales_.end())
          return bad(fmt::format("{}: layers.{}.self_attn{}{} is missing", out_.source, layer,
                                 key ? kKeyScaleName : kValueScaleName, kLeaf));
        auto& to = key ? out_.k : out_.v;
        to.insert(to.end(), found->second.begin(), found->second.end());
      }
    }
    out_.channels = size_ != shape_.kv_heads;
    return std::move(out_);
  }

 private:
  const CacheScaleShape shape_;
  const float factor_;
  CacheScales out_;
  int64_t size_ = 0;
  std::map<std::pair<int, bool>, std::vector<float>> scales_;
};

// A number, or a list of numbers or of such lists.
bool append_numbers(const json::Value& value, std::vector<double>& out) {
  if (const json::Array* list = value.if_array()) {
    for (const json::Value& v : *list)
      if (!append_numbers(v, out)) return false;
    return true;
  }
  if (!value.is_number()) return false;
  out.push_back(value.is_double()  ? value.get_double()
                : value.is_int64() ? static_cast<double>(value.get_int64())
                                   : static_cast<double>(value.get_uint64()));
  return true;
}

size_t count_values(const json::Value& value) {
  size_t n = 1;
  if (const json::Object* o = value.if_object())
    for (const auto& member : *o) n += count_values(member.value());
  if (const json::Array* a = value.if_array())
    for (const json::Value& v : *a) n += count_values(v);
  return n;
}

// The text of the file; none: nothing.
Expected<std::optional<std::string>> read_scale_file(const std::string& folder) {
  std::ifstream in(folder + "/" + kFile, std::ios::binary);
  if (!in) return std::optional<std::string>();
  in.seekg(0, std::ios::end);
  const std::streamoff size = in.tellg();
  if (size < 0 || static_cast<uint64_t>(size) > kLimits.max_bytes)
    return make_error(ErrorCode::kTooLarge, fmt::format("{} cannot be read up to {} bytes", kFile, kLimits.max_bytes));
  in.seekg(0);
  std::string text(static_cast<size_t>(size), '\0');
  in.read(text.data(), size);
  if (in.gcount() != size) return make_error(ErrorCode::kIo, fmt::format("cannot read {}", kFile));
  return std::optional(std::move(text));
}

Expected<std::vector<double>> values_of(std::string_view name, const StoredTensor& t) {
  const size_t each = file_type_bytes(t.dtype);
  if (!is_float_weight(t.dtype))
    return bad(fmt::format("{} has type {}; F32, F16 and BF16 can be read", name, file_type_name(t.dtype)));
  std::vector<double> out;
  for (size_t at = 0; at + each <= t.bytes; at += each) {
    uint32_t bits = 0;
    std::memcpy(&bits, t.data + at, each);
    float v = 0.0f;
    if (t.dtype == FileType::kF32) {
      std::memcpy(&v, &bits, sizeof v);
    } else {
      v = t.dtype == FileType::kBF16 ? to_float(bf16{static_cast<uint16_t>(bits)})
                                     : half_to_float(static_cast<uint16_t>(bits));
    }
    out.push_back(static_cast<double>(v));
  }
  return out;
}

}  // namespace

Expected<CacheScales> parse_cache_scales(std::string_view text, const CacheScaleShape& shape) {
  auto extent = json::measure(text, kLimits);
  if (!extent.ok()) return bad(fmt::format("{}: {}", kFile, extent.error().message));
  auto value = json::parse(text, kLimits, *extent);
  if (!value.ok()) return bad(fmt::format("{}: {}", kFile, value.error().message));
  const json::Object* object = value->if_object();
  if (object == nullptr) return bad(fmt::format("{} is not a JSON object", kFile));
  if (count_values(*value) != extent->nodes) return bad(fmt::format("{}: a name is there twice", kFile));
  Collector collector(shape, kFileBound / shape.bound, kFile);
  for (const auto& member : *object) {
    std::vector<double> numbers;
    if (!append_numbers(member.value(), numbers))
      return bad(fmt::format("{}: {} is not a list of numbers", kFile, std::string_view(member.key())));
    TERN_RETURN_IF_ERROR(collector.add(member.key(), numbers));
  }
  return collector.finish();
}

Expected<CacheScales> find_cache_scales(const std::string& folder, const Checkpoint& checkpoint,
                                        const CacheScaleShape& shape) {
  Collector collector(shape, 1.0f / shape.bound, "the checkpoint");
  std::string first;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (name.find(kKeyScaleName) == std::string::npos && name.find(kValueScaleName) == std::string::npos) continue;
    if (name.ends_with("activation_zero_point"))
      return make_error(ErrorCode::kUnsupported, fmt::format("{}: a cache with zero points is not built", name));
    if (first.empty()) first = name;
    TERN_ASSIGN_OR_RETURN(const std::vector<double> values, values_of(name, tensor));
    TERN_RETURN_IF_ERROR(collector.add(name, values));
  }
  TERN_ASSIGN_OR_RETURN(const std::optional<std::string> text, read_scale_file(folder));
  if (!first.empty() && text) return bad(fmt::format("scales of the cache are there twice: {} and {}", first, kFile));
  if (text) return parse_cache_scales(*text, shape);
  return first.empty() ? CacheScales{} : collector.finish();
}

Expected<CacheScales> slice_cache_scales(const CacheScales& all, const CacheScaleShape& shape, const Shard& shard) {
  const int64_t each = all.channels ? shape.head_dim : 1, row = shape.kv_heads * each;
  Parameter p;
  p.name = "the scales of the cache", p.rows = row, p.rule = ShardRule::kKvHeads, p.units = shape.kv_heads;
  TERN_ASSIGN_OR_RETURN(const Range range, shard_range(p, shard));
  CacheScales mine{all.channels, {}, {}, all.source};
  for (int64_t layer = 0; !all.source.empty() && layer < shape.layers; ++layer) {
    mine.k.insert(mine.k.end(), all.k.begin() + layer * row + range.begin, all.k.begin() + layer * row + range.end);
    mine.v.insert(mine.v.end(), all.v.begin() + layer * row + range.begin, all.v.begin() + layer * row + range.end);
  }
  return mine;
}

}  // namespace tern::model
