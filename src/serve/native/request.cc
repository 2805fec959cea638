#include "serve/native/request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace tern::serve::native {
namespace {

enum class Kind : uint8_t { kText, kInteger, kNumber, kBoolean, kList, kIntegers, kTexts };

struct FieldType {
  std::string_view name;
  Kind kind;
};

constexpr FieldType kTypes[] = {{"req_id", Kind::kText},
                                {"text", Kind::kText},
                                {"messages", Kind::kList},
                                {"input_ids", Kind::kIntegers},
                                {"max_dec_len", Kind::kInteger},
                                {"seq_len", Kind::kInteger},
                                {"max_tokens", Kind::kInteger},
                                {"min_dec_len", Kind::kInteger},
                                {"topp", Kind::kNumber},
                                {"top_p", Kind::kNumber},
                                {"temperature", Kind::kNumber},
                                {"penalty_score", Kind::kNumber},
                                {"frequency_score", Kind::kNumber},
                                {"presence_score", Kind::kNumber},
                                {"system", Kind::kText},
                                {"eos_token_ids", Kind::kIntegers},
                                {"stop_sequences", Kind::kTexts},
                                {"return_all_tokens", Kind::kBoolean},
                                {"return_usage", Kind::kBoolean},
                                {"stream", Kind::kBoolean},
                                {"timeout", Kind::kInteger},
                                {"benchmark", Kind::kBoolean},
                                {"model", Kind::kText},
                                {"infer_seed", Kind::kInteger},
                                {"seed", Kind::kInteger}};

constexpr std::string_view kNativeFields[] = {
    "text",    "input_ids",     "req_id",          "max_dec_len",    "min_dec_len",  "seq_len",
    "topp",    "penalty_score", "frequency_score", "presence_score", "return_usage", "return_all_tokens",
    "timeout", "benchmark",     "eos_token_ids",   "stop_sequences", "system"};

std::string_view text_of(const json::Value& value) {
  const auto& text = value.get_string();
  return {text.data(), text.size()};
}

bool read_integer(json::Value& value) {
  if (value.is_int64()) return true;
  if (value.is_bool()) {
    value = int64_t{value.get_bool()};
    return true;
  }
  if (value.is_double() && std::trunc(value.get_double()) == value.get_double() &&
      std::abs(value.get_double()) < 9e15) {
    value = static_cast<int64_t>(value.get_double());
    return true;
  }
  if (!value.is_string()) return false;
  const std::string_view text = text_of(value);
  int64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) return false;
  value = number;
  return true;
}

bool read_number(json::Value& value) {
  if (value.is_double()) return std::isfinite(value.get_double());
  if (value.is_int64() || value.is_uint64() || value.is_bool()) {
    value = value.is_bool() ? (value.get_bool() ? 1.0 : 0.0) : value.to_number<double>();
    return true;
  }
  if (!value.is_string()) return false;
  const std::string_view text = text_of(value);
  double number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size() || !std::isfinite(number)) return false;
  value = number;
  return true;
}

bool read_boolean(json::Value& value) {
  if (value.is_bool()) return true;
  if (value.is_int64() && (value.get_int64() == 0 || value.get_int64() == 1)) {
    value = value.get_int64() == 1;
    return true;
  }
  if (!value.is_string()) return false;
  std::string text(text_of(value));
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr std::array<std::string_view, 6> kTrue = {"1", "true", "t", "yes", "y", "on"};
  constexpr std::array<std::string_view, 6> kFalse = {"0", "false", "f", "no", "n", "off"};
  const bool yes = std::find(kTrue.begin(), kTrue.end(), text) != kTrue.end();
  if (!yes && std::find(kFalse.begin(), kFalse.end(), text) == kFalse.end()) return false;
  value = yes;
  return true;
}

void check_items(std::string_view name, Kind kind, json::Array& items, Faults& faults) {
  for (json::Value& item : items) {
    if (kind == Kind::kIntegers && !read_integer(item)) {
      return faults.add("int_type", name, "Input should be a valid integer", item);
    }
    if (kind == Kind::kTexts && !item.is_string()) {
      return faults.add("string_type", name, "Input should be a valid string", item);
    }
  }
}

void check_type(const FieldType& field, json::Value& value, Faults& faults) {
  switch (field.kind) {
    case Kind::kText:
      if (!value.is_string()) faults.add("string_type", field.name, "Input should be a valid string", value);
      return;
    case Kind::kInteger:
      if (!read_integer(value)) faults.add("int_type", field.name, "Input should be a valid integer", value);
      return;
    case Kind::kNumber:
      if (!read_number(value)) faults.add("float_type", field.name, "Input should be a valid number", value);
      return;
    case Kind::kBoolean:
      if (!read_boolean(value)) faults.add("bool_type", field.name, "Input should be a valid boolean", value);
      return;
    default:
      if (!value.is_array()) return faults.add("list_type", field.name, "Input should be a valid list", value);
      return check_items(field.name, field.kind, value.get_array(), faults);
  }
}

// Python's `isinstance(x, int) and x > 0`.
bool positive_integer(const json::Value& value) {
  return (value.is_int64() && value.get_int64() > 0) || value.is_uint64() || (value.is_bool() && value.get_bool());
}

bool in_unit(const json::Value& value) {
  return value.is_number() && value.to_number<double>() >= 0 && value.to_number<double>() <= 1;
}

class Messages {
 public:
  explicit Messages(const json::Object& body) : body_(body) {}
  const json::Value* find(std::string_view key) const { return json::find(body_, key); }
  void say(std::string text) { said_.push_back(std::move(text)); }
  void say_key(std::string_view key, std::string_view what) { say(fmt::format("The `{}` {}", key, what)); }
  std::vector<std::string> take() { return std::move(said_); }

 private:
  const json::Object& body_;
  std::vector<std::string> said_;
};

void check_sources(Messages& m) {
  const json::Value *text = m.find("text"), *ids = m.find("input_ids"), *messages = m.find("messages");
  if (text == nullptr && ids == nullptr && messages == nullptr) {
    m.say("The input parameters should contain either `text`, `input_ids` or `messages`");
  }
  if (text != nullptr && !text->is_string()) m.say("The `text` in input parameters must be a string");
  if (text != nullptr && text->is_string() && text->get_string().empty()) {
    m.say("The `text` in input parameters cannot be empty");
  }
  if (const json::Value* system = m.find("system"); system != nullptr && !system->is_string()) {
    m.say("The `system` in input parameters must be a string");
  }
  if (ids != nullptr && !ids->is_array()) m.say("The `input_ids` in input parameters must be a list");
  if (messages == nullptr) return;
  const bool complete = messages->is_array() && std::ranges::all_of(messages->get_array(), [](const json::Value& item) {
                          return item.is_object() && item.get_object().contains("content");
                        });
  if (!complete) m.say("The item in messages must include `content`");
}

void check_lengths(Messages& m) {
  constexpr std::string_view kWhat = "must be an integer and greater than 0";
  for (const std::string_view key : {"min_dec_len", "max_dec_len", "seq_len", "max_tokens"}) {
    const json::Value* value = m.find(key);
    if (value != nullptr && !positive_integer(*value)) m.say_key(key, kWhat);
  }
}

void check_sampling(Messages& m) {
  const json::Value *topp = m.find("topp"), *top_p = m.find("top_p");
  if (topp != nullptr && top_p != nullptr) m.say("Only one of ('topp', 'top_p') should be set");
  for (const std::string_view key : {"topp", "top_p"}) {
    if (const json::Value* value = m.find(key); value != nullptr && !in_unit(*value))
      m.say_key(key, "must be in [0, 1]");
  }
  if (const json::Value* t = m.find("temperature"); t != nullptr && !(t->is_number() && t->to_number<double>() >= 0)) {
    m.say("The `temperature` must be >= 0");
  }
  if (const json::Value* ids = m.find("eos_token_ids")) {
    if (!ids->is_array() && !ids->is_int64()) m.say("The `eos_token_ids` must be an list");
    if (ids->is_array() && ids->get_array().size() > 1) m.say("The length of `eos_token_ids` must be 1 if you set it");
  }
  if (m.find("infer_seed") != nullptr && m.find("seed") != nullptr) {
    m.say("Only one of ('infer_seed', 'seed') should be set");
  }
  if (const json::Value* stream = m.find("stream"); stream != nullptr && !stream->is_bool()) {
    m.say("The `stream` must be a boolean");
  }
  if (const json::Value* type = m.find("response_type")) {
    std::string name = type->is_string() ? std::string(text_of(*type)) : "";
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (name != "fastdeploy" && name != "openai") {
      m.say("The `response_type` must be either `fastdeploy` or `openai`.");
    }
  }
}

std::vector<int64_t> integers(const json::Value& list) {
  std::vector<int64_t> out;
  for (const json::Value& item : list.get_array()) {
    if (item.is_int64()) out.push_back(item.get_int64());
  }
  return out;
}

const json::Value* first_of(const json::Object& body, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (const json::Value* value = json::find(body, key)) return value;
  }
  return nullptr;
}

std::optional<double> number_of(const json::Object& body, std::initializer_list<std::string_view> keys) {
  const json::Value* value = first_of(body, keys);
  return value != nullptr && value->is_number() ? std::optional(value->to_number<double>()) : std::nullopt;
}

std::optional<int64_t> integer_of(const json::Object& body, std::initializer_list<std::string_view> keys) {
  const json::Value* value = first_of(body, keys);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  if (value->is_int64()) return value->get_int64();
  return std::numeric_limits<int64_t>::max();  // beyond what any limit allows
}

bool flag_of(const json::Object& body, std::string_view key) {
  const json::Value* value = json::find(body, key);
  return value != nullptr && value->is_bool() && value->get_bool();
}

void take_stops(const json::Object& body, NativeRequest& r) {
  if (const json::Value* ids = json::find(body, "eos_token_ids")) {
    r.eos_token_ids = ids->is_array() ? integers(*ids) : std::vector<int64_t>{ids->get_int64()};
  }
  if (const json::Value* lists = json::find(body, "stop_seqs"); lists != nullptr && lists->is_array()) {
    for (const json::Value& list : lists->get_array()) {
      if (list.is_array()) r.stop_seqs.push_back(integers(list));
    }
  }
  const json::Value* texts = json::find(body, "stop_sequences");
  if (texts == nullptr || !texts->is_array() || !r.stop_seqs.empty()) return;
  for (const json::Value& text : texts->get_array()) {
    if (text.is_string()) r.stop_sequences.emplace_back(text_of(text));
  }
}

}  // namespace

bool is_native(const json::Value& body) {
  const json::Object* object = body.if_object();
  return object != nullptr &&
         std::ranges::any_of(kNativeFields, [&](std::string_view key) { return object->contains(key); });
}

void check_types(json::Object& body, Faults& faults) {
  for (const FieldType& field : kTypes) {
    json::Value* value = body.if_contains(field.name);
    if (value == nullptr) continue;
    if (value->is_null())
      body.erase(field.name);
    else
      check_type(field, *value, faults);
  }
}

std::vector<std::string> check_fields(const json::Object& body) {
  Messages m(body);
  check_sources(m);
  check_lengths(m);
  check_sampling(m);
  return m.take();
}

NativeRequest take_request(json::Object& body) {
  NativeRequest r;
  if (const json::Value* id = json::find(body, "req_id"); id != nullptr && id->is_string()) {
    r.req_id = std::string(text_of(*id));
  }
  for (const auto& [key, place] :
       {std::pair{"input_ids", &r.input_ids}, {"text", &r.text}, {"messages", &r.messages}}) {
    if (json::Value* value = body.if_contains(key)) *place = std::move(*value);
  }
  r.max_dec_len = integer_of(body, {"max_dec_len", "seq_len", "max_tokens"});
  r.min_dec_len = integer_of(body, {"min_dec_len"});
  r.seed = integer_of(body, {"infer_seed", "seed"});
  r.topp = number_of(body, {"topp", "top_p"});
  r.temperature = number_of(body, {"temperature"});
  r.penalty_score = number_of(body, {"penalty_score"}).value_or(1.0);
  r.frequency_score = number_of(body, {"frequency_score"}).value_or(0.0);
  r.presence_score = number_of(body, {"presence_score"}).value_or(0.0);
  take_stops(body, r);
  r.return_all_tokens = flag_of(body, "return_all_tokens");
  r.return_usage = flag_of(body, "return_usage");
  r.stream = flag_of(body, "stream");
  r.benchmark = flag_of(body, "benchmark");
  const json::Value* truncate = json::find(body, "enable_text_truncate");
  r.truncate = truncate == nullptr || !((truncate->is_bool() && !truncate->get_bool()) ||
                                        (truncate->is_int64() && truncate->get_int64() == 0));
  r.timeout = integer_of(body, {"timeout"}).value_or(300);
  return r;
}

}  // namespace tern::serve::native
