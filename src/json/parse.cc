// Text to values within limits. A first pass finds how much the values will take; the second makes each of them once,
// in its place: Boost.JSON's own parser collects them on a stack first, which takes three times their memory.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <cstring>
#include <new>

#include "json/json.h"

namespace tern::json {
namespace {

// Bytes of an element and of a member with its place in the hash table; containers that grow step by step hold up to
// half as much again.
constexpr size_t kElement = sizeof(Value), kMember = sizeof(boost::json::key_value_pair) + 4;
constexpr size_t kGrownElement = kElement * 3 / 2, kGrownMember = kMember * 3 / 2;
constexpr size_t kReserved = 16;  // containers with fewer members grow step by step

// What the allocator takes for `n` bytes.
size_t chunk(size_t n) { return std::max<size_t>(32, (n + 8 + 15) / 16 * 16); }

struct Level {
  uint32_t number = 0, members = 0;
  bool object = false, key_next = false, empty = true;
};

// Reads the structure alone; of strings and numbers it sees where they end.
class Measurer {
 public:
  Measurer(std::string_view text, const Limits& limits) : text_(text), limits_(limits) { levels_.emplace_back(); }

  Expected<Extent> run() {
    for (size_t i = 0; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '"') {
        i = string(i);
      } else if (c == '[' || c == '{') {
        if (levels_.size() > limits_.max_depth + 1) break;  // the parser says so
        open(c == '{');
      } else if (c == ']' || c == '}') {
        if (levels_.size() == 1) break;
        close();
      } else if (c == ',') {
        levels_.back().key_next = levels_.back().object;
        member();
      } else if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
        first();
      }
      if (extent_.nodes > limits_.max_nodes) return too_many();
    }
    while (levels_.size() > 1) close();  // of a text that breaks off
    extent_.memory += 16;
    const size_t most = limits_.max_memory_ratio == 0
                            ? SIZE_MAX
                            : std::max(limits_.free_memory, text_.size() * limits_.max_memory_ratio);
    if (extent_.memory > most) {
      return make_error(ErrorCode::kTooLarge,
                        fmt::format("{} values in {} bytes of JSON would take {} bytes of memory; the limit is {}",
                                    extent_.nodes, text_.size(), extent_.memory, most));
    }
    return std::move(extent_);
  }

 private:
  Error too_many() const {
    return make_error(ErrorCode::kTooLarge, fmt::format("JSON has more than {} values", limits_.max_nodes));
  }

  // The first thing inside a container is its first member.
  void first() {
    if (!levels_.back().empty) return;
    levels_.back().empty = false;
    member();
  }

  void member() {
    Level& at = levels_.back();
    ++at.members;
    ++extent_.nodes;
    extent_.memory += at.object ? kGrownMember : kGrownElement;
  }

  void open(bool object) {
    first();
    Level level;
    level.number = next_number_++;
    level.object = level.key_next = object;
    levels_.push_back(level);
    extent_.memory += 48;
  }

  void close() {
    const Level& at = levels_.back();
    if (at.members >= kReserved) {
      extent_.large.emplace_back(at.number, at.members);
      extent_.memory += 2 * sizeof(extent_.large[0]);
      extent_.memory -= at.members * (at.object ? kGrownMember - kMember : kGrownElement - kElement);
    }
    levels_.pop_back();
  }

  // From the opening quote to the closing one.
  size_t string(size_t begin) {
    first();
    size_t end = begin + 1;
    for (;; ++end) {
      const void* quote = end < text_.size() ? std::memchr(text_.data() + end, '"', text_.size() - end) : nullptr;
      end = quote == nullptr ? text_.size() : static_cast<size_t>(static_cast<const char*>(quote) - text_.data());
      size_t escapes = 0;
      while (end - escapes > begin + 1 && text_[end - escapes - 1] == '\\') ++escapes;
      if (quote == nullptr || escapes % 2 == 0) break;
    }
    const size_t length = end - begin - 1;
    Level& at = levels_.back();
    if (at.key_next)
      extent_.memory += chunk(length + 1);
    else if (length > 14)
      extent_.memory += chunk(std::max<size_t>(length, 28) + 9);  // 14 bytes lie in the value, then it doubles
    at.key_next = false;
    return end;
  }

  std::string_view text_;
  const Limits& limits_;
  std::vector<Level> levels_;  // the first one holds the whole
  uint32_t next_number_ = 0;
  Extent extent_;
};

// Makes values where they belong while the parser reads.
class Builder {
 public:
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);
  using Code = boost::json::error_code;
  using Text = boost::json::string_view;

  explicit Builder(const Extent& extent) : large_(extent.large) { std::ranges::sort(large_); }
  Value take() { return std::move(root_); }

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_array_begin(Code&) {
    Value& value = place();
    Array& array = value.emplace_array();
    if (const uint32_t n = members()) array.reserve(n);
    open_.push_back(&value);
    return true;
  }
  bool on_array_end(std::size_t, Code&) { return close(); }
  bool on_object_begin(Code&) {
    Value& value = place();
    Object& object = value.emplace_object();
    if (const uint32_t n = members()) object.reserve(n);
    open_.push_back(&value);
    return true;
  }
  bool on_object_end(std::size_t, Code&) { return close(); }
  bool on_string_part(Text s, std::size_t, Code&) {
    if (string_ == nullptr) string_ = &place().emplace_string();
    string_->append(s);
    return true;
  }
  bool on_string(Text s, std::size_t, Code&) {
    if (string_ != nullptr)
      string_->append(s);
    else
      place().emplace_string().assign(s);
    string_ = nullptr;
    return true;
  }
  bool on_key_part(Text s, std::size_t, Code&) {
    key_.append(s.data(), s.size());
    return true;
  }
  bool on_key(Text s, std::size_t, Code&) {
    key_.append(s.data(), s.size());
    return true;
  }
  bool on_number_part(Text, Code&) { return true; }
  bool on_int64(int64_t i, Text, Code&) {
    place() = i;
    return true;
  }
  bool on_uint64(uint64_t u, Text, Code&) {
    place() = u;
    return true;
  }
  bool on_double(double d, Text, Code&) {
    place() = d;
    return true;
  }
  bool on_bool(bool b, Code&) {
    place() = b;
    return true;
  }
  bool on_null(Code&) {
    place() = nullptr;
    return true;
  }
  bool on_comment_part(Text, Code&) { return true; }
  bool on_comment(Text, Code&) { return true; }

 private:
  // Where the next value goes. A container that is open does not grow before its open member is closed, so that the
  // addresses in open_ stay. Of a name given twice the last value counts.
  Value& place() {
    if (open_.empty()) return root_;
    Value& parent = *open_.back();
    if (Array* array = parent.if_array()) return array->emplace_back(nullptr);
    Value& value = parent.get_object().emplace(key_, nullptr).first->value();
    key_.clear();
    return value;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  // Members to reserve for the container that begins; 0: few.
  uint32_t members() {
    const uint32_t number = next_number_++;
    if (next_large_ == large_.size() || large_[next_large_].first != number) return 0;
    return large_[next_large_++].second;
  }

  Value root_;
  std::vector<Value*> open_;
  boost::json::string* string_ = nullptr;  // begun, of several parts
  std::string key_;
  std::vector<std::pair<uint32_t, uint32_t>> large_;
  size_t next_large_ = 0;
  uint32_t next_number_ = 0;
};

Status check_size(std::string_view text, const Limits& limits) {
  if (text.size() <= limits.max_bytes) return {};
  return make_error(ErrorCode::kTooLarge,
                    fmt::format("JSON of {} bytes exceeds the limit of {}", text.size(), limits.max_bytes));
}

}  // namespace

Expected<Extent> measure(std::string_view text, const Limits& limits) {
  TERN_RETURN_IF_ERROR(check_size(text, limits));
  return Measurer(text, limits).run();
}

Expected<Value> parse(std::string_view text, const Limits& limits) {
  TERN_ASSIGN_OR_RETURN(const Extent extent, measure(text, limits));
  return parse(text, limits, extent);
}

Expected<Value> parse(std::string_view text, const Limits& limits, const Extent& extent) {
  TERN_RETURN_IF_ERROR(check_size(text, limits));
  boost::json::parse_options options;
  options.max_depth = limits.max_depth;
  boost::json::error_code code;
  try {
    boost::json::basic_parser<Builder> parser(options, extent);
    const size_t used = parser.write_some(false, text.data(), text.size(), code);
    if (!code && used < text.size()) code = boost::json::error::extra_data;
    if (!code) return parser.handler().take();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    return make_error(ErrorCode::kCorrupt, fmt::format("invalid JSON: {}", e.what()));
  }
  if (code == boost::json::error::too_deep) {
    return make_error(ErrorCode::kTooLarge, fmt::format("JSON is nested deeper than {} levels", limits.max_depth));
  }
  return make_error(ErrorCode::kCorrupt, fmt::format("invalid JSON: {}", code.message()));
}

}  // namespace tern::json
