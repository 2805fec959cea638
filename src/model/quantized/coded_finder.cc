#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "base/checked.h"
#include "model/quantized/coded_tensor.h"

namespace tern::model {
namespace {

using Shape = std::vector<int64_t>;

bool is_word(FileType type) { return type == FileType::kI32 || type == FileType::kU32; }
bool is_byte(FileType type) { return type == FileType::kI8; }
bool is_float8(FileType type) { return type == FileType::kF8E4M3; }

// Whether `shape` is one of `wanted`, leaving out dimensions of 1 at the end.
bool is_shape(Shape shape, std::initializer_list<int64_t> wanted) {
  Shape w(wanted);
  while (!shape.empty() && shape.back() == 1) shape.pop_back();
  while (!w.empty() && w.back() == 1) w.pop_back();
  return shape == w;
}

// The tensor at a leaf of a module (".weight_scale"), and its name.
std::pair<const StoredTensor*, std::string> find_leaf(const Checkpoint& checkpoint, const CodedPlace& place,
                                                      std::string_view leaf) {
  std::string name = fmt::format("{}{}", place.module, leaf);
  const StoredTensor* found = checkpoint.find(name);
  constexpr std::string_view kWeight = ".weight";
  if (found != nullptr || place.count == 0) return {found, std::move(name)};
  name = leaf.starts_with(kWeight) ? fmt::format("{}{}", place.module, leaf.substr(kWeight.size()))
                                   : fmt::format("{}_{}", place.module, leaf.substr(1));
  return {checkpoint.find(name), std::move(name)};
}

// One module's tensors, one after the other; the first complaint ends it.
class ModuleTensors {
 public:
  ModuleTensors(const Checkpoint& checkpoint, const CodedPlace& place, CodedTensor& t, std::set<std::string>& used,
                std::vector<std::string>& wrong)
      : checkpoint_(checkpoint), place_(place), t_(t), used_(used), wrong_(wrong) {}

  bool run() { return codes() && scales() && zeros() && order() && shape() && extras(); }

 private:
  bool complain(std::string line) {
    wrong_.push_back(std::move(line));
    return false;
  }
  const StoredTensor* take(const std::string& leaf) {
    const auto [found, name] = find_leaf(checkpoint_, place_, leaf);
    if (found == nullptr) return nullptr;
    used_.insert(name);
    return place_.count == 0 ? found : slice(*found);
  }
  // One matrix's part of a stack's tensor; the whole where it is none, whose shape is then wrong.
  const StoredTensor* slice(const StoredTensor& stack) {
    const auto count = static_cast<size_t>(place_.count);
    if (stack.shape.empty() || stack.shape.front() != place_.count) return &stack;
    StoredTensor& part = *t_.slices.emplace_back(std::make_unique<StoredTensor>(stack));
    part.shape.erase(part.shape.begin());
    part.bytes /= count;
    part.data += part.bytes * static_cast<size_t>(place_.index);
    return &part;
  }
  bool misshapen(const std::string& leaf, const StoredTensor& t, const Shape& want) {
    return complain(fmt::format("{}{} is {} {}, not {}", t_.module, leaf, file_type_name(t.dtype), shape_text(t.shape),
                                shape_text(want)));
  }
  bool expect(const std::string& leaf, const StoredTensor& t, bool (*type)(FileType), const Shape& want) {
    return (type(t.dtype) && t.shape == want) || misshapen(leaf, t, want);
  }

  int64_t per_word() const { return 32 / t_.scheme.bits; }
  int64_t groups() const { return ceil_div(t_.k, t_.group()); }

  bool codes() {
    const CodeScheme& s = t_.scheme;
    const int64_t n = t_.n, k = t_.k;
    if (s.group > 0 && s.rows == 1 && k % s.group != 0)
      return complain(fmt::format("{}: groups of {} do not divide {} columns", t_.module, s.group, k));
    if (t_.across() && (n % 8 != 0 || (s.layout == CodeLayout::kGptq && k % per_word() != 0)))
      return complain(fmt::format("{}: a matrix [{}, {}] does not fill whole words of codes", t_.module, n, k));
    switch (s.layout) {
      case CodeLayout::kGptq:
        t_.codes = take(".qweight");
        return expect(".qweight", *t_.codes, is_word, {k / per_word(), n});
      case CodeLayout::kAwq:
        t_.codes = take(".qweight");
        return expect(".qweight", *t_.codes, is_word, {k, n / 8});
      case CodeLayout::kPacked:
        t_.codes = take(".weight_packed");
        return expect(".weight_packed", *t_.codes, is_word, {n, ceil_div(k, per_word())});
      case CodeLayout::kPaddle:
        t_.codes = take(".quant_weight");
        return expect(".quant_weight", *t_.codes, is_byte, {n, k});
      case CodeLayout::kInt8:
        t_.codes = take(".weight");
        return expect(".weight", *t_.codes, is_byte, {n, k});
      case CodeLayout::kFloat8:
        t_.codes = take(".weight");
        return expect(".weight", *t_.codes, is_float8, {n, k});
    }
    return false;
  }

  // The one tensor among the leaves; two are one too many.
  bool scales() {
    std::string leaf;
    const bool across = t_.across();
    const std::vector<const char*> leaves =
        across ? std::vector{".scales"} : std::vector{".weight_scale", ".weight_scale_inv"};
    for (const char* name : leaves) {
      const StoredTensor* found = take(name);
      if (found == nullptr) continue;
      if (t_.scales != nullptr)
        return complain(fmt::format("{} has its scales twice: as {} and as {}", t_.module, leaf.substr(1), name + 1));
      t_.scales = found, leaf = name;
    }
    if (t_.scales == nullptr)
      return complain(fmt::format("{} has codes but no {}", t_.module, across ? "scales" : "weight_scale"));
    const bool exponents = t_.scheme.layout == CodeLayout::kFloat8 && t_.scales->dtype == FileType::kF8E8M0;
    if (!is_float_weight(t_.scales->dtype) && !exponents)
      return complain(fmt::format("{}{} has type {}; F32, F16 and BF16 are read, F8_E8M0 with e4m3 codes", t_.module,
                                  leaf, file_type_name(t_.scales->dtype)));
    return scale_shape(leaf);
  }
  bool scale_shape(const std::string& leaf) {
    const Shape& shape = t_.scales->shape;
    CodeScheme& s = t_.scheme;
    if (t_.across()) return shape == Shape{groups(), t_.n} || misshapen(leaf, *t_.scales, {groups(), t_.n});
    if (s.rows > 1) {
      const Shape want{ceil_div(t_.n, s.rows), groups()};
      return shape == want || misshapen(leaf, *t_.scales, want);
    }
    // One scale where config.json does not say that there is one per row, or the other way round, is plain from its
    // shape.
    if (s.group == 0 && is_shape(shape, {1})) return s.rows = 0, true;
    if (s.group == 0 && is_shape(shape, {t_.n})) return s.rows = 1, true;
    return is_shape(shape, {t_.n, groups()}) || misshapen(leaf, *t_.scales, {t_.n, groups()});
  }

  bool zeros() {
    const CodeScheme& s = t_.scheme;
    if (!s.zeros && !s.neutral) return true;
    const std::string leaf = t_.across() ? ".qzeros" : ".weight_zero_point";
    t_.zeros = take(leaf);
    if (t_.zeros == nullptr) return complain(fmt::format("{} has codes but no {}", t_.module, leaf.substr(1)));
    switch (s.layout) {
      case CodeLayout::kGptq:
      case CodeLayout::kAwq:
        return expect(leaf, *t_.zeros, is_word, {groups(), t_.n / per_word()});
      case CodeLayout::kPacked:
        if (t_.n % per_word() != 0)
          return complain(fmt::format("{}: {} rows of zero points do not fill whole words", t_.module, t_.n));
        return expect(leaf, *t_.zeros, is_word, {t_.n / per_word(), groups()});
      default:
        if (!is_byte(t_.zeros->dtype) || t_.zeros->shape != t_.scales->shape)
          return misshapen(leaf, *t_.zeros, t_.scales->shape);
        return true;
    }
  }

  // Groups must be of neighbouring columns, in order.
  bool order() {
    const std::string leaf = t_.across() ? ".g_idx" : ".weight_g_idx";
    const StoredTensor* index = take(leaf);
    if (index == nullptr) return true;
    if (index->dtype != FileType::kI32 || index->shape != Shape{t_.k}) return misshapen(leaf, *index, {t_.k});
    for (int64_t c = 0; c < t_.k; ++c) {
      int32_t g;
      std::memcpy(&g, index->data + 4 * c, sizeof g);
      // Compressed-tensors writes -1 where there is no order of its own.
      if (g == -1 && !t_.across()) continue;
      if (g < 0 || g >= groups())
        return complain(fmt::format("{}{} names group {} of {} for column {}", t_.module, leaf, g, groups(), c));
      if (g != c / t_.group())
        return complain(
            fmt::format("{}{} puts column {} into group {}: columns in an order of their own (desc_act, "
                        "actorder \"group\") are not read; quantize the model without it",
                        t_.module, leaf, c, g));
    }
    return true;
  }

  bool shape() {
    if (t_.scheme.layout != CodeLayout::kPacked) return true;
    const StoredTensor* stored = take(".weight_shape");
    if (stored == nullptr) return true;
    const bool wide = stored->dtype == FileType::kI64;
    if ((!wide && stored->dtype != FileType::kI32) || stored->shape != Shape{2})
      return misshapen(".weight_shape", *stored, {2});
    Shape is;
    for (int64_t i = 0; i < 2; ++i) {
      int64_t v = 0;
      int32_t narrow = 0;
      std::memcpy(wide ? static_cast<void*>(&v) : &narrow, stored->data + i * (wide ? 8 : 4), wide ? 8 : 4);
      is.push_back(wide ? v : narrow);
    }
    if (is == Shape{t_.n, t_.k}) return true;
    return complain(fmt::format("{}.weight_shape says {}, but the model has {} there", t_.module, shape_text(is),
                                shape_text({t_.n, t_.k})));
  }

  // Scales of activations, which stay as they are.
  bool extras() {
    for (const char* leaf : {".input_scale", ".input_zero_point", ".output_scale", ".activation_scale"})
      (void)take(leaf);
    return true;
  }

  const Checkpoint& checkpoint_;
  const CodedPlace& place_;
  CodedTensor& t_;
  std::set<std::string>& used_;
  std::vector<std::string>& wrong_;
};

// The leaf of a module's codes.
const char* codes_leaf(CodeLayout layout) {
  switch (layout) {
    case CodeLayout::kGptq:
    case CodeLayout::kAwq:
      return ".qweight";
    case CodeLayout::kPacked:
      return ".weight_packed";
    case CodeLayout::kPaddle:
      return ".quant_weight";
    default:
      return ".weight";
  }
}

}  // namespace

std::shared_ptr<const CodedTensor> CodedFinder::find(const CodedPlace& place, std::set<std::string>& used,
                                                     std::vector<std::string>& wrong) const {
  const std::string& module = place.module;
  const auto at = [&](std::string_view leaf) { return find_leaf(checkpoint_, place, leaf); };
  const CodeScheme* scheme = codes_.scheme_of(module);
  const StoredTensor* plain = at(".weight").first;
  const StoredTensor* codes = nullptr;
  for (const char* leaf : {".qweight", ".weight_packed", ".quant_weight"})
    if (codes == nullptr) codes = at(leaf).first;
  const bool as_values = plain != nullptr && is_float_weight(plain->dtype);
  if (codes == nullptr && (plain == nullptr || as_values)) return nullptr;
  const auto complain = [&](std::string line) {
    for (const char* leaf : {".weight", ".qweight", ".weight_packed", ".quant_weight"})
      if (const auto [found, name] = at(leaf); found != nullptr) used.insert(name);
    wrong.push_back(std::move(line));
    return nullptr;
  };
  if (codes != nullptr && plain != nullptr)
    return complain(fmt::format("{} is stored twice, with and without codes", module));
  if (scheme == nullptr)
    return complain(fmt::format("{} is stored as codes although quantization_config leaves it out", module));
  if (const auto [found, name] = at(codes_leaf(scheme->layout)); found == nullptr)
    return complain(fmt::format("{} is missing, which quantization_config promises", name));
  auto found = std::make_shared<CodedTensor>();
  found->module = module, found->scheme = *scheme, found->n = place.n, found->k = place.k;
  if (!ModuleTensors(checkpoint_, place, *found, used, wrong).run()) return nullptr;
  return found;
}

}  // namespace tern::model
