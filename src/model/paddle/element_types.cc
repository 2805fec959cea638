#include "model/paddle/element_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/paddle/wire.h"

namespace tern::model {
namespace {

struct Row {
  uint64_t number;
  std::string_view name;
  FileType type;
};
constexpr std::array kRows = {
    Row{0, "t_bool", FileType::kBool},        Row{1, "t_i16", FileType::kI16},
    Row{2, "t_i32", FileType::kI32},          Row{3, "t_i64", FileType::kI64},
    Row{4, "t_f16", FileType::kF16},          Row{5, "t_f32", FileType::kF32},
    Row{6, "t_f64", FileType::kF64},          Row{20, "t_ui8", FileType::kU8},
    Row{21, "t_i8", FileType::kI8},           Row{22, "t_bf16", FileType::kBF16},
    Row{32, "t_f8e4m3fn", FileType::kF8E4M3}, Row{33, "t_f8e5m2", FileType::kF8E5M2},
};

// A type by its number in messages (VarType.Type).
std::optional<FileType> paddle_type(uint64_t number) {
  const auto* found = std::ranges::find(kRows, number, &Row::number);
  return found == kRows.end() ? std::nullopt : std::optional(found->type);
}

Error corrupt(const char* what) {
  return make_error(ErrorCode::kCorrupt, fmt::format("a tensor's description {}", what));
}

// dims, one by one or packed.
bool add_dimensions(const WireReader& field, PaddleTensor& to) {
  if (const auto one = field.integer()) return add_dimension(static_cast<int64_t>(*one), to);
  const auto packed = field.bytes();
  if (!packed) return false;
  // Packed numbers are varints without tags.
  uint64_t value = 0;
  int shift = 0;
  for (const char c : *packed) {
    const auto byte = static_cast<uint8_t>(c);
    if (shift > 56) return false;
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    shift += 7;
    if (byte >= 0x80) continue;
    if (!add_dimension(static_cast<int64_t>(value), to)) return false;
    value = 0, shift = 0;
  }
  return shift == 0;
}

}  // namespace

std::optional<FileType> pir_type(std::string_view name) {
  // "0.t_bf16": the dialect's number comes first.
  const size_t dot = name.find('.');
  if (dot != std::string_view::npos) name.remove_prefix(dot + 1);
  const auto* found = std::ranges::find(kRows, name, &Row::name);
  return found == kRows.end() ? std::nullopt : std::optional(found->type);
}

bool add_dimension(int64_t value, PaddleTensor& to) {
  if (value < 0 || to.dims.size() == kMaxTensorRank) return false;
  to.dims.push_back(value);
  return true;
}

Expected<PaddleTensor> read_tensor_desc(std::string_view message) {
  PaddleTensor t;
  std::optional<FileType> type;
  WireReader fields(message);
  while (fields.next()) {
    if (fields.number() == 1) {
      const auto number = fields.integer();
      if (!number) return corrupt("has no number as its type");
      type = paddle_type(*number);
      if (!type)
        return make_error(ErrorCode::kUnsupported,
                          fmt::format("a tensor has elements of type {}, which no weights have", *number));
    } else if (fields.number() == 2 && !add_dimensions(fields, t)) {
      return corrupt("has a negative dimension, or too many");
    }
  }
  if (fields.failed()) return corrupt("is cut off");
  if (!type) return corrupt("has no type");
  t.type = *type;
  return t;
}

}  // namespace tern::model
