#include "app/flags/flags.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "answer/answer_parser.h"
#include "app/flags/environment.h"
#include "app/flags/flag_set.h"
#include "app/flags/values.h"

namespace tern::app {
namespace {

using Args = std::vector<std::string>;

FlagSet parsed(const Args& args) {
  auto result = parse_arguments(args);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? std::move(result->flags) : FlagSet();
}

std::string failure(const Args& args) {
  auto result = parse_arguments(args);
  EXPECT_FALSE(result.ok());
  return result.ok() ? "" : result.error().message;
}

TEST(FlagTable, NamesAreUniqueAndEveryRowIsComplete) {
  std::set<std::string> names;
  for (const FlagSpec& flag : flag_table()) {
    EXPECT_TRUE(names.insert(with_underscores(flag.name)).second) << flag.name;
    for (const auto alias : split(flag.aliases, '|'))
      EXPECT_TRUE(names.insert(with_underscores(alias)).second) << alias;
    EXPECT_FALSE(flag.meaning.empty()) << flag.name;
    const bool needs_reason = flag.support != Support::kActs || !flag.refused.empty();
    EXPECT_TRUE(!needs_reason || !flag.reason.empty()) << flag.name;
    EXPECT_TRUE(flag.support == Support::kInert || (flag.neutral.empty() && flag.neutral_key.empty())) << flag.name;
    EXPECT_EQ(flag.type == ValueType::kEnum, !flag.choices.empty()) << flag.name;
  }
  EXPECT_GT(names.size(), 120u);
}

// fastdeploy.md 1.2 to 1.9: no flag may be unknown.
TEST(FlagTable, HoldsEveryFastDeployFlag) {
  const std::string all =
      "host port workers metrics-port controller-port max-waiting-time max-concurrency timeout "
      "timeout-graceful-shutdown "
      "api-key enable-mm-output model served-model-name revision model-config-name tokenizer tokenizer-base-url "
      "max-model-len block-size task runner convert model-impl override-pooler-config use-warmup limit-mm-per-prompt "
      "mm-processor-kwargs max-processor-cache max-encoder-cache enable-mm deploy-modality reasoning-parser "
      "tool-call-parser tool-parser-plugin chat-template speculative-config dynamic-load-weight load-strategy "
      "rsync-config "
      "engine-worker-queue-port quantization graph-optimization-config use-cudagraph plas-attention-config "
      "moba-attention-config guided-decoding-backend guided-decoding-disable-any-whitespace logits-processors "
      "enable-logprob max-logprobs logprobs-mode enable-keep-sampling-mask enable-entropy seed enable-early-stop "
      "early-stop-config lm_head-fp32 routing-replay-config tensor-parallel-size tp data-parallel-size "
      "local-data-parallel-id enable-expert-parallel enable-eplb eplb-config max-num-seqs num-gpu-blocks-override "
      "max-num-batched-tokens gpu-memory-utilization disable-custom-all-reduce enable-custom-all-reduce "
      "enable-flashinfer-allreduce-fusion use-internode-ll-two-stage disable-sequence-parallel-moe "
      "shutdown-comm-group-if-worker-idle enable-chunked-moe chunked-moe-size ep-prefill-use-worst-num-tokens ips "
      "load-choices kv-cache-ratio static-decode-blocks prealloc-dec-block-slot-num-threshold swap-space "
      "cache-queue-port "
      "kvcache-storage-backend write-policy enable-prefix-caching enable-output-caching enable-chunked-prefill "
      "max-num-partial-prefills max-long-partial-prefills long-prefill-token-threshold disable-chunked-mm-input "
      "enable-overlap-schedule splitwise-role innode-prefill-ports cache-transfer-protocol pd-comm-port "
      "rdma-comm-ports "
      "router scheduler-name scheduler-max-size scheduler-ttl scheduler-host scheduler-port scheduler-db "
      "scheduler-password scheduler-topic scheduler-min-load-score scheduler-load-shards-num scheduler-sync-period "
      "scheduler-expire-period scheduler-release-load-expire-period scheduler-reader-parallel "
      "scheduler-writer-parallel "
      "scheduler-reader-batch-size scheduler-writer-batch-size config";
  for (const auto name : split(all, ' ')) EXPECT_NE(find_flag(name), nullptr) << name;
}

// The rows of the parsers name what the room of answers knows.
TEST(FlagTable, ParsersAreThoseThatAreThere) {
  const auto choices = [](std::string_view flag) {
    std::set<std::string> out;
    for (const auto name : split(find_flag(flag)->choices, '|')) out.emplace(name);
    return out;
  };
  std::set<std::string> reasoning = {"ernie_x1"}, tools;  // a second spelling
  for (const auto& format : answer::reasoning_formats()) reasoning.emplace(format.name);
  for (const auto& format : answer::tool_formats()) tools.emplace(format.name);
  EXPECT_EQ(choices("reasoning-parser"), reasoning);
  EXPECT_EQ(choices("tool-call-parser"), tools);
}

TEST(Arguments, DashesAndUnderscoresAreTheSame) {
  const FlagSet flags = parsed({"--max_model_len", "128", "--max-num_seqs=4", "-tp", "2", "--lm_head-fp32"});
  EXPECT_EQ(flags.integer("max-model-len"), 128);
  EXPECT_EQ(flags.integer("max-num-seqs"), 4);
  EXPECT_EQ(flags.integer("tensor-parallel-size"), 2);
  EXPECT_TRUE(flags.boolean("lm-head-fp32"));
  EXPECT_EQ(flags.source("max-model-len"), Source::kCommandLine);
  EXPECT_FALSE(flags.given("block-size"));
}

TEST(Arguments, SwitchesTakeNoNoAndValues) {
  EXPECT_FALSE(parsed({"--no-enable-prefix-caching"}).boolean("enable-prefix-caching"));
  EXPECT_FALSE(parsed({"--no_enable_prefix_caching"}).boolean("enable-prefix-caching"));
  EXPECT_FALSE(parsed({"--enable-prefix-caching", "False"}).boolean("enable-prefix-caching"));
  EXPECT_TRUE(parsed({"--enable-logprob=1"}).boolean("enable-logprob"));
  EXPECT_TRUE(parsed({"--enable-logprob", "--port", "1"}).boolean("enable-logprob"));
  EXPECT_NE(failure({"--no-port"}).find("is no switch"), std::string::npos);
  EXPECT_NE(failure({"--enable-logprob=maybe"}).find("neither true nor false"), std::string::npos);
}

TEST(Arguments, ValuesAreTyped) {
  const FlagSet flags = parsed({"--max-waiting-time", "-1", "--gpu-memory-utilization", "0.5", "--limit-mm-per-prompt",
                                R"({"image": 3})", "--engine-worker-queue-port", "1,2", "--logits-processors",
                                "LogitBiasLogitsProcessor", "B,C", "--quantization", R"({"quantization": "wint4"})"});
  EXPECT_EQ(flags.integer("max-waiting-time"), -1);
  EXPECT_DOUBLE_EQ(flags.number("gpu-memory-utilization"), 0.5);
  EXPECT_EQ(flags.get("limit-mm-per-prompt").at("image").as_int64(), 3);
  EXPECT_EQ(flags.get("engine-worker-queue-port").as_array().size(), 2u);
  EXPECT_EQ(flags.texts("logits-processors"), (std::vector<std::string>{"LogitBiasLogitsProcessor", "B", "C"}));
  EXPECT_TRUE(flags.get("quantization").is_object());
}

TEST(Arguments, MistakesAreOneClearLine) {
  EXPECT_NE(failure({"--max-num-seq", "4"}).find("unknown flag --max-num-seq; the nearest is --max-num-seqs"),
            std::string::npos);
  EXPECT_EQ(failure({"--zzzzzzzzzzzz"}).find("nearest"), std::string::npos);
  EXPECT_EQ(failure({"--port", "70000"}), "--port: 70000 is above 65535");
  EXPECT_EQ(failure({"--port", "80x"}), "--port: \"80x\" is not a whole number");
  EXPECT_EQ(failure({"--port", "99999999999999999999"}), "--port: \"99999999999999999999\" is out of range");
  EXPECT_NE(failure({"--port"}).find("--port needs a value"), std::string::npos);
  EXPECT_NE(failure({"--port", "--host", "x"}).find("--port needs a value"), std::string::npos);
  EXPECT_NE(failure({"--gpu-memory-utilization", "nan"}).find("not a number"), std::string::npos);
  EXPECT_NE(failure({"--task", "dance"}).find("none of auto, generate"), std::string::npos);
  EXPECT_NE(failure({"--limit-mm-per-prompt", "[1]"}).find("not a JSON object"), std::string::npos);
  EXPECT_NE(failure({"--limit-mm-per-prompt", "{"}).find("is not JSON"), std::string::npos);
  EXPECT_NE(failure({"stray"}).find("unexpected argument \"stray\""), std::string::npos);
  EXPECT_NE(failure({"--api-key", ""}).find("is empty"), std::string::npos);
}

TEST(Arguments, RefusedFlagsAndValuesSayWhy) {
  EXPECT_NE(failure({"--ips", "10.0.0.1"}).find("--ips is not available: this build runs on one node"),
            std::string::npos);
  EXPECT_EQ(failure({"--moba-attention-config", "{}"}),
            "--plas-attention-config is not available: attention is exact in this build");
  EXPECT_NE(failure({"--load-strategy", "rsync"}).find("weights come from a folder"), std::string::npos);
  EXPECT_EQ(parsed({"--splitwise-role", "mixed", "--no-dynamic-load-weight"}).text("splitwise-role"), "mixed");
}

TEST(Arguments, TheLastValueCountsButKeysAddUp) {
  const FlagSet flags = parsed({"--port", "1", "--api-key", "a,b", "--port", "2", "--api-key=c"});
  EXPECT_EQ(flags.integer("port"), 2);
  EXPECT_EQ(flags.texts("api-key"), (std::vector<std::string>{"a,b", "c"}));
}

TEST(ConfigFile, TheCommandLineWins) {
  const std::string path = testing::TempDir() + "/tern_flags_test.yaml";
  std::ofstream(path)
      << "max_model_len: 256\nport: 9000\nenable-prefix-caching: false\nlimit_mm_per_prompt: '{\"image\":100}'\n"
         "early_stop_config: {strategy: repetition, window_size: 5, threshold: 0.5, enable_early_stop: true}\n"
         "api-key: [x, 'y']\nquantization: wint8\nmetrics_port:\n";
  const FlagSet flags = parsed({"--config", path, "--port=9001"});
  EXPECT_EQ(flags.integer("max-model-len"), 256);
  EXPECT_EQ(flags.source("max-model-len"), Source::kFile);
  EXPECT_EQ(flags.integer("port"), 9001);
  EXPECT_FALSE(flags.boolean("enable-prefix-caching"));
  EXPECT_EQ(flags.get("limit-mm-per-prompt").at("image").as_int64(), 100);
  EXPECT_EQ(flags.get("early-stop-config").at("window_size").as_int64(), 5);
  EXPECT_TRUE(flags.get("early-stop-config").at("enable_early_stop").as_bool());
  EXPECT_EQ(flags.texts("api-key"), (std::vector<std::string>{"x", "y"}));
  EXPECT_FALSE(flags.given("metrics-port"));
  std::filesystem::remove(path);
}

TEST(ConfigFile, MistakesNameTheFileAndLine) {
  FlagSet flags;
  auto text = [&](const std::string& yaml) {
    const Status status = read_config_text(yaml, "f.yaml", flags);
    return status.ok() ? std::string("ok") : status.error().message;
  };
  EXPECT_EQ(text("port: 1\nmax_num_seq: 3\n"), "f.yaml, line 2: unknown key max_num_seq; the nearest is max_num_seqs");
  EXPECT_EQ(text("port: many\n"), "f.yaml, line 1: --port: \"many\" is not a whole number");
  EXPECT_NE(text("- 1\n- 2\n").find("no mapping"), std::string::npos);
  EXPECT_NE(text("a: [1\n").find("f.yaml: "), std::string::npos);
  EXPECT_NE(text("config: other.yaml\n").find("unknown key config"), std::string::npos);
  EXPECT_NE(text("host: " + std::string(2 << 20, 'x')).find("at most"), std::string::npos);
  EXPECT_EQ(text(""), "ok");
  // Aliases that would unfold to a billion values.
  std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    bomb += fmt::format("{0}: &{0} [*{1},*{1},*{1},*{1},*{1},*{1},*{1},*{1},*{1}]\n", c, static_cast<char>(c - 1));
  }
  EXPECT_NE(text("limit_mm_per_prompt:\n  x: 1\n" + bomb).find("unknown key a"), std::string::npos);
  std::string nested = "mm_processor_kwargs:\n  a: &a [x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    nested += fmt::format("  {0}: &{0} [*{1},*{1},*{1},*{1},*{1},*{1},*{1},*{1},*{1}]\n", c, static_cast<char>(c - 1));
  }
  EXPECT_NE(text(nested).find("too many values"), std::string::npos);
  EXPECT_FALSE(parse_arguments({"--config", "/nowhere/f.yaml"}).ok());
}

TEST(Nearest, FindsWhatIsSpelledAlike) {
  EXPECT_EQ(nearest_flag("tensor_parallel"), "tensor-parallel-size");
  EXPECT_EQ(nearest_flag("max-tokens-batched"), nearest_flag("max_tokens_batched"));
  EXPECT_EQ(nearest_flag(std::string(1000, 'x')), "");
}

}  // namespace
}  // namespace tern::app
