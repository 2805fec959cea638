#include "model/files/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <boost/json/basic_parser_impl.hpp>
#include <cstring>
#include <optional>
#include <utility>

#include "base/checked.h"

namespace tern::model {
namespace {

struct TypeRow {
  const char* name;
  FileType type;
  size_t bytes;
};
constexpr std::array kTypes = {
    TypeRow{"F64", FileType::kF64, 8},        TypeRow{"F32", FileType::kF32, 4},
    TypeRow{"F16", FileType::kF16, 2},        TypeRow{"BF16", FileType::kBF16, 2},
    TypeRow{"I64", FileType::kI64, 8},        TypeRow{"I32", FileType::kI32, 4},
    TypeRow{"I16", FileType::kI16, 2},        TypeRow{"I8", FileType::kI8, 1},
    TypeRow{"U64", FileType::kU64, 8},        TypeRow{"U32", FileType::kU32, 4},
    TypeRow{"U16", FileType::kU16, 2},        TypeRow{"U8", FileType::kU8, 1},
    TypeRow{"BOOL", FileType::kBool, 1},      TypeRow{"F8_E4M3", FileType::kF8E4M3, 1},
    TypeRow{"F8_E5M2", FileType::kF8E5M2, 1}, TypeRow{"F8_E8M0", FileType::kF8E8M0, 1},
};

const TypeRow& row_of(FileType type) {
  return *std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& r) { return r.type == type; });
}

// Follows the header's fixed grammar event by event, so that a duplicate name is seen and nothing else is kept.
struct Handler {
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = 4096;
  static constexpr size_t max_string_size = 1u << 20;
  using error_code = boost::system::error_code;

  enum class In { kNothing, kRoot, kMetadata, kTensor, kShape, kOffsets, kDone };

  SafetensorsHeader header;
  std::string problem;
  In in = In::kNothing;
  std::string text, name, field, meta_key;
  TensorEntry entry;
  std::vector<uint64_t> offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;

  bool fail(std::string why, error_code& ec) {
    if (problem.empty()) problem = std::move(why);
    ec = boost::system::errc::make_error_code(boost::system::errc::invalid_argument);
    return false;
  }
  bool unexpected(const char* what, error_code& ec) {
    return fail(name.empty() ? fmt::format("unexpected {}", what) : fmt::format("tensor {}: unexpected {}", name, what),
                ec);
  }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code& ec) {
    switch (in) {
      case In::kNothing:
        in = In::kRoot;
        return true;
      case In::kRoot:
        if (name == "__metadata__") {
          in = In::kMetadata;
        } else {
          in = In::kTensor;
          entry = {}, offsets.clear(), field.clear();
          has_dtype = has_shape = has_offsets = false;
        }
        return true;
      default:
        return unexpected("object", ec);
    }
  }
  bool on_object_end(size_t, error_code& ec) {
    switch (in) {
      case In::kRoot:
        in = In::kDone;
        return true;
      case In::kMetadata:
        in = In::kRoot;
        return true;
      case In::kTensor:
        if (!has_dtype || !has_shape || !has_offsets)
          return fail(fmt::format("tensor {}: dtype, shape or data_offsets is missing", name), ec);
        in = In::kRoot;
        if (!header.tensors.emplace(name, std::move(entry)).second)
          return fail(fmt::format("tensor {} is there twice", name), ec);
        return true;
      default:
        return unexpected("end of object", ec);
    }
  }
  bool on_array_begin(error_code& ec) {
    if (in == In::kTensor && field == "shape" && !has_shape) return in = In::kShape, true;
    if (in == In::kTensor && field == "data_offsets" && !has_offsets) return in = In::kOffsets, true;
    return unexpected("array", ec);
  }
  bool on_array_end(size_t n, error_code& ec) {
    if (in == In::kOffsets) {
      if (n != 2) return fail(fmt::format("tensor {}: data_offsets needs two numbers", name), ec);
      entry.begin = offsets[0], entry.end = offsets[1];
      has_offsets = true;
    } else {
      has_shape = true;
    }
    in = In::kTensor;
    return true;
  }
  bool on_key_part(boost::json::string_view s, size_t, error_code&) { return text.append(s), true; }
  bool on_key(boost::json::string_view s, size_t, error_code& ec) {
    text.append(s);
    if (in == In::kRoot) {
      name = std::exchange(text, {});
    } else if (in == In::kMetadata) {
      meta_key = std::exchange(text, {});
    } else {
      field = std::exchange(text, {});
      if (field != "dtype" && field != "shape" && field != "data_offsets")
        return fail(fmt::format("tensor {}: unknown field {}", name, field), ec);
    }
    return true;
  }
  bool on_string_part(boost::json::string_view s, size_t, error_code&) { return text.append(s), true; }
  bool on_string(boost::json::string_view s, size_t, error_code& ec) {
    text.append(s);
    const std::string value = std::exchange(text, {});
    if (in == In::kMetadata) return header.metadata[meta_key] = value, true;
    if (in != In::kTensor || field != "dtype" || has_dtype) return unexpected("string", ec);
    const auto* row = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& r) { return value == r.name; });
    if (row == kTypes.end()) return fail(fmt::format("tensor {}: unknown dtype {}", name, value), ec);
    entry.dtype = row->type;
    return has_dtype = true;
  }
  bool number(uint64_t v, error_code& ec) {
    if (in == In::kOffsets && offsets.size() < 2) return offsets.push_back(v), true;
    if (in == In::kShape) {
      if (entry.shape.size() == kMaxTensorRank) return fail(fmt::format("tensor {} has too many dimensions", name), ec);
      const auto d = checked_cast<int64_t>(v);
      if (!d) return fail(fmt::format("tensor {}: dimension {} is too large", name, v), ec);
      return entry.shape.push_back(*d), true;
    }
    return unexpected("number", ec);
  }
  bool on_number_part(boost::json::string_view, error_code&) { return true; }
  bool on_int64(int64_t v, boost::json::string_view, error_code& ec) {
    if (v < 0) return fail(fmt::format("tensor {}: negative number {}", name, v), ec);
    return number(static_cast<uint64_t>(v), ec);
  }
  bool on_uint64(uint64_t v, boost::json::string_view, error_code& ec) { return number(v, ec); }
  bool on_double(double, boost::json::string_view, error_code& ec) { return unexpected("fraction", ec); }
  bool on_bool(bool, error_code& ec) { return unexpected("boolean", ec); }
  bool on_null(error_code& ec) { return unexpected("null", ec); }
  bool on_comment_part(boost::json::string_view, error_code&) { return true; }
  bool on_comment(boost::json::string_view, error_code&) { return true; }
};

Error corrupt(std::string why) { return make_error(ErrorCode::kCorrupt, "safetensors header: " + std::move(why)); }

// Bytes of the tensor as its shape and type say, or nothing when that overflows.
std::optional<uint64_t> bytes_of(const TensorEntry& e) {
  std::optional<uint64_t> n = file_type_bytes(e.dtype);
  for (int64_t d : e.shape) {
    n = checked_mul<uint64_t>(*n, static_cast<uint64_t>(d));
    if (!n) return std::nullopt;
  }
  return n;
}

Status check_layout(SafetensorsHeader& header, uint64_t data_begin, uint64_t file_size) {
  std::vector<std::pair<const std::string*, TensorEntry*>> order;
  for (auto& [name, e] : header.tensors) order.emplace_back(&name, &e);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  const uint64_t data_bytes = file_size - data_begin;
  uint64_t at = 0;
  for (auto& [name, e] : order) {
    if (e->end < e->begin) return corrupt(fmt::format("tensor {}: ends before it begins", *name));
    if (e->end > data_bytes)
      return corrupt(
          fmt::format("tensor {}: reaches to byte {} of {} (is the file truncated?)", *name, e->end, data_bytes));
    if (e->begin < at) return corrupt(fmt::format("tensor {}: overlaps another tensor", *name));
    if (e->begin > at)
      return corrupt(fmt::format("tensor {}: a hole of {} bytes lies before it", *name, e->begin - at));
    const auto bytes = bytes_of(*e);
    if (!bytes || *bytes != e->end - e->begin)
      return corrupt(fmt::format("tensor {}: {} of {} does not fill its {} bytes", *name, file_type_name(e->dtype),
                                 shape_text(e->shape), e->end - e->begin));
    at = e->end;
    e->begin += data_begin, e->end += data_begin;
  }
  if (at != data_bytes) return corrupt(fmt::format("{} bytes follow the last tensor", data_bytes - at));
  return {};
}

}  // namespace

size_t file_type_bytes(FileType type) { return row_of(type).bytes; }
const char* file_type_name(FileType type) { return row_of(type).name; }
bool is_float_weight(FileType type) {
  return type == FileType::kF32 || type == FileType::kF16 || type == FileType::kBF16;
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Expected<SafetensorsHeader> parse_safetensors(std::string_view head, uint64_t file_size) {
  uint64_t length = 0;
  if (head.size() < sizeof length || file_size < sizeof length) return corrupt("the file is shorter than 8 bytes");
  std::memcpy(&length, head.data(), sizeof length);
  if (length > kMaxSafetensorsHeader)
    return make_error(ErrorCode::kTooLarge,
                      fmt::format("safetensors header: length {} exceeds {}", length, kMaxSafetensorsHeader));
  if (length > file_size - sizeof length || length > head.size() - sizeof length)
    return corrupt(fmt::format("its length {} exceeds the file (is it truncated?)", length));
  const std::string_view json = head.substr(sizeof length, length);
  if (json.empty() || json.front() != '{') return corrupt("it does not start with an object");

  boost::json::parse_options options;
  options.max_depth = 4;
  boost::json::basic_parser<Handler> parser(options);
  boost::system::error_code ec;
  const size_t used = parser.write_some(false, json.data(), json.size(), ec);
  if (!parser.handler().problem.empty()) return corrupt(parser.handler().problem);
  if (ec) return corrupt(ec.message());
  if (json.find_first_not_of(" \t\r\n", used) != std::string_view::npos) return corrupt("something follows the object");
  SafetensorsHeader header = std::move(parser.handler().header);
  TERN_RETURN_IF_ERROR(check_layout(header, sizeof length + length, file_size));
  return header;
}

}  // namespace tern::model
