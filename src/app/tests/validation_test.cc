// Which flags and variables do not go together, and what the start says then.
#include <gtest/gtest.h>

#include "app/tests/settle.h"

namespace tern::app {
namespace {

const Pairs kLegacy = {{"ENABLE_V1_KVCACHE_SCHEDULER", "0"}};

struct Rule {
  const char* what;
  Args args;
  Pairs pairs;
  const char* message;
};

// fastdeploy.md 1.10, rule by rule.
const Rule kRules[] = {
    {"sequences low",
     {"--max-num-seqs", "0"},
     {},
     "--max-num-seqs 0 is not between 1 and 256 (TERN_MAX_SEQUENCES sets that limit)"},
    {"sequences high",
     {"--max-num-seqs", "257"},
     {},
     "--max-num-seqs 257 is not between 1 and 256 (TERN_MAX_SEQUENCES sets that limit)"},
    {"sequences, the limit raised",
     {"--max-num-seqs", "513"},
     {{"TERN_MAX_SEQUENCES", "512"}},
     "--max-num-seqs 513 is not between 1 and 512 (TERN_MAX_SEQUENCES sets that limit)"},
    {"sequences, the limit itself", {}, {{"TERN_MAX_SEQUENCES", "1025"}}, "TERN_MAX_SEQUENCES: 1025 is above 1024"},
    {"length", {"--max-model-len", "15"}, {}, "--max-model-len 15 is below 16"},
    {"budget and sequences",
     {"--max-num-batched-tokens", "100", "--max-num-seqs", "101"},
     {},
     "--max-num-batched-tokens 100 is below --max-num-seqs (101)"},
    {"budget and everything",
     {"--max-num-batched-tokens", "257", "--max-num-seqs", "2", "--max-model-len", "128"},
     {},
     "--max-num-batched-tokens 257 is above --max-model-len times --max-num-seqs (128 x 2 = 256)"},
    {"block", {"--block-size", "24"}, {}, "--block-size 24 is not a multiple of 16: 16, 32, 48, ... 1024"},
    {"blocks",
     {"--num-gpu-blocks-override", "33"},
     {},
     "--num-gpu-blocks-override 33 is too small: one sequence of --max-model-len 2048 needs 34 blocks"},
    {"blocks of the legacy scheduler",
     {"--num-gpu-blocks-override", "45"},
     kLegacy,
     "--num-gpu-blocks-override 45 is too small: one sequence of --max-model-len 2048 needs 34 blocks within the share "
     "of "
     "--kv-cache-ratio"},
    {"chunk and block",
     {"--max-num-batched-tokens", "63"},
     {},
     "--max-num-batched-tokens 63 is below --block-size (64), which chunked prefill needs"},
    {"legacy whole prompts",
     {"--max-num-batched-tokens", "99", "--max-model-len", "100", "--no-enable-chunked-prefill"},
     kLegacy,
     "--max-num-batched-tokens 99 is below --max-model-len (100), which the legacy scheduler needs without chunked "
     "prefill"},
    {"long prefills",
     {"--max-long-partial-prefills", "2"},
     {},
     "--max-long-partial-prefills 2 is above --max-num-partial-prefills (1)"},
    {"guided and speculative",
     {"--guided-decoding-backend", "auto", "--speculative-config", R"({"method":"mtp"})"},
     {},
     "--guided-decoding-backend cannot be combined with --speculative-config"},
    {"processed and speculative",
     {"--logprobs-mode", "processed_logits", "--speculative-config", R"({"method":"mtp"})"},
     {},
     "--logprobs-mode processed_logits cannot be combined with --speculative-config"},
    {"draft length",
     {"--speculative-config", R"({"method":"mtp","num_speculative_tokens":6})"},
     {},
     "--speculative-config num_speculative_tokens 6 is not between 1 and 5"},
    {"draft steps",
     {"--speculative-config", R"({"method":"mtp","num_model_steps":2})"},
     {},
     "--speculative-config num_model_steps 2 is above num_speculative_tokens 1"},
    {"draft method",
     {"--speculative-config", R"({"method":"magic"})"},
     {},
     "--speculative-config method \"magic\" is none of mtp, ngram, naive, suffix"},
    {"cards",
     {"--tensor-parallel-size", "8", "--data-parallel-size", "2"},
     {},
     "--tensor-parallel-size 8 times --data-parallel-size 2 is more than the 8 cards of a node"},
    {"an engine that is not there",
     {"--data-parallel-size", "2", "--local-data-parallel-id", "2"},
     {},
     "--local-data-parallel-id 2: engines of --data-parallel-size 2 are counted from 0"},
    {"experts over engines",
     {"--data-parallel-size", "2", "--local-data-parallel-id", "1", "--enable-expert-parallel"},
     {},
     "--enable-expert-parallel with --data-parallel-size 2 deals experts to the ranks of all engines, which must be in "
     "one process; without --local-data-parallel-id they are"},
    {"early stop window",
     {"--early-stop-config", R"({"window_size":0})"},
     {},
     "--early-stop-config window_size 0 is not between 1 and 1073741824"},
    {"early stop strategy",
     {"--early-stop-config", R"({"strategy":"x"})"},
     {},
     "--early-stop-config strategy \"x\" is not \"repetition\""},
    {"early stop threshold",
     {"--early-stop-config", R"({"threshold":1.5})"},
     {},
     "--early-stop-config threshold 1.5 is not between 0 and 1"},
    {"unknown key of early stop",
     {"--early-stop-config", R"({"windw":1})"},
     {},
     "--early-stop-config has no key \"windw\"; its keys are enable_early_stop, strategy, window_size and threshold"},
    {"unknown key of graphs",
     {"--graph-optimization-config", R"({"use_cudagraphh":true})"},
     {},
     "--graph-optimization-config has no key \"use_cudagraphh\"; its keys are graph_opt_level, use_cudagraph, "
     "cudagraph_capture_sizes, cudagraph_capture_sizes_prefill, max_capture_shape_prefill, cudagraph_only_prefill, "
     "cudagraph_num_of_warmups, cudagraph_copy_inputs, full_cuda_graph, use_unique_memory_pool, "
     "draft_model_use_cudagraph, cudagraph_splitting_ops, sot_warmup_sizes"},
    {"graph level",
     {"--graph-optimization-config", R"({"graph_opt_level":3})"},
     {},
     "--graph-optimization-config graph_opt_level 3 is not between 0 and 2"},
    {"graph sizes",
     {"--graph-optimization-config", R"({"cudagraph_capture_sizes":[4,0]})"},
     {},
     "--graph-optimization-config cudagraph_capture_sizes must be a list of whole numbers of 1 or more"},
    {"graph switch",
     {"--graph-optimization-config", R"({"use_cudagraph":"yes"})"},
     {},
     "--graph-optimization-config `use_cudagraph` must be true or false"},
    {"processor",
     {"--logits-processors", "my.module:Mine"},
     {},
     "--logits-processors my.module:Mine is not built in; LogitBiasLogitsProcessor and ThinkingBudgetLogitsProcessor "
     "are, and no Python code runs in "
     "this server"},
    {"device", {"--device", "tpu"}, {}, "--device \"tpu\" is none of auto, cpu, cuda, cuda:N"},
    {"gpu", {"--device", "cuda:x"}, {}, "--device \"cuda:x\": what stands behind the colon is not the number of a GPU"},
    {"controller", {"--controller-port", "8000"}, {}, "--controller-port 8000 is already --port or --metrics-port"},
    {"adapter",
     {},
     {{"FD_ENABLE_INTERNAL_ADAPTER", "1"}},
     "FD_ENABLE_INTERNAL_ADAPTER=1 is not available: this build speaks HTTP only"},
    {"sparse attention",
     {},
     {{"FD_ATTENTION_BACKEND", "PLAS_ATTENTION"}},
     "FD_ATTENTION_BACKEND=PLAS_ATTENTION is not available: attention is exact in this build, and has one kernel for "
     "each device"},
    {"rope", {}, {{"ROPE_THETA", "1"}}, "ROPE_THETA is not available: --model-override {\"rope_theta\": ...} does it"},
    {"variable",
     {},
     {{"FD_SAMPLING_CLASS", "best"}},
     "FD_SAMPLING_CLASS: \"best\" is none of base, base_non_truncated, air, rejection"},
    {"variable range", {}, {{"FD_MAX_STOP_SEQS_NUM", "-1"}}, "FD_MAX_STOP_SEQS_NUM: -1 is below 0"},
};

TEST(Validation, EveryRuleNamesTheFlag) {
  for (const Rule& rule : kRules) EXPECT_EQ(failure(rule.args, rule.pairs), rule.message) << rule.what;
  // Nothing is derived from a number that would overflow.
  EXPECT_EQ(failure({"--max-num-seqs", "9223372036854775807"}),
            "--max-num-seqs: 9223372036854775807 is above 1073741824");
  EXPECT_EQ(failure({"--max-num-seqs", "-1073741824"}),
            "--max-num-seqs -1073741824 is not between 1 and 256 (TERN_MAX_SEQUENCES sets that limit)");
  EXPECT_EQ(settled({"--max-num-seqs", "512"}, {{"TERN_MAX_SEQUENCES", "512"}}).engine.scheduler.max_num_seqs, 512);
  EXPECT_EQ(
      failure({"--quantization", "wint5"}),
      "--quantization \"wint5\" is not built; wint8, wint4, block_wise_fp8, weight_only, mix_quant and kvcache work");
  EXPECT_EQ(settled({"--quantization", R"({"quantization":"wint4","group_size":64})"}).load.quantization.dense,
            "wint4-64");
}

TEST(Validation, UnusedPortsMayRepeat) {
  const Settings s = settled(
      {"--port", "8180", "--metrics-port", "8180", "--cache-queue-port", "8180", "--engine-worker-queue-port", "8180"});
  EXPECT_EQ(s.serve.port, 8180);
}

}  // namespace
}  // namespace tern::app
