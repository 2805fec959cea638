#include "model/paddle/params_file.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "base/checked.h"

namespace tern::model {
namespace {

constexpr size_t kMaxTensors = 2'000'000;
constexpr uint64_t kMaxDescription = 4096;  // bytes; eight dimensions take about 90

// Bytes of a tensor; an error when they overflow.
Expected<uint64_t> tensor_bytes(const PaddleTensor& tensor) {
  std::optional<uint64_t> n = file_type_bytes(tensor.type);
  for (const int64_t d : tensor.dims) n = n ? checked_mul<uint64_t>(*n, static_cast<uint64_t>(d)) : n;
  if (n) return *n;
  return make_error(ErrorCode::kCorrupt,
                    fmt::format("has the dimensions {}, whose product is too large", shape_text(tensor.dims)));
}

// Walks a file; a number or a piece that is not there is nothing.
class Cursor {
 public:
  explicit Cursor(std::string_view file) : file_(file) {}
  bool done() const { return at_ == file_.size(); }
  uint64_t at() const { return at_; }

  template <class T>
  std::optional<T> number() {
    if (file_.size() - at_ < sizeof(T)) return std::nullopt;
    T v;
    std::memcpy(&v, file_.data() + at_, sizeof v);
    at_ += sizeof v;
    return v;
  }
  std::optional<std::string_view> piece(uint64_t bytes) {
    if (bytes > file_.size() - at_) return std::nullopt;
    const std::string_view out = file_.substr(at_, bytes);
    at_ += bytes;
    return out;
  }

 private:
  std::string_view file_;
  uint64_t at_ = 0;
};

class Parser {
 public:
  explicit Parser(std::string_view file) : cursor_(file) {}

  Expected<std::vector<StoredParameter>> run() {
    while (!cursor_.done()) {
      if (all_.size() == kMaxTensors)
        return make_error(ErrorCode::kTooLarge, fmt::format("there are more than {} tensors", kMaxTensors));
      TERN_RETURN_IF_ERROR(tensor());
    }
    return std::move(all_);
  }

 private:
  Error corrupt(std::string_view what) const {
    return make_error(ErrorCode::kCorrupt, fmt::format("tensor {} {}", all_.size(), what));
  }
  Error cut() const { return corrupt(fmt::format("is cut off at byte {} (is the file truncated?)", cursor_.at())); }

  Status version(const char* of) {
    const auto v = cursor_.number<uint32_t>();
    if (!v) return cut();
    if (*v == 0) return {};
    return corrupt(fmt::format("has version {} of {}, not 0 (is this a .pdiparams file?)", *v, of));
  }

  // Levels of detail, which weights do not have, though a file may carry them.
  Status levels() {
    const auto count = cursor_.number<uint64_t>();
    if (!count) return cut();
    for (uint64_t i = 0; i < *count; ++i) {
      const auto bytes = cursor_.number<uint64_t>();
      if (!bytes || !cursor_.piece(*bytes)) return cut();
    }
    return {};
  }

  Status tensor() {
    TERN_RETURN_IF_ERROR(version("its levels"));
    TERN_RETURN_IF_ERROR(levels());
    TERN_RETURN_IF_ERROR(version("its elements"));
    const auto length = cursor_.number<int32_t>();
    if (!length) return cut();
    if (*length < 0 || static_cast<uint64_t>(*length) > kMaxDescription)
      return corrupt(fmt::format("has a description of {} bytes", *length));
    const auto message = cursor_.piece(static_cast<uint64_t>(*length));
    if (!message) return cut();
    auto read = read_tensor_desc(*message);
    if (!read.ok())
      return make_error(read.error().code, fmt::format("tensor {}: {}", all_.size(), read.error().message));
    auto bytes = tensor_bytes(*read);
    if (!bytes.ok()) return corrupt(bytes.error().message);
    const uint64_t begin = cursor_.at();
    if (!cursor_.piece(*bytes))
      return corrupt(fmt::format("{} {} reaches beyond the end of the file (is it truncated?)",
                                 file_type_name(read->type), shape_text(read->dims)));
    all_.push_back({std::move(*read), begin, cursor_.at()});
    return {};
  }

  Cursor cursor_;
  std::vector<StoredParameter> all_;
};

}  // namespace

Expected<std::vector<StoredParameter>> parse_pdiparams(std::string_view file) { return Parser(file).run(); }

}  // namespace tern::model
