// The environment of PaddleNLP's server as settings (paddlenlp-server.md 1).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "app/config/settings.h"
#include "app/paddlenlp/paddlenlp.h"
#include "json/json.h"

namespace tern::app {
namespace {

using Pairs = Environment::Pairs;

Pairs ports(Pairs more = {}) {
  Pairs pairs = {{"HEALTH_HTTP_PORT", "8110"}, {"SERVICE_GRPC_PORT", "8811"}, {"SERVICE_HTTP_PORT", "9965"}};
  pairs.insert(pairs.end(), more.begin(), more.end());
  return pairs;
}

Expected<PaddleNlp> resolved(const Pairs& pairs, const PaddleNlpModel& model = {}) {
  TERN_ASSIGN_OR_RETURN(const Environment environment, paddlenlp_environment(pairs));
  return resolve_paddlenlp(environment, model);
}

PaddleNlp ok(const Pairs& pairs, const PaddleNlpModel& model = {}) {
  auto result = resolved(pairs, model);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? *result : PaddleNlp();
}

std::string failure(const Pairs& pairs, const PaddleNlpModel& model = {}) {
  auto result = resolved(pairs, model);
  return result.ok() ? "" : result.error().message;
}

PaddleNlpModel model_with(const char* text) {
  PaddleNlpModel model;
  model.config = json::parse(text)->get_object();
  return model;
}

struct Worked {
  Pairs pairs;
  int64_t query, total, host, device, decode, input, tokens;
};

// The table of section 1.3.
TEST(PaddleNlpSettings, WorkedValues) {
  const Worked rows[] = {
      {ports(), 128, 6400, 4800, 1600, 128, 307072, 409600},
      {script_environment({}, ""), 128, 512, 384, 128, 256, 24320, 32768},
      {ports({{"BLOCK_BS", "5"}, {"ENC_DEC_BLOCK_NUM", "4"}}), 128, 640, 480, 160, 256, 30464, 40960},
      {ports({{"BLOCK_BS", "5"}, {"BLOCK_RATIO", "1.0"}}), 128, 640, 640, 0, 1024, 39936, 40960}};
  for (const Worked& row : rows) {
    const PaddleNlp p = ok(row.pairs);
    EXPECT_EQ(p.max_query_block_num, row.query);
    EXPECT_EQ(p.total_block_num, row.total);
    EXPECT_EQ(p.max_block_num, row.host);
    EXPECT_EQ(p.total_block_num - p.max_block_num, row.device);
    EXPECT_EQ(p.dec_token_num, row.decode);
    EXPECT_EQ(p.max_block_num * p.block_size - p.dec_token_num, row.input);
    EXPECT_EQ(p.total_block_num * p.block_size, row.tokens);
  }
}

TEST(PaddleNlpSettings, OldNamesWin) {
  const PaddleNlp p = ok(ports({{"HTTP_PORT", "1"},
                                {"GRPC_PORT", "2"},
                                {"METRICS_PORT", "3"},
                                {"PUSH_MODE_HTTP_PORT", "4"},
                                {"INFER_QUEUE_PORT", "5"}}));
  EXPECT_EQ(p.health_port, 1);
  EXPECT_EQ(p.grpc_port, 2);
  EXPECT_EQ(p.metrics_port, 3);
  EXPECT_EQ(p.http_port, 4);
  EXPECT_EQ(p.inter_proc_port, 5);
  const PaddleNlp s = ok(script_environment({{"HTTP_PORT", "7"}, {"HEALTH_HTTP_PORT", "8"}}, ""));
  EXPECT_EQ(s.health_port, 7);
  EXPECT_EQ(s.metrics_port, 8722);
  EXPECT_EQ(s.http_port, 9965);
  EXPECT_EQ(s.inter_proc_port, 8813);
}

TEST(PaddleNlpSettings, ScriptNamesTheModelsFolder) {
  const Pairs pairs = script_environment({{"MODEL_DIR", "/m/"}}, "deepseek-ai/X/weight_only_int8");
  const PaddleNlp p = ok(pairs);
  EXPECT_EQ(p.model_dir, "/m/deepseek-ai/X/weight_only_int8");
  EXPECT_EQ(p.model_name, "deepseek-ai/X/weight_only_int8");
  EXPECT_EQ(p.tag, "3.0.0.b4");
  EXPECT_EQ(p.mp_num, 1);
}

TEST(PaddleNlpSettings, TheModelOverrides) {
  const PaddleNlp p = ok(ports({{"MAX_DEC_LEN", "8192"}, {"tag", "9.9"}}),
                         model_with(R"({"infer_model_block_size": 32, "infer_model_max_seq_len": 4096,
                           "infer_model_dtype": "float16", "paddlenlp_version": "3.0.0.b4",
                           "infer_model_cachekv_int8_type": null})"));
  EXPECT_EQ(p.block_size, 32);
  EXPECT_EQ(p.max_seq_len, 4096);
  EXPECT_EQ(p.seq_len_limit, 4096);
  EXPECT_EQ(p.dec_len_limit, 4096);
  EXPECT_EQ(p.max_dec_len, 8192);
  EXPECT_EQ(p.dtype, "bfloat16");
  const std::vector<std::string> said(p.warnings.begin(), p.warnings.end());
  ASSERT_GE(said.size(), 4u);
  EXPECT_EQ(said[0], "the model was exported by PaddleNLP 3.0.0.b4, but tag is 9.9");
  EXPECT_EQ(said[2], "The loading model requires len(input_ids) <= 4096, now reset MAX_SEQ_LEN.");
  EXPECT_EQ(said[3], "The loading model requires MAX_DEC_LEN <= 4096, now reset MAX_DEC_LEN.");
  EXPECT_EQ(ok(ports(), {{}, 2048}).max_seq_len, 2048);  // an original checkpoint: its positions
}

TEST(PaddleNlpSettings, CapacityIsWarnedOf) {
  const Pairs small = ports({{"BLOCK_BS", "1"}, {"MAX_DEC_LEN", "8192"}});
  const PaddleNlp p = ok(small);
  ASSERT_GE(p.warnings.size(), 2u);
  EXPECT_EQ(
      p.warnings[0],
      "The available output token number of the service is 2176, which is less than the setting MAX_DEC_LEN:8192. ");
  EXPECT_EQ(
      p.warnings[1],
      "The available input token number of the service is 6016, which is less than the setting MAX_SEQ_LEN:8192. ");
  Pairs quiet = small;
  quiet.emplace_back("DISABLE_CAPACITY_CHECKER", "1");
  EXPECT_EQ(ok(quiet).warnings.size(), p.warnings.size() - 2);
}

TEST(PaddleNlpSettings, Errors) {
  struct Row {
    Pairs pairs;
    const char* message;
  };
  const Row rows[] = {
      {{{"MODEL_DIR", ""}}, "The parameter MODEL_DIR is None."},
      {ports({{"DEVICE", "XPU"}}), "unsupported device type: XPU"},
      {ports({{"MP_NUM", "3"}, {"MP_NNODE", "2"}}), "mp_num: 3 should be divisible by nnode: 2"},
      {ports({{"BATCH_SIZE", "257"}}),
       "The parameter `max_batch_size` is not allowed to exceed 256, but now it's 257."},
      {ports({{"PUSH_MODE_HTTP_WORKERS", "0"}}), "PUSH_MODE_HTTP_WORKERS (0) must be positive"},
      {ports({{"MAX_PREFILL_BATCH", "0"}}), "MAX_PREFILL_BATCH (0) must be greater than 0"},
      {ports({{"RECORD_TIME_INTERVAL", "3600"}}), "The RECORD_TIME_INTERVAL cannot exceed 3600."},
      {{{"HEALTH_HTTP_PORT", "1"}, {"SERVICE_HTTP_PORT", "2"}},
       "SERVICE_GRPC_PORT cannot be None, while SERVICE_HTTP_PORT>0"},
      {{{"SERVICE_GRPC_PORT", "1"}, {"SERVICE_HTTP_PORT", "2"}}, "HTTP_PORT must be set"},
      {{{"HEALTH_HTTP_PORT", "1"}, {"SERVICE_GRPC_PORT", "0"}},
       "neither SERVICE_HTTP_PORT nor SERVICE_GRPC_PORT is set: nobody could send a request"},
      {ports({{"METRICS_HTTP_PORT", "9965"}}), "METRICS_HTTP_PORT and SERVICE_HTTP_PORT are both 9965"},
      {ports({{"DTYPE", "int8"}}), "DTYPE int8 is none of bfloat16, float16 and float32"},
      {ports({{"FD_MODEL_CONFIG_PATH", "/other/config.json"}, {"MODEL_DIR", "/m"}}),
       "FD_MODEL_CONFIG_PATH /other/config.json is no file of MODEL_DIR /m"},
      {ports({{"MP_NNODE", "2"}, {"MP_NUM", "16"}}), "POD_IPS must be set when MP_NNODE is above 1"},
      {ports({{"MP_NNODE", "2"}, {"MP_NUM", "16"}, {"POD_IPS", "10.0.0.1,10.0.0.2"}, {"POD_0_IP", "10.0.0.3"}}),
       "POD_0_IP 10.0.0.3 is not one of POD_IPS (10.0.0.1,10.0.0.2)"},
      {ports({{"MP_NNODE", "2"},
              {"MP_NUM", "16"},
              {"POD_IPS", "10.0.0.1, 10.0.0.2"},
              {"POD_0_IP", "10.0.0.1"},
              {"HOST_IP", "10.0.0.2"}}),
       "MP_NNODE=2 is not available: all ranks of this build are on one node; set MP_NNODE=1 and start the master "
       "alone "
       "(the answers are the same)"},
      {ports({{"MP_NUM", "16"}}), "MP_NUM 16 is more than the 8 ranks of a node"},
  };
  for (const Row& row : rows) EXPECT_EQ(failure(row.pairs), row.message);
  EXPECT_NE(failure(ports(), model_with(R"({"infer_model_cachekv_int8_type": "static"})")), "");
}

TEST(PaddleNlpSettings, BecomesFlags) {
  const Pairs pairs = ports({{"BLOCK_BS", "5"},
                             {"BATCH_SIZE", "48"},
                             {"MAX_CACHED_TASK_NUM", "7"},
                             {"MP_NUM", "2"},
                             {"MAX_STOP_SEQS_NUM", "3"},
                             {"USE_HF_TOKENIZER", "1"}});
  Environment environment = *paddlenlp_environment(pairs);
  const PaddleNlp p = *resolve_paddlenlp(environment, {});
  FlagSet flags;
  flags.set("max-num-seqs", 9, Source::kCommandLine);
  apply_paddlenlp(p, flags, environment);
  auto s = resolve(flags, environment, {}, p, true);
  ASSERT_TRUE(s.ok()) << s.error().message;
  EXPECT_EQ(s->engine.num_blocks_override, 640);
  EXPECT_EQ(s->engine.scheduler.max_num_seqs, 9);  // a flag beats the environment
  EXPECT_EQ(s->serve.max_model_len, 8192);
  EXPECT_EQ(s->serve.port, -1);
  EXPECT_EQ(s->serve.limits.stop_strings, 3);
  ASSERT_TRUE(s->serve.paddlenlp.has_value());
  EXPECT_EQ(s->serve.paddlenlp->cached_tasks, 7);
  EXPECT_EQ(s->serve.paddlenlp->batch_size, 9);
  EXPECT_TRUE(s->serve.paddlenlp->raw_text);
  EXPECT_EQ(s->drain_seconds, 300);
  EXPECT_EQ(s->ranks.count, 2);
  EXPECT_TRUE(s->ranks.optional);
}

TEST(PaddleNlpSettings, RanksAreThoseOfTheFlagWhereItIsGiven) {
  Environment environment = *paddlenlp_environment(ports({{"MP_NUM", "4"}}));
  const PaddleNlp p = *resolve_paddlenlp(environment, {});
  FlagSet flags;
  flags.set("tensor-parallel-size", 2, Source::kCommandLine);
  apply_paddlenlp(p, flags, environment);
  auto s = resolve(flags, environment, {}, p, true);
  ASSERT_TRUE(s.ok()) << s.error().message;
  EXPECT_EQ(s->ranks.count, 2);
  EXPECT_FALSE(s->ranks.optional);
  EXPECT_EQ(std::count(s->warnings.begin(), s->warnings.end(),
                       "MP_NUM=4 has no effect: --tensor-parallel-size 2 says how many ranks share the model"),
            1);
  // The code's default stands for nobody's wish.
  Environment plain = *paddlenlp_environment(ports());
  FlagSet none;
  apply_paddlenlp(*resolve_paddlenlp(plain, {}), none, plain);
  EXPECT_FALSE(none.given("tensor-parallel-size"));
}

TEST(PaddleNlpSettings, TheLegacySchedulerTakesItsShare) {
  const Pairs pairs =
      ports({{"ENABLE_V1_KVCACHE_SCHEDULER", "0"}, {"MAX_PREFILL_BATCH", "4"}, {"ENC_DEC_BLOCK_NUM", "3"}});
  Environment environment = *paddlenlp_environment(pairs);
  const PaddleNlp p = *resolve_paddlenlp(environment, {});
  FlagSet flags;
  apply_paddlenlp(p, flags, environment);
  auto s = resolve(flags, environment, {}, p, true);
  ASSERT_TRUE(s.ok()) << s.error().message;
  EXPECT_FALSE(s->engine.scheduler.v1);
  EXPECT_EQ(s->engine.scheduler.kv_cache_ratio, 0.75);
  EXPECT_EQ(s->engine.scheduler.enc_dec_block_num, 3);
  EXPECT_EQ(s->engine.scheduler.max_prefill_num, 4);
}

TEST(PaddleNlpSettings, WhatHasNoEffectIsNamed) {
  const auto failed = [](Pairs pairs) {
    Environment environment = *paddlenlp_environment(pairs);
    auto p = resolve_paddlenlp(environment, {});
    if (!p.ok()) return p.error().message;
    FlagSet flags;
    apply_paddlenlp(*p, flags, environment);
    auto s = resolve(flags, environment, {}, *p, true);
    return s.ok() ? std::string() : s.error().message;
  };
  EXPECT_EQ(failed(ports({{"USE_CACHE_KV_INT8", "0"}, {"SPECULATE_METHOD", "None"}})), "");
  EXPECT_EQ(failed(ports({{"USE_CACHE_KV_INT8", "1"}})),
            "USE_CACHE_KV_INT8 (exports that need it are refused; kv_cache_quant_type of --quantization has such a "
            "cache) has no effect in this build; leave it out, "
            "or start anyway with --allow-inert-flags");
  EXPECT_NE(failed(ports({{"SPECULATE_METHOD", "mtp"}})).find("SPECULATE_METHOD"), std::string::npos);
}

}  // namespace
}  // namespace tern::app
