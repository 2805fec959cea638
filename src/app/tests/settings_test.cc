#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "app/tests/settle.h"

namespace tern::app {
namespace {

const Pairs kLegacy = {{"ENABLE_V1_KVCACHE_SCHEDULER", "0"}};

TEST(Defaults, AreFastDeploys) {
  const Settings s = settled({});
  EXPECT_EQ(s.engine.scheduler.max_num_seqs, 8);
  EXPECT_EQ(s.engine.scheduler.max_model_len, 2048);
  EXPECT_EQ(s.engine.scheduler.max_num_batched_tokens, 8192);
  EXPECT_EQ(s.engine.scheduler.block_size, 64);
  EXPECT_TRUE(s.engine.scheduler.v1 && s.engine.scheduler.chunked_prefill && s.engine.scheduler.prefix_caching);
  EXPECT_EQ(s.serve.host, "0.0.0.0");
  EXPECT_EQ(s.serve.port, 8000);
  EXPECT_FALSE(s.serve.metrics_port.has_value());
  EXPECT_EQ(s.serve.max_concurrency, 2048);
  EXPECT_TRUE(s.serve.api_keys.empty());
  EXPECT_EQ(s.serve.limits.stop_strings, 5);
  EXPECT_EQ(s.log.folder, "log");
  EXPECT_TRUE(s.warnings.empty());
  // The table and the rooms' own defaults say the same.
  const serve::HttpLimits http;
  EXPECT_EQ(s.serve.http.header_bytes, http.header_bytes);
  EXPECT_EQ(s.serve.http.body_bytes, http.body_bytes);
  EXPECT_EQ(s.serve.http.grpc_message_bytes, http.grpc_message_bytes);
  EXPECT_EQ(s.serve.http.json_depth, http.json_depth);
  EXPECT_EQ(s.serve.http.connections, http.connections);
  EXPECT_EQ(s.serve.http.header_timeout, http.header_timeout);
  EXPECT_EQ(s.serve.http.idle_timeout, http.idle_timeout);
  EXPECT_EQ(s.serve.http.body_timeout, http.body_timeout);
  EXPECT_EQ(s.serve.http.body_total_timeout, http.body_total_timeout);
  EXPECT_EQ(s.serve.http.write_stall_timeout, http.write_stall_timeout);
  EXPECT_EQ(s.serve.http.write_buffer_bytes, http.write_buffer_bytes);
  EXPECT_EQ(s.serve.http.held_tokens, http.held_tokens);
  const serve::RequestLimits limits;
  EXPECT_EQ(s.serve.limits.prompts, limits.prompts);
  EXPECT_EQ(s.serve.limits.messages, limits.messages);
  EXPECT_EQ(s.serve.limits.n, limits.n);
  EXPECT_EQ(s.serve.limits.choices, limits.choices);
  EXPECT_EQ(s.serve.limits.stop_token_ids, limits.stop_token_ids);
  EXPECT_EQ(s.serve.limits.logit_bias, limits.logit_bias);
  EXPECT_EQ(s.serve.limits.bad_words, limits.bad_words);
  EXPECT_EQ(s.serve.limits.tools, limits.tools);
  EXPECT_EQ(s.serve.limits.id_bytes, limits.id_bytes);
  EXPECT_EQ(s.serve.limits.stream_group, limits.stream_group);
}

TEST(Derived, BudgetFollowsSchedulerAndChunks) {
  EXPECT_EQ(settled({"--max-model-len", "32768"}).engine.scheduler.max_num_batched_tokens, 8192);
  EXPECT_EQ(settled({}, kLegacy).engine.scheduler.max_num_batched_tokens, 2048);
  EXPECT_EQ(settled({"--no-enable-chunked-prefill", "--max-model-len", "4096"}, kLegacy)
                .engine.scheduler.max_num_batched_tokens,
            4096);
  EXPECT_EQ(settled({}, {{"FD_DISABLE_CHUNKED_PREFILL", "1"}}).engine.scheduler.chunked_prefill, false);
  EXPECT_TRUE(
      settled({"--enable-chunked-prefill"}, {{"FD_DISABLE_CHUNKED_PREFILL", "1"}}).engine.scheduler.chunked_prefill);
}

TEST(Derived, DefaultsAreClampedToWhatIsGiven) {
  EXPECT_EQ(settled({"--max-model-len", "100", "--max-num-seqs", "2"}).engine.scheduler.max_num_batched_tokens, 200);
  // Two bounds that exclude each other: the lower one is what the engine needs.
  EXPECT_EQ(settled({"--max-model-len", "16", "--max-num-seqs", "1"}).engine.scheduler.max_num_batched_tokens, 64);
  EXPECT_EQ(settled({"--block-size", "1024", "--max-model-len", "64", "--max-num-seqs", "1"})
                .engine.scheduler.max_num_batched_tokens,
            1024);
  EXPECT_EQ(settled({"--max-num-batched-tokens", "4", "--no-enable-chunked-prefill"}).engine.scheduler.max_num_seqs, 4);
  EXPECT_EQ(settled({"--max-num-batched-tokens", "100", "--no-enable-chunked-prefill"}, kLegacy)
                .engine.scheduler.max_model_len,
            100);
  EXPECT_EQ(settled({"--max-num-seqs", "256", "--max-model-len", "64", "--no-enable-chunked-prefill"}, kLegacy)
                .engine.scheduler.max_num_batched_tokens,
            256);
}

TEST(Derived, LengthFollowsTheModel) {
  EXPECT_EQ(settled({}, {}, model_of(512)).engine.scheduler.max_model_len, 512);
  EXPECT_EQ(settled({}, {}, model_of(131072)).engine.scheduler.max_model_len, 2048);
  EXPECT_EQ(settled({}, {}, model_of(8)).engine.scheduler.max_model_len, 16);
  const Settings s = settled({"--max-model-len", "1024"}, {}, model_of(512));
  EXPECT_EQ(s.engine.scheduler.max_model_len, 1024);
  ASSERT_EQ(s.warnings.size(), 1u);
  EXPECT_NE(s.warnings[0].find("512 positions"), std::string::npos);
}

TEST(Derived, EveryGrammarBackEndIsOneLibrary) {
  for (const char* name : {"xgrammar", "guidance"}) {
    const Settings s = settled({"--guided-decoding-backend", name});
    EXPECT_TRUE(s.serve.guided && s.engine.mask_threads > 0);
    ASSERT_EQ(s.warnings.size(), 1u);
    EXPECT_EQ(s.warnings[0],
              std::string("--guided-decoding-backend ") + name + ": grammars are compiled by llguidance");
  }
  EXPECT_TRUE(settled({"--guided-decoding-backend", "auto"}).warnings.empty());
  const Settings off = settled({"--guided-decoding-backend", "off"});
  EXPECT_TRUE(!off.serve.guided && off.engine.mask_threads == 0);
}

TEST(Derived, PaddleOcrKeepsThePrefixCache) {
  EXPECT_TRUE(settled({}, {}, model_of(0, "PaddleOCRVLForConditionalGeneration")).engine.scheduler.prefix_caching);
}

TEST(Derived, LogprobsAboveTwentyNeedTheVariable) {
  EXPECT_EQ(settled({"--max-logprobs", "50"}).engine.max_logprobs, 40);  // twice: some may have the same text
  EXPECT_EQ(settled({"--max-logprobs", "-1"}).serve.max_logprobs, 20);
  EXPECT_EQ(settled({"--max-logprobs", "-1"}, {{"FD_USE_GET_SAVE_OUTPUT_V1", "1"}}).serve.max_logprobs, -1);
}

TEST(Derived, KeysComeFromTheEnvironmentWhenNoFlagNamesThem) {
  EXPECT_EQ(settled({}, {{"FD_API_KEY", "a, b"}}).serve.api_keys, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(settled({"--api-key", "c"}, {{"FD_API_KEY", "a"}}).serve.api_keys, std::vector<std::string>{"c"});
}

TEST(Derived, LegacyValuesReachTheScheduler) {
  Pairs pairs = kLegacy;
  pairs.emplace_back("FD_ENC_DEC_BLOCK_NUM", "3");
  pairs.emplace_back("MAX_PREFILL_NUM", "5");
  const Settings s = settled(
      {"--kv-cache-ratio", "0.5", "--max-num-partial-prefills", "4", "--max-long-partial-prefills", "2"}, pairs);
  EXPECT_FALSE(s.engine.scheduler.v1);
  EXPECT_FALSE(s.engine.scheduler.output_caching);
  EXPECT_EQ(s.engine.scheduler.enc_dec_block_num, 3);
  EXPECT_EQ(s.engine.scheduler.max_prefill_num, 5);
  EXPECT_DOUBLE_EQ(s.engine.scheduler.kv_cache_ratio, 0.5);
  EXPECT_EQ(s.engine.scheduler.max_num_partial_prefills, 4);
  EXPECT_EQ(s.engine.scheduler.max_long_partial_prefills, 2);
  EXPECT_EQ(s.engine.scheduler.long_prefill_token_threshold, 81);
  EXPECT_EQ(settled({"--static-decode-blocks", "7"}, kLegacy).engine.scheduler.enc_dec_block_num, 7);
}

TEST(EarlyStop, ConfigReachesTheEngine) {
  const Settings s = settled({"--early-stop-config", R"({"enable_early_stop":true,"window_size":10,"threshold":0.5})"});
  EXPECT_TRUE(s.engine.early_stop);
  EXPECT_EQ(s.engine.early_stop_window, 10);
  EXPECT_DOUBLE_EQ(s.engine.early_stop_threshold, 0.5);
  EXPECT_FALSE(settled({}).engine.early_stop);
  EXPECT_TRUE(settled({"--enable-early-stop"}).engine.early_stop);
}

TEST(Graphs, ConfigReachesTheEngine) {
  EXPECT_TRUE(settled({}).engine.graphs.use);
  EXPECT_FALSE(settled({"--no-use-cudagraph"}).engine.graphs.use);
  const Settings s = settled({"--no-use-cudagraph", "--graph-optimization-config",
                              R"({"use_cudagraph":true,"cudagraph_capture_sizes":[1,4],"max_capture_shape_prefill":64,
                               "cudagraph_only_prefill":true,"full_cuda_graph":false,"sot_warmup_sizes":[2]})"});
  const engine::GraphConfig& g = s.engine.graphs;
  EXPECT_TRUE(g.use && g.only_prefill);
  EXPECT_EQ(g.sizes, (std::vector<int>{1, 4}));
  EXPECT_TRUE(g.prefill_sizes.empty());
  EXPECT_EQ(g.max_prefill, 64);
}

TEST(DataParallel, WhichEnginesRunHere) {
  const auto of = [](std::vector<std::string> args, Environment::Pairs environment = {}) {
    return settled(args, environment).data_parallel;
  };
  const DataParallelSettings alone = of({}), all = of({"--data-parallel-size", "4"});
  EXPECT_EQ(alone.size, 1);
  EXPECT_EQ(alone.count, 1);
  EXPECT_EQ(all.size, 4);
  EXPECT_EQ(all.first, 0);
  EXPECT_EQ(all.count, 4);
  const DataParallelSettings third = of({"--data-parallel-size", "4", "--local-data-parallel-id", "2"});
  EXPECT_EQ(third.size, 4);
  EXPECT_EQ(third.first, 2);
  EXPECT_EQ(third.count, 1);
  const Environment::Pairs servers = {{"FD_ENABLE_MULTI_API_SERVER", "1"}};
  EXPECT_EQ(of({"--data-parallel-size", "4"}, servers).count, 1);
  EXPECT_EQ(settled({}, servers).serve.max_concurrency, 512);
  EXPECT_EQ(settled({"--max-concurrency", "9"}, servers).serve.max_concurrency, 9);
}

TEST(Faults, ReachTheEngine) {
  const engine::EngineConfig plain = settled({}).engine;
  EXPECT_EQ(plain.watchdog_ns, 30'000'000'000);
  EXPECT_EQ(plain.fault, device::Fault::kNone);
  EXPECT_EQ(plain.plan_delay_ns, 0);
  const engine::EngineConfig trap =
      settled({"--watchdog-timeout", "2.5"}, {{"TERN_FAULT", "trap@3"}, {"TERN_TEST_PLAN_DELAY_MS", "2"}}).engine;
  EXPECT_EQ(trap.watchdog_ns, 2'500'000'000);
  EXPECT_EQ(trap.fault, device::Fault::kTrap);
  EXPECT_EQ(trap.fault_step, 3u);
  EXPECT_EQ(trap.plan_delay_ns, 2'000'000);
  EXPECT_EQ(trap.fault_rank, 0);
  EXPECT_EQ(settled({}, {{"TERN_FAULT", "hang@100"}}).engine.fault, device::Fault::kHang);
  const engine::EngineConfig second = settled({}, {{"TERN_FAULT", "trap@7,rank=1"}}).engine;
  EXPECT_EQ(second.fault_step, 7u);
  EXPECT_EQ(second.fault_rank, 1);
  EXPECT_EQ(second.fault_engine, 0);
  const engine::EngineConfig third = settled({}, {{"TERN_FAULT", "hang@5,engine=2,rank=3"}}).engine;
  EXPECT_EQ(third.fault_engine, 2);
  EXPECT_EQ(third.fault_rank, 3);
  for (const char* bad : {"trap", "trap@", "trap@0", "trap@x", "trap@1x", "stall@1", "@1", "hang@99999999999999999999",
                          "trap@1,rank=", "trap@1,rank=x", "trap@1,rank=-1", "trap,rank=1", "trap@1,",
                          "trap@1,rank=1,rank=1", "trap@1,engine=", "trap@1,engine=0,engine=1"}) {
    EXPECT_EQ(
        failure({}, {{"TERN_FAULT", bad}}),
        fmt::format("TERN_FAULT: \"{}\" is neither trap@N nor hang@N, nor one of them with ,rank=R or ,engine=E", bad));
  }
}

TEST(Describe, HidesKeysAndNamesSources) {
  const Settings s =
      settled({"--api-key", "secret-key-1", "--port", "8123"}, {{"FD_API_KEY", "secret-key-2"}, {"FD_DEBUG", "1"}});
  const json::Object o = describe(s);
  const std::string text = json::dump(o);
  EXPECT_EQ(text.find("secret-key"), std::string::npos);
  EXPECT_EQ(s.serve.config_info.find("secret-key"), std::string::npos);
  EXPECT_EQ(o.at("flags").at("port").as_int64(), 8123);
  EXPECT_EQ(o.at("sources").at("port").as_string(), "command line");
  EXPECT_EQ(o.at("sources").at("max_num_batched_tokens").as_string(), "derived");
  EXPECT_EQ(o.at("environment").at("FD_DEBUG").as_bool(), true);
  EXPECT_EQ(o.at("server").at("api_keys").as_uint64(), 1u);
  EXPECT_EQ(o.at("flags").as_object().size(), flag_table().size());
  EXPECT_EQ(s.log.level, LogLevel::kDebug);
}

// Splits a line as a shell does, for words and single quotes with something in them.
Args words_of(const std::string& line) {
  Args words;
  std::string word;
  bool quoted = false;
  for (const char c : line + " ") {
    if (c == '\'') {
      quoted = !quoted;
    } else if (c != ' ' || quoted) {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  return words;
}

TEST(SeedLines, AllResolve) {
  std::ifstream file(std::string(TERN_SOURCE_DIR) + "/tests/cli/seed_lines.txt");
  int lines = 0, pass_alone = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    Args args;
    Pairs pairs;
    for (const std::string& word : words_of(line)) {
      const bool variable = args.empty() && !word.starts_with("-");
      if (variable)
        pairs.emplace_back(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
      else
        args.push_back(word);
    }
    const std::string line_alone = failure(args, pairs);
    args.emplace_back("--allow-inert-flags");
    const Settings allowed = settled(args, pairs);
    // Without the flag a line passes exactly when nothing in it is inert.
    EXPECT_EQ(line_alone.empty(), allowed.inert.empty()) << line << "\n" << line_alone;
    pass_alone += line_alone.empty() ? 1 : 0;
    ++lines;
  }
  EXPECT_EQ(lines, 8);
  EXPECT_EQ(pass_alone, 8);  // nothing in them is inert
}

TEST(ModelFacts, ReadsGenerationDefaultsAndEndIds) {
  ModelFacts facts;
  ASSERT_TRUE(read_config_json(json::parse(R"({"architectures":["X"],"max_position_embeddings":128,"vocab_size":10,
      "eos_token_id":2})")
                                   ->as_object(),
                               facts)
                  .ok());
  ASSERT_TRUE(read_generation_json(json::parse(R"({"eos_token_id":[2,7],"temperature":0.6,"top_p":0.9,"top_k":20,
      "repetition_penalty":1.05})")
                                       ->as_object(),
                                   facts)
                  .ok());
  EXPECT_EQ(facts.architecture, "X");
  EXPECT_EQ(facts.eos_token_ids, (std::vector<int32_t>{2, 7}));
  EXPECT_DOUBLE_EQ(*facts.generation.temperature, 0.6);
  EXPECT_EQ(*facts.generation.top_k, 20);
  EXPECT_FALSE(facts.generation.presence_penalty.has_value());
  const Settings s = settled({}, {}, facts);
  EXPECT_EQ(s.engine.eos_token_ids, (std::vector<int32_t>{2, 7}));
  EXPECT_DOUBLE_EQ(*s.serve.defaults.top_p, 0.9);
}

}  // namespace
}  // namespace tern::app
