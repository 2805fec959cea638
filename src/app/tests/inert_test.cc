#include "app/config/inert.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "app/tests/settle.h"

namespace tern::app {
namespace {

TEST(Harmless, OneLineNamesWhatIsNotMissed) {
  const Settings s = settled({"--enable-mm", "--workers", "4", "--scheduler-ttl", "900", "--task", "generate"},
                             {{"FD_MOE_BACKEND", "triton"},
                              {"FLAGS_flash_attn_version", "3"},
                              {"FD_SAMPLING_CLASS", "rejection"},
                              {"USE_TBO", "0"},
                              {"FD_SAMPLING_CLAS", "air"}});
  ASSERT_EQ(s.warnings.size(), 2u);
  for (const char* name : {"--enable-mm (", "--workers (", "FD_MOE_BACKEND (", "FLAGS_flash_attn_version (",
                           "FD_SAMPLING_CLASS (every value samples the same"}) {
    EXPECT_NE(s.warnings[0].find(name), std::string::npos) << name;
  }
  for (const char* name : {"scheduler-ttl", "--task", "USE_TBO"})
    EXPECT_EQ(s.warnings[0].find(name), std::string::npos) << name;
  EXPECT_EQ(s.warnings[1], "FD_SAMPLING_CLAS is no variable that Tern knows");
  EXPECT_TRUE(s.inert.empty());
}

// What FastDeploy's newest sources read and its specification does not name.
TEST(Harmless, NewerVariablesAreKnown) {
  for (const char* name : {"ENABLE_V1_KVCACHE_MANAGER", "FD_USE_FASTSAFETENSOR", "FD_EP_BATCHED_TOKEN_TIMEOUT",
                           "FD_USE_PFCC_DEEP_EP", "FD_MOE_PROB_IN_ADVANCE", "FD_NVFP4_LOAD_BLOCKSCALE_LEAVE",
                           "FD_SiluAndMul_USE_PHI_SWIGLU", "FMQ_CONFIG_JSON", "PREFILL_NODE_ONE_STEP_STOP",
                           "FD_TRITON_KERNEL_CACHE_DIR", "FD_USE_AGGREGATE_SEND", "FD_XPU_ENABLE_MIXED_EP_MODE"}) {
    const Settings s = settled({}, {{name, "7"}});
    ASSERT_EQ(s.warnings.size(), 1u) << name;
    EXPECT_TRUE(s.warnings[0].starts_with(fmt::format("accepted without effect: {} (", name))) << s.warnings[0];
  }
}

// A value of each inert flag that asks for something.
std::string asking(const FlagSpec& flag) {
  switch (flag.type) {
    case ValueType::kBool:
      return "true";
    case ValueType::kInt:
      return "2";
    case ValueType::kFloat:
      return "1.5";
    case ValueType::kJson:
      return flag.neutral_key.empty() ? R"({"a":1})" : fmt::format(R"({{"{}":"mtp"}})", flag.neutral_key);
    case ValueType::kEnum: {
      for (const auto choice : split(flag.choices, '|')) {
        if (choice != flag.fallback) return std::string(choice);
      }
      return "";
    }
    default:
      return "x:1";
  }
}

TEST(Inert, EveryFlagEndsTheStartUnlessAllowed) {
  int rows = 0;
  for (const FlagSpec& flag : flag_table()) {
    if (flag.support != Support::kInert) continue;
    ++rows;
    const std::string given = fmt::format("--{}={}", flag.name, asking(flag));
    EXPECT_EQ(failure({given}), fmt::format("--{} ({}) has no effect in this build; leave it out, or start anyway with "
                                            "--allow-inert-flags",
                                            flag.name, flag.reason));
    const Settings s = settled({given, "--allow-inert-flags"});
    EXPECT_EQ(s.inert, std::vector<std::string>{fmt::format("--{}", flag.name)});
    ASSERT_EQ(s.warnings.size(), 1u) << flag.name;
    EXPECT_EQ(s.warnings[0], fmt::format("--{} has no effect: {}", flag.name, flag.reason));
    EXPECT_EQ(json::dump(json::parse(s.serve.config_info)->at("inert")), fmt::format(R"(["--{}"])", flag.name));
    // The default asks for nothing.
    if (!flag.fallback.empty()) {
      EXPECT_TRUE(settled({fmt::format("--{}={}", flag.name, flag.fallback)}).warnings.empty()) << flag.name;
    }
    const bool words = flag.type == ValueType::kEnum || flag.type == ValueType::kString;
    for (const char* nothing : {"", "none", "None"}) {
      if (!words) continue;
      EXPECT_TRUE(settled({fmt::format("--{}={}", flag.name, nothing)}).warnings.empty()) << flag.name;
    }
    if (flag.type == ValueType::kBool) {
      EXPECT_TRUE(settled({fmt::format("--no-{}", flag.name)}).warnings.empty()) << flag.name;
    }
    if (flag.type == ValueType::kJson) {
      EXPECT_TRUE(settled({fmt::format("--{}={{}}", flag.name)}).warnings.empty()) << flag.name;
    }
  }
  EXPECT_GE(rows, 6);
}

TEST(Inert, EveryVariableEndsTheStartUnlessAllowed) {
  int rows = 0;
  for (const VariableSpec& variable : variable_table()) {
    if (variable.support != Support::kInert) continue;
    ++rows;
    const std::string name(variable.name);
    const std::string value = variable.type == ValueType::kBool ? "1" : "/some/folder";
    EXPECT_EQ(failure({}, {{name, value}}),
              fmt::format("{} ({}) has no effect in this build; leave it out, or start anyway with --allow-inert-flags",
                          name, variable.reason));
    EXPECT_EQ(settled({"--allow-inert-flags"}, {{name, value}}).inert, std::vector<std::string>{name});
    if (!variable.fallback.empty()) {
      EXPECT_TRUE(settled({}, {{name, std::string(variable.fallback)}}).warnings.empty()) << name;
    }
  }
  EXPECT_GE(rows, 5);
  EXPECT_EQ(failure({}, {{"TRACES_ENABLE", "perhaps"}}), "TRACES_ENABLE: \"perhaps\" is neither true nor false");
  EXPECT_TRUE(settled({}, {{"TRACES_ENABLE", "false"}, {"FD_CACHE_PARAMS", "0"}}).warnings.empty());
}

TEST(Inert, OneLineNamesAll) {
  EXPECT_EQ(
      failure({"--router", "a:1", "--enable-mm"}, {{"FD_PD_CHANGEABLE", "1"}}),
      "--router (this build registers with no router), FD_PD_CHANGEABLE (this build runs prefill and decode in one "
      "place) have "
      "no effect in this build; leave them out, "
      "or start anyway with --allow-inert-flags");
}

TEST(Inert, ValuesThatAskForNothingPass) {
  const Args nothing[] = {{"--quantization", "none"},
                          {"--quantization", ""},
                          {"--quantization", R"({"quantization":"none"})"},
                          {"--speculative-config", R"({"num_speculative_tokens":2})"},
                          {"--speculative-config", R"({"method":null})"},
                          {"--swap-space", "0"},
                          {"--swap-space", "0.0"},
                          {"--scheduler-max-size", "0"},
                          {"--revision", "main"},
                          {"--kvcache-storage-backend", "none"}};
  for (const Args& args : nothing) {
    const Settings s = settled(args);
    EXPECT_TRUE(s.warnings.empty() && s.inert.empty()) << fmt::format("{}", fmt::join(args, " "));
  }
  // No word for nothing where a number or a switch is read.
  EXPECT_EQ(failure({"--tensor-parallel-size", "none"}), "--tensor-parallel-size: \"none\" is not a whole number");
  EXPECT_EQ(failure({"--enable-eplb="}), "--enable-eplb: \"\" is neither true nor false");
}

TEST(Inert, MistakesAreNamedFirst) {
  EXPECT_NE(failure({"--reasoning-parser", "qwen"}).find("--reasoning-parser: \"qwen\" is none of ernie-45-vl"),
            std::string::npos);
  EXPECT_NE(failure({"--tool-call-parser", "qwen"}).find("--tool-call-parser: \"qwen\" is none of ernie-x1"),
            std::string::npos);
  EXPECT_EQ(failure({"--tensor-parallel-size", "2", "--max-num-seqs", "0"}),
            "--max-num-seqs 0 is not between 1 and 256 (TERN_MAX_SEQUENCES sets that limit)");
  EXPECT_EQ(failure({"--tensor-parallel-size", "2"}, {{"TERN_FAULT", "x"}}),
            "TERN_FAULT: \"x\" is neither trap@N nor hang@N, nor one of them with ,rank=R or ,engine=E");
  EXPECT_EQ(failure({"--allow-inert-flags", "--tensor-parallel-size", "0"}), "--tensor-parallel-size: 0 is below 1");
}

TEST(Schedulers, WhatConcernsTheOtherOneIsNamed) {
  const Pairs legacy = {{"ENABLE_V1_KVCACHE_SCHEDULER", "0"}};
  EXPECT_EQ(settled({"--kv-cache-ratio", "0.5", "--static-decode-blocks", "4"}, {{"MAX_PREFILL_NUM", "2"}}).warnings,
            std::vector<std::string>{"without effect, since ENABLE_V1_KVCACHE_SCHEDULER is 1: --kv-cache-ratio, "
                                     "--static-decode-blocks, MAX_PREFILL_NUM"});
  EXPECT_TRUE(settled({"--kv-cache-ratio", "0.75"}).warnings.empty());
  EXPECT_TRUE(settled({"--kv-cache-ratio", "0.5"}, legacy).warnings.empty());
  EXPECT_EQ(settled({"--prealloc-dec-block-slot-num-threshold", "3"}, legacy).warnings,
            std::vector<std::string>{"without effect, since ENABLE_V1_KVCACHE_SCHEDULER is 0: "
                                     "--prealloc-dec-block-slot-num-threshold"});
}

TEST(Processors, TheBuiltInOneMayBeSpelledAsFastDeploySpellsIt) {
  for (const char* name :
       {"LogitBiasLogitsProcessor", "fastdeploy.model_executor.logits_processor:LogitBiasLogitsProcessor",
        "fastdeploy.model_executor.logits_processor.builtin:LogitBiasLogitsProcessor"}) {
    const Settings s = settled({"--logits-processors", name});
    EXPECT_TRUE(s.serve.logit_bias_processor) << name;
    EXPECT_TRUE(s.warnings.empty());
  }
  EXPECT_FALSE(settled({}).serve.logit_bias_processor);
  const Settings both =
      settled({"--logits-processors", "LogitBiasLogitsProcessor",
               "fastdeploy.model_executor.logits_processor.thinking_budget:ThinkingBudgetLogitsProcessor"});
  EXPECT_TRUE(both.serve.logit_bias_processor && both.serve.thinking_budget_processor);
  for (const char* name : {"fastdeploy.model_executor.logits_processors:LogitBiasLogitsProcessor",
                           "fastdeploy.model_executor.logits_processor:Mine", "my.module:LogitBiasLogitsProcessor"}) {
    EXPECT_EQ(failure({"--logits-processors", name}),
              fmt::format("--logits-processors {} is not built in; LogitBiasLogitsProcessor and "
                          "ThinkingBudgetLogitsProcessor are, and no Python code runs "
                          "in this server",
                          name));
  }
}

}  // namespace
}  // namespace tern::app
