// Fields about log-probabilities and biases (fastdeploy.md 3.1, 3.9).
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "serve/openai/ask_parts.h"

namespace tern::serve::openai {
namespace {

void read_bias_map(Fields& f, const json::Object& map, Ask& ask, const ServeConfig& config) {
  if (map.size() > static_cast<size_t>(config.limits.logit_bias)) {
    return f.fail(fmt::format("logit_bias may have at most {} entries", config.limits.logit_bias), "logit_bias");
  }
  for (const auto& [key, value] : map) {
    const std::string_view text(key.data(), key.size());
    int32_t id = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), id);
    if (end.ec != std::errc() || end.ptr != text.data() + text.size() || id < 0 || id >= config.vocab_size) {
      return f.fail(fmt::format("logit_bias: \"{}\" is no token id below {}", text.substr(0, 32), config.vocab_size),
                    "logit_bias");
    }
    const double bias = value.is_double()  ? value.get_double()
                        : value.is_int64() ? static_cast<double>(value.get_int64())
                                           : std::numeric_limits<double>::quiet_NaN();
    if (!(std::fabs(bias) <= 1e6)) return f.fail("logit_bias: a bias must be a number within +-1e6", "logit_bias");
    ask.logit_bias.emplace_back(id, static_cast<float>(bias));
  }
}

// Shared by `top_logprobs`, the completions' `logprobs` and `prompt_logprobs`: -1 asks for the whole vocabulary.
std::optional<int32_t> alternatives(Fields& f, std::string_view key, const ServeConfig& config) {
  std::optional<int32_t> count;
  if (const json::Value* v = f.find(key); v != nullptr && v->is_string()) {
    f.fail("Input should be a valid integer", key);  // the original compares it before it reads it
  }
  f.integer(key, count, -1, std::numeric_limits<int32_t>::max());
  if (!count) return count;
  const int32_t limit = config.max_logprobs < 0 ? config.vocab_size : config.max_logprobs;
  const int32_t wanted = *count < 0 ? config.vocab_size : *count;
  if (wanted > limit) {
    f.fail(fmt::format("Number of {} requested ({}) exceeds maximum allowed value ({}).", key, *count, limit), key);
  }
  return std::min(wanted, config.vocab_size);
}

}  // namespace

void read_bias(Fields& f, Ask& ask, const ServeConfig& config) {
  if (const json::Object* map = f.object("logit_bias")) read_bias_map(f, *map, ask, config);
  const json::Object* args = f.object("logits_processors_args");
  if (args == nullptr || args->empty()) return;
  const json::Value* bias = json::find(*args, "logit_bias");
  if (bias == nullptr) return;
  if (!config.logit_bias_processor) {
    return f.fail("logit_bias needs a server started with --logits-processors LogitBiasLogitsProcessor",
                  "logits_processors_args");
  }
  if (!bias->is_object()) return f.fail("Input should be a valid dictionary", "logit_bias");
  ask.logit_bias.clear();
  read_bias_map(f, bias->get_object(), ask, config);
}

void read_logprobs(Fields& f, Ask& ask, const ServeConfig& config) {
  constexpr const char* kDisabled = "Logprobs is disabled, please enable it in startup config.";
  std::string_view asked;
  if (ask.chat) {
    f.boolean("logprobs", ask.logprobs);
    const auto top = alternatives(f, "top_logprobs", config);
    if (top && !ask.logprobs && *top > 0) {
      f.fail("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs");
    }
    ask.top_logprobs = top.value_or(0);
    if (ask.logprobs) asked = "logprobs";
  } else if (const json::Value* off = f.find("logprobs"); off != nullptr && off->is_bool() && !off->get_bool()) {
    // What a chat client writes for none.
  } else if (const auto top = alternatives(f, "logprobs", config)) {  // true is 1
    ask.logprobs = true;
    ask.top_logprobs = *top;
    asked = "logprobs";
  }
  ask.prompt_logprobs = alternatives(f, "prompt_logprobs", config);
  if (ask.prompt_logprobs) {
    asked = "prompt_logprobs";
    if (config.enable_logprob && !config.prompt_logprobs_allowed) {
      f.fail("prompt_logprobs needs a server started with --no-enable-prefix-caching", "prompt_logprobs");
    }
  }
  if (!asked.empty() && !config.enable_logprob) f.fail(kDisabled, asked);
  f.boolean("include_logprobs_decode_token", ask.decode_logprob_tokens);
  f.boolean("temp_scaled_logprobs", ask.temp_scaled_logprobs);
  f.boolean("top_p_normalized_logprobs", ask.top_p_normalized_logprobs);
}

}  // namespace tern::serve::openai
