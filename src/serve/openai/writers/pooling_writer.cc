// Answers of pooling models (fastdeploy.md 3.13): whole, a vector or scores for each prompt.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <span>

#include "json/json.h"
#include "serve/core/generation.h"
#include "serve/openai/json/writers.h"
#include "serve/openai/writers/make_writer.h"

namespace tern::serve::openai {
namespace {

// The shortest decimals that say these float32 values.
void append_floats(std::span<const float> values, std::string& out) {
  out += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    fmt::format_to(std::back_inserter(out), "{}", values[i]);
  }
  out += ']';
}

// Of the values' bytes, little end first.
void append_base64(std::span<const float> values, std::string& out) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  const size_t n = values.size_bytes();
  for (size_t i = 0; i < n; i += 3) {
    uint32_t word = 0;
    for (size_t j = 0; j < 3; ++j) word = word << 8 | (i + j < n ? bytes[i + j] : 0u);
    for (size_t j = 0; j < 4; ++j) out += i + j <= n ? kDigits[word >> (18 - 6 * j) & 63] : '=';
  }
}

void normalize(std::span<float> values) {
  double square = 0;
  for (const float v : values) square += static_cast<double>(v) * static_cast<double>(v);
  const double length = std::max(std::sqrt(square), 1e-12);
  for (float& v : values) v = static_cast<float>(static_cast<double>(v) / length);
}

// Of one label the logistic function.
void to_probabilities(std::span<float> values) {
  if (values.size() == 1) {
    values[0] = static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(values[0]))));
    return;
  }
  const double top = *std::ranges::max_element(values);
  double sum = 0;
  for (const float v : values) sum += std::exp(static_cast<double>(v) - top);
  for (float& v : values) v = static_cast<float>(std::exp(static_cast<double>(v) - top) / sum);
}

class PoolingWriter final : public Writer {
 public:
  explicit PoolingWriter(const Generation& generation, const PoolingConfig& config)
      : g_(generation), ask_(generation.ask()), config_(config) {}

  void take(const Choice&, TokenNews&, std::string&) override {}
  void end(std::string&) override {}
  void fail(const Error&, std::string&) override {}
  std::string body() const override;
  size_t weight() const override {
    size_t values = 0;
    for (const Choice& choice : g_.choices()) values += choice.pooled.size();
    return 12 * values;
  }

 private:
  void append_embedding(const Choice& choice, std::string& out) const;
  void append_scores(const Choice& choice, std::string& out) const;
  std::vector<float> scores(std::span<const float> row) const;
  void append_ids(const Choice& choice, std::string& out) const;

  const Generation& g_;
  const Ask& ask_;
  const PoolingConfig& config_;
};

void PoolingWriter::append_embedding(const Choice& choice, std::string& out) const {
  const PoolingAsk& pooling = *ask_.pooling;
  std::vector<float> values = choice.pooled;
  if (pooling.dimensions) values.resize(static_cast<size_t>(*pooling.dimensions));
  if (pooling.normalize) normalize(values);
  if (!pooling.base64) return append_floats(values, out);
  out += '"';
  append_base64(values, out);
  out += '"';
}

std::vector<float> PoolingWriter::scores(std::span<const float> row) const {
  std::vector<float> values;
  if (config_.labels.empty()) values.assign(row.begin(), row.end());
  for (const int32_t label : config_.labels) values.push_back(row[static_cast<size_t>(label)]);
  if (config_.softmax) to_probabilities(values);
  return values;
}

// A list of values, or where several tokens are scored, one for each of them.
void PoolingWriter::append_scores(const Choice& choice, std::string& out) const {
  const auto width = static_cast<size_t>(config_.width);
  if (config_.rows != engine::PooledRows::kAll) return append_floats(scores(choice.pooled), out);
  const std::vector<int32_t>& ids = g_.prompt(choice).ids;
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (config_.step_tag_id && ids[i] != *config_.step_tag_id) continue;
    if (out.back() != '[') out += ',';
    append_floats(scores(std::span(choice.pooled).subspan(i * width, width)), out);
  }
  out += ']';
}

void PoolingWriter::append_ids(const Choice& choice, std::string& out) const {
  if (!ask_.return_token_ids) return;
  out += ",\"prompt_token_ids\":";
  openai::append_ids(out, g_.prompt(choice).ids);
  out += ",\"prompt_tokens\":";
  json::append_quoted(out, g_.prompt(choice).text);
}

std::string PoolingWriter::body() const {
  std::string out = "{\"id\":";
  json::append_quoted(out, g_.id());
  out += config_.rewards ? ",\"object\":\"object\"" : ",\"object\":\"list\"";
  out += ",\"created\":";
  append_int(out, g_.created());
  out += ",\"model\":";
  json::append_quoted(out, g_.model());
  out += ",\"data\":[";
  for (const Choice& choice : g_.choices()) {
    if (choice.index > 0) out += ',';
    out += "{\"index\":";
    append_int(out, choice.index);
    out += config_.rewards ? ",\"object\":\"reward\",\"score\":" : ",\"object\":\"embedding\",\"embedding\":";
    config_.rewards ? append_scores(choice, out) : append_embedding(choice, out);
    append_ids(choice, out);
    out += '}';
  }
  const int64_t tokens = g_.usage().prompt;
  fmt::format_to(std::back_inserter(out), "],\"usage\":{{\"prompt_tokens\":{0},\"total_tokens\":{0}}}}}", tokens);
  return out;
}

}  // namespace

std::unique_ptr<Writer> make_pooling_writer(const Generation& generation) {
  return std::make_unique<PoolingWriter>(generation, generation.pooling());
}

}  // namespace tern::serve::openai
