#include "bench/requests/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "content/text/tokenizer.h"

namespace tern::bench {
namespace {

constexpr size_t kMaxLine = size_t{64} << 20;
constexpr size_t kMaxFile = size_t{2} << 30;
// As the published benchmark filters ShareGPT.
constexpr size_t kLeastTokens = 4, kMostPrompt = 1024, kMostTokens = 2048;

Error corrupt(const FileOptions& o, size_t number, std::string_view what) {
  return make_error(ErrorCode::kCorrupt, fmt::format("{}: request {} {}", o.path, number, what), "dataset-path");
}

// {"messages": [...], "max_tokens": N}, or the list of messages itself.
Expected<Sample> read_chat(const FileOptions& o, const json::Value& value, size_t number) {
  const json::Object* object = value.if_object();
  const json::Value* messages = object != nullptr ? json::find(*object, "messages") : &value;
  if (messages == nullptr || !messages->is_array() || messages->get_array().empty())
    return corrupt(o, number, "has no messages");
  Sample sample;
  sample.messages = messages->get_array();
  if (object == nullptr) return sample;
  TERN_ASSIGN_OR_RETURN(const auto most, json::get_int(*object, "max_tokens"));
  sample.output_len = static_cast<int>(std::clamp<int64_t>(most.value_or(0), 0, 1 << 30));
  return sample;
}

// {"text", "max_dec_len", "temperature", "penalty_score", "frequency_score", "presence_score", "topp"}.
Expected<Sample> read_text(const FileOptions& o, const json::Value& value, size_t number) {
  const json::Object* object = value.if_object();
  if (object == nullptr) return corrupt(o, number, "is no JSON object");
  TERN_ASSIGN_OR_RETURN(const auto text, json::get_string(*object, "text"));
  if (!text) return corrupt(o, number, "has no text");
  Sample sample;
  sample.text = *text;
  TERN_ASSIGN_OR_RETURN(const auto most, json::get_int(*object, "max_dec_len"));
  sample.output_len = static_cast<int>(std::clamp<int64_t>(most.value_or(0), 0, 1 << 30));
  for (const auto& [theirs, ours] : {std::pair{"temperature", "temperature"},
                                     {"penalty_score", "repetition_penalty"},
                                     {"frequency_score", "frequency_penalty"},
                                     {"presence_score", "presence_penalty"},
                                     {"topp", "top_p"}}) {
    TERN_ASSIGN_OR_RETURN(const auto number_of, json::get_double(*object, theirs));
    if (number_of) sample.fields[ours] = *number_of;
  }
  return sample;
}

std::string turn(const json::Array& conversation, size_t index) {
  const json::Object* object = index < conversation.size() ? conversation[index].if_object() : nullptr;
  const json::Value* value = object != nullptr ? json::find(*object, "value") : nullptr;
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

// {"conversations": [{"from", "value"}, …]}: the first turn asks, the second says how long the answer is. An empty
// sample for one that is left out.
Expected<Sample> read_conversation(const FileOptions& o, const json::Value& value, size_t number) {
  const json::Object* object = value.if_object();
  const json::Value* found = object != nullptr ? json::find(*object, "conversations") : nullptr;
  if (found == nullptr || !found->is_array()) return corrupt(o, number, "has no conversations");
  Sample sample;
  const std::string asked = turn(found->get_array(), 0), answered = turn(found->get_array(), 1);
  if (asked.empty() || answered.empty()) return sample;
  if (o.tokenizer != nullptr) {
    TERN_ASSIGN_OR_RETURN(const auto prompt, o.tokenizer->encode(asked, false));
    TERN_ASSIGN_OR_RETURN(const auto answer, o.tokenizer->encode(answered, false));
    const size_t length = o.output_len > 0 ? static_cast<size_t>(o.output_len) : answer.size();
    if (prompt.size() < kLeastTokens || (o.output_len == 0 && length < kLeastTokens) || prompt.size() > kMostPrompt ||
        prompt.size() + length > kMostTokens)
      return sample;
    sample.output_len = static_cast<int>(length);
  }
  sample.messages.push_back(json::Object{{"role", "user"}, {"content", asked}});
  return sample;
}

Expected<Sample> read_one(const FileOptions& o, const json::Value& value, size_t number) {
  if (o.name == "EB") return read_text(o, value, number);
  if (o.name == "sharegpt") return read_conversation(o, value, number);
  return read_chat(o, value, number);
}

// A JSON list, or JSON lines.
Status read_values(const FileOptions& o, std::vector<json::Value>& values) {
  std::ifstream file(o.path);
  if (!file) return make_error(ErrorCode::kNotFound, fmt::format("{} cannot be read", o.path), "dataset-path");
  file >> std::ws;
  if (o.name == "sharegpt" && file.peek() == '[') {
    TERN_ASSIGN_OR_RETURN(json::Value all, json::parse_file(o.path, {.max_bytes = kMaxFile}));
    for (json::Value& value : all.get_array()) values.push_back(std::move(value));
    return {};
  }
  for (std::string line; std::getline(file, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto value = json::parse(line, {.max_bytes = kMaxLine});
    if (!value.ok()) return corrupt(o, values.size() + 1, "is no JSON: " + value.error().message);
    values.push_back(std::move(*value));
    if (!o.shuffle && o.name != "sharegpt" && static_cast<int>(values.size()) >= o.count) break;
  }
  return {};
}

}  // namespace

std::string last_text(const Sample& sample) {
  if (sample.messages.empty()) return sample.text;
  const json::Object* message = sample.messages.back().if_object();
  const json::Value* content = message != nullptr ? json::find(*message, "content") : nullptr;
  return content != nullptr && content->is_string() ? std::string(content->get_string()) : std::string();
}

Expected<std::vector<Sample>> read_samples(const FileOptions& o) {
  std::vector<json::Value> values;
  TERN_RETURN_IF_ERROR(read_values(o, values));
  std::mt19937_64 random(o.seed);
  if (o.shuffle) std::shuffle(values.begin(), values.end(), random);
  std::vector<Sample> samples;
  for (size_t i = 0; i < values.size() && static_cast<int>(samples.size()) < o.count; ++i) {
    TERN_ASSIGN_OR_RETURN(Sample sample, read_one(o, values[i], i + 1));
    if (sample.messages.empty() && sample.text.empty()) continue;
    if (o.output_len > 0) sample.output_len = o.output_len;
    samples.push_back(std::move(sample));
  }
  if (samples.empty()) return make_error(ErrorCode::kInvalidArgument, o.path + " has no requests", "dataset-path");
  const size_t read = samples.size();
  while (o.oversample && static_cast<int>(samples.size()) < o.count)
    samples.push_back(samples[std::uniform_int_distribution<size_t>(0, read - 1)(random)]);
  return samples;
}

Sample random_sample(const RandomOptions& o, int index) {
  std::mt19937_64 shared(o.seed), own(o.seed * 1'000'003 + static_cast<uint64_t>(index) + 1);
  std::uniform_int_distribution<int32_t> id(o.least_id, o.vocab - 1);
  const auto spread = [&](int length) {
    if (o.range_ratio <= 0) return length;
    const double ratio = std::uniform_real_distribution<double>(1 - o.range_ratio, 1 + o.range_ratio)(own);
    return std::max(1, static_cast<int>(length * ratio));
  };
  Sample sample;
  for (int i = 0; i < o.prefix_len; ++i) sample.ids.push_back(id(shared));
  const int length = spread(o.input_len);
  for (int i = 0; i < length; ++i) sample.ids.push_back(id(own));
  sample.output_len = spread(o.output_len);
  return sample;
}

}  // namespace tern::bench
