#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "app/config/cors_settings.h"
#include "app/config/graph_settings.h"
#include "app/config/inert.h"
#include "app/config/settings.h"
#include "device/kv_layout.h"
#include "serve/net/peer.h"

namespace tern::app {
namespace {

constexpr int64_t kLeastModelLen = 16;
constexpr int64_t kMaxCards = 8;

Status wrong(std::string_view flag, const std::string& message) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("--{} {}", flag, message), std::string(flag));
}

Status check_capacity(const FlagSet& flags, const Environment& environment) {
  const int64_t sequences = flags.integer("max-num-seqs"), length = flags.integer("max-model-len");
  if (const int64_t most = environment.integer("TERN_MAX_SEQUENCES"); sequences < 1 || sequences > most) {
    return wrong("max-num-seqs",
                 fmt::format("{} is not between 1 and {} (TERN_MAX_SEQUENCES sets that limit)", sequences, most));
  }
  if (const int64_t block = flags.integer("block-size"); block % kBlockSizeStep != 0) {
    return wrong("block-size", fmt::format("{} is not a multiple of {}: 16, 32, 48, ... 1024", block, kBlockSizeStep));
  }
  if (length < kLeastModelLen) return wrong("max-model-len", fmt::format("{} is below {}", length, kLeastModelLen));
  if (flags.has("num-gpu-blocks-override")) {
    // As engine/block_numbers.cc counts when it knows the memory.
    const bool v1 = environment.boolean("ENABLE_V1_KVCACHE_SCHEDULER");
    const int64_t blocks = flags.integer("num-gpu-blocks-override");
    const double share = v1 ? 1.0 : flags.number("kv-cache-ratio");
    const int64_t output = v1 ? environment.integer("FD_ENC_DEC_BLOCK_NUM") : flags.integer("static-decode-blocks");
    const int64_t needed = length / flags.integer("block-size") + output;
    if (static_cast<int64_t>(static_cast<double>(blocks) * share) < needed) {
      return wrong("num-gpu-blocks-override",
                   fmt::format("{} is too small: one sequence of --max-model-len {} needs {} blocks{}", blocks, length,
                               needed, v1 ? "" : " within the share of --kv-cache-ratio"));
    }
  }
  // A derived budget obeys the rules already.
  if (!flags.given("max-num-batched-tokens")) return {};
  const int64_t tokens = flags.integer("max-num-batched-tokens");
  const bool chunked = flags.boolean("enable-chunked-prefill");
  if (tokens < sequences) {
    return wrong("max-num-batched-tokens", fmt::format("{} is below --max-num-seqs ({})", tokens, sequences));
  }
  if (tokens > length * sequences) {
    return wrong("max-num-batched-tokens",
                 fmt::format("{} is above --max-model-len times --max-num-seqs ({} x {} = {})", tokens, length,
                             sequences, length * sequences));
  }
  if (chunked && tokens < flags.integer("block-size")) {
    return wrong("max-num-batched-tokens", fmt::format("{} is below --block-size ({}), which chunked prefill needs",
                                                       tokens, flags.integer("block-size")));
  }
  if (!chunked && !environment.boolean("ENABLE_V1_KVCACHE_SCHEDULER") && tokens < length) {
    return wrong(
        "max-num-batched-tokens",
        fmt::format("{} is below --max-model-len ({}), which the legacy scheduler needs without chunked prefill",
                    tokens, length));
  }
  return {};
}

Expected<int64_t> key_in_range(const FlagSet& flags, std::string_view flag, std::string_view key, int64_t fallback,
                               int64_t min, int64_t max) {
  const json::Object* object = flags.get(flag).if_object();
  auto value = json::get_int(*object, key);
  if (!value.ok()) return wrong(flag, value.error().message).error();
  const int64_t number = value->value_or(fallback);
  if (number < min || number > max) {
    return wrong(flag, fmt::format("{} {} is not between {} and {}", key, number, min, max)).error();
  }
  return number;
}

Status check_speculation(const FlagSet& flags) {
  const json::Object* config = flags.get("speculative-config").if_object();
  if (config == nullptr) return {};
  constexpr std::string_view kFlag = "speculative-config";
  auto method = json::get_string(*config, "method");
  if (!method.ok()) return wrong(kFlag, method.error().message);
  constexpr std::array<std::string_view, 6> kMethods = {"mtp",    "ngram",       "naive",
                                                        "suffix", "ngram_match", "hybrid_mtp_ngram"};
  if (!*method) return {};
  if (std::find(kMethods.begin(), kMethods.end(), **method) == kMethods.end()) {
    return wrong(kFlag, fmt::format("method \"{}\" is none of mtp, ngram, naive, suffix", **method));
  }
  TERN_ASSIGN_OR_RETURN(const int64_t tokens, key_in_range(flags, kFlag, "num_speculative_tokens", 1, 1, 5));
  TERN_ASSIGN_OR_RETURN(const int64_t steps, key_in_range(flags, kFlag, "num_model_steps", 1, 1, 5));
  if (steps > tokens) {
    return wrong(kFlag, fmt::format("num_model_steps {} is above num_speculative_tokens {}", steps, tokens));
  }
  if (flags.given("guided-decoding-backend") && flags.text("guided-decoding-backend") != "off") {
    return wrong("guided-decoding-backend", "cannot be combined with --speculative-config");
  }
  if (flags.text("logprobs-mode").starts_with("processed")) {
    return wrong("logprobs-mode",
                 fmt::format("{} cannot be combined with --speculative-config", flags.text("logprobs-mode")));
  }
  return {};
}

Status check_data_parallel(const FlagSet& flags) {
  const int64_t size = flags.integer("data-parallel-size"), id = flags.integer("local-data-parallel-id");
  if (id >= size) {
    return wrong("local-data-parallel-id",
                 fmt::format("{}: engines of --data-parallel-size {} are counted from 0", id, size));
  }
  if (size > 1 && flags.given("local-data-parallel-id") && flags.boolean("enable-expert-parallel")) {
    return wrong("enable-expert-parallel",
                 fmt::format("with --data-parallel-size {} deals experts to the ranks of all engines, which must be in "
                             "one process; without --local-data-parallel-id they are",
                             size));
  }
  return {};
}

Status check_quantization(const FlagSet& flags) {
  const auto read = model::read_quantization(flags.get("quantization"), "");
  return read.ok() ? Status() : wrong("quantization", read.error().message);
}

Status check_early_stop(const FlagSet& flags) {
  const json::Object* config = flags.get("early-stop-config").if_object();
  if (config == nullptr) return {};
  for (const auto& member : *config) {
    const std::string_view key = member.key();
    if (key == "enable_early_stop" || key == "strategy" || key == "window_size" || key == "threshold") continue;
    return wrong("early-stop-config", fmt::format("has no key \"{}\"; its keys are enable_early_stop, strategy, "
                                                  "window_size and threshold",
                                                  key));
  }
  auto strategy = json::get_string(*config, "strategy");
  if (!strategy.ok()) return wrong("early-stop-config", strategy.error().message);
  if (strategy->value_or("repetition") != "repetition") {
    return wrong("early-stop-config", fmt::format("strategy \"{}\" is not \"repetition\"", **strategy));
  }
  TERN_RETURN_IF_ERROR(key_in_range(flags, "early-stop-config", "window_size", 3000, 1, 1 << 30));
  auto threshold = json::get_double(*config, "threshold");
  if (!threshold.ok()) return wrong("early-stop-config", threshold.error().message);
  if (*threshold && !(**threshold >= 0 && **threshold <= 1)) {
    return wrong("early-stop-config", fmt::format("threshold {} is not between 0 and 1", **threshold));
  }
  auto on = json::get_bool(*config, "enable_early_stop");
  return on.ok() ? Status() : wrong("early-stop-config", on.error().message);
}

Status check_processors(const FlagSet& flags) {
  for (const std::string& name : flags.texts("logits-processors")) {
    if (name == kLogitBias || name == kThinkingBudget) continue;
    return wrong("logits-processors",
                 fmt::format("{} is not built in; {} and {} are, and no Python code runs in this server", name,
                             kLogitBias, kThinkingBudget));
  }
  return {};
}

Status check_ports(const FlagSet& flags) {
  if (!flags.text("uds").empty()) {
    for (const char* other : {"host", "port", "metrics-port", "controller-port"}) {
      if (flags.given(other))
        return wrong("uds", fmt::format("with a Unix socket no port is opened: leave out --{}", other));
    }
    return {};
  }
  const int64_t port = flags.integer("port"), controller = flags.integer("controller-port");
  const int64_t metrics = flags.has("metrics-port") ? flags.integer("metrics-port") : port;
  if (controller > 0 && (controller == port || controller == metrics)) {
    return wrong("controller-port", fmt::format("{} is already --port or --metrics-port", controller));
  }
  return {};
}

// A body that no budget can hold would never be answered.
Status check_memory(const FlagSet& flags) {
  const int64_t memory = flags.integer("max-request-memory"), body = flags.integer("max-body-bytes");
  if (memory / 2 < body) {
    return wrong("max-request-memory", fmt::format("{} is less than twice --max-body-bytes ({})", memory, body));
  }
  for (const std::string& text : flags.texts("trusted-proxies")) {
    if (auto network = serve::net::parse_network(text); !network.ok()) {
      return wrong("trusted-proxies", network.error().message);
    }
  }
  return {};
}

}  // namespace

Status validate(const FlagSet& flags, const Environment& environment) {
  TERN_RETURN_IF_ERROR(check_capacity(flags, environment));
  if (flags.integer("max-long-partial-prefills") > flags.integer("max-num-partial-prefills")) {
    return wrong("max-long-partial-prefills",
                 fmt::format("{} is above --max-num-partial-prefills ({})", flags.integer("max-long-partial-prefills"),
                             flags.integer("max-num-partial-prefills")));
  }
  const int64_t cards = flags.integer("tensor-parallel-size") * flags.integer("data-parallel-size");
  if (cards > kMaxCards) {
    return wrong("tensor-parallel-size",
                 fmt::format("{} times --data-parallel-size {} is more than the {} cards of a node",
                             flags.integer("tensor-parallel-size"), flags.integer("data-parallel-size"), kMaxCards));
  }
  TERN_RETURN_IF_ERROR(check_data_parallel(flags));
  TERN_RETURN_IF_ERROR(check_speculation(flags));
  TERN_RETURN_IF_ERROR(check_quantization(flags));
  TERN_RETURN_IF_ERROR(check_early_stop(flags));
  TERN_RETURN_IF_ERROR(check_processors(flags));
  TERN_RETURN_IF_ERROR(graph_settings(flags));
  TERN_RETURN_IF_ERROR(cors_settings(flags));
  TERN_RETURN_IF_ERROR(check_ports(flags));
  TERN_RETURN_IF_ERROR(check_memory(flags));
  TERN_RETURN_IF_ERROR(validate_media(flags));
  return {};
}

}  // namespace tern::app
