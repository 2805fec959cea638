#include <fmt/format.h>

#include <algorithm>

#include "app/config/inert.h"
#include "app/config/settings.h"

namespace tern::app {
namespace {

constexpr int64_t kDefaultModelLen = 2048;
constexpr int64_t kLeastModelLen = 16;
constexpr int64_t kDefaultTokens = 8192;
constexpr int64_t kDefaultTokensLegacy = 2048;
constexpr int64_t kMaxLogprobs = 20;
constexpr int64_t kServerOfSeveral = 512;  // --max-concurrency where each engine has a server of its own
constexpr int64_t kTextBodyBytes = int64_t{64} << 20;
constexpr int64_t kPictureBodyBytes = int64_t{256} << 20;  // a hundred pictures of 1.9 MB each as data: URLs

void fill(FlagSet& flags, std::string_view name, json::Value value) {
  if (!flags.given(name)) flags.set(name, std::move(value), Source::kDerived);
}

void derive_length(FlagSet& flags, const ModelFacts& model, bool whole_prompts, std::vector<std::string>& warnings) {
  const int64_t longest = model.max_position_embeddings;
  if (flags.given("max-model-len")) {
    if (longest > 0 && flags.integer("max-model-len") > longest) {
      warnings.push_back(fmt::format("--max-model-len {} is above the {} positions the model was made for",
                                     flags.integer("max-model-len"), longest));
    }
    return;
  }
  int64_t length = kDefaultModelLen;
  if (longest > 0) length = std::min(length, longest);
  // The legacy scheduler without chunks runs a whole prompt in one step.
  if (whole_prompts && flags.given("max-num-batched-tokens")) {
    length = std::min(length, flags.integer("max-num-batched-tokens"));
  }
  fill(flags, "max-model-len", std::max(length, kLeastModelLen));
}

// The largest budget that is at most the default and obeys the rules; never less than what the lower rules ask.
int64_t derived_tokens(const FlagSet& flags, bool v1, bool chunked) {
  const int64_t length = flags.integer("max-model-len"), sequences = flags.integer("max-num-seqs");
  if (!v1 && !chunked) return std::max(length, sequences);
  const int64_t preferred = v1 ? kDefaultTokens : kDefaultTokensLegacy;
  const int64_t least = std::max(sequences, chunked ? flags.integer("block-size") : 1);
  return std::max(std::min(preferred, length * sequences), least);
}

}  // namespace

void derive(FlagSet& flags, const Environment& environment, const ModelFacts& model,
            std::vector<std::string>& warnings) {
  const bool v1 = environment.boolean("ENABLE_V1_KVCACHE_SCHEDULER");
  fill(flags, "enable-chunked-prefill", !environment.boolean("FD_DISABLE_CHUNKED_PREFILL"));
  const bool chunked = flags.boolean("enable-chunked-prefill");

  derive_length(flags, model, !v1 && !chunked, warnings);
  if (!flags.given("max-num-seqs") && flags.given("max-num-batched-tokens")) {
    fill(flags, "max-num-seqs",
         std::max<int64_t>(1, std::min(flags.integer("max-num-seqs"), flags.integer("max-num-batched-tokens"))));
  }
  fill(flags, "max-num-batched-tokens", derived_tokens(flags, v1, chunked));

  if (environment.boolean("FD_ENABLE_MULTI_API_SERVER")) fill(flags, "max-concurrency", kServerOfSeveral);
  fill(flags, "static-decode-blocks", environment.integer("FD_ENC_DEC_BLOCK_NUM"));
  if (v1) fill(flags, "kv-cache-ratio", 1.0);
  if (flags.integer("long-prefill-token-threshold") == 0) {
    fill(flags, "long-prefill-token-threshold", static_cast<int64_t>(flags.number("max-model-len") * 0.04));
  }
  if (flags.has("logits-processors")) {
    json::Array names;
    for (const std::string& name : flags.texts("logits-processors")) names.emplace_back(processor_name(name));
    flags.set("logits-processors", std::move(names), flags.source("logits-processors"));
  }
  const bool sees = model.pictures && flags.text("deploy-modality") != "text";
  fill(flags, "max-body-bytes", sees ? kPictureBodyBytes : kTextBodyBytes);
  fill(flags, "max-request-memory", std::max<int64_t>(256 << 20, 4 * flags.integer("max-body-bytes")));
  if (const std::string backend = flags.text("guided-decoding-backend");
      backend == "xgrammar" || backend == "guidance") {
    warnings.push_back(fmt::format("--guided-decoding-backend {}: grammars are compiled by llguidance", backend));
  }
  const int64_t logprobs = flags.integer("max-logprobs");
  if ((logprobs > kMaxLogprobs || logprobs < 0) && !environment.boolean("FD_USE_GET_SAVE_OUTPUT_V1")) {
    warnings.push_back(fmt::format("--max-logprobs {} is lowered to {}: higher values need FD_USE_GET_SAVE_OUTPUT_V1=1",
                                   logprobs, kMaxLogprobs));
    flags.set("max-logprobs", kMaxLogprobs, Source::kDerived);
  }
  if (flags.texts("api-key").empty()) {
    json::Array keys;
    for (const std::string& key : environment.texts("FD_API_KEY")) keys.emplace_back(key);
    if (!keys.empty()) flags.set("api-key", std::move(keys), Source::kEnvironment);
  }
}

}  // namespace tern::app
