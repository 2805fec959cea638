// PaddleNLP's native protocol without a server (paddlenlp-server.md 2): fields, lengths, texts.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "json/json.h"
#include "serve/native/errors.h"
#include "serve/native/lengths.h"
#include "serve/native/request.h"
#include "serve/report/metrics.h"

namespace tern::serve::native {
namespace {

NativeRequest request_of(const char* text) {
  json::Value body = *json::parse(text);
  return take_request(body.get_object());
}

std::vector<std::string> checked(const char* text) { return check_fields(json::parse(text)->get_object()); }

TEST(Native, TellsItsBodiesFromOpenAis) {
  EXPECT_TRUE(is_native(*json::parse(R"({"text": "x"})")));
  EXPECT_TRUE(is_native(*json::parse(R"({"messages": [], "req_id": null})")));
  EXPECT_TRUE(is_native(*json::parse(R"({"messages": [], "timeout": 3})")));
  EXPECT_FALSE(is_native(*json::parse(R"({"messages": [], "model": "m", "temperature": 0, "stream": true})")));
  EXPECT_FALSE(is_native(*json::parse(R"({"prompt": "x", "max_tokens": 5})")));
  EXPECT_FALSE(is_native(*json::parse("[1]")));
}

// What HTTP's types hide, other transports meet.
TEST(Native, ChecksEveryType) {
  const auto said = checked(R"({"text": 1, "system": 2, "input_ids": "x", "eos_token_ids": "y", "stream": 1,
                                "messages": [1], "max_dec_len": 1.5, "topp": "a", "temperature": "b"})");
  const std::vector<std::string> want = {"The `text` in input parameters must be a string",
                                         "The `system` in input parameters must be a string",
                                         "The `input_ids` in input parameters must be a list",
                                         "The item in messages must include `content`",
                                         "The `max_dec_len` must be an integer and greater than 0",
                                         "The `topp` must be in [0, 1]",
                                         "The `temperature` must be >= 0",
                                         "The `eos_token_ids` must be an list",
                                         "The `stream` must be a boolean"};
  EXPECT_EQ(said, want);
}

TEST(Native, ListsAreWrittenAsPythonWritesThem) {
  EXPECT_EQ(python_list(std::vector<std::string>{}), "[]");
  EXPECT_EQ(python_list(std::vector<std::string>{"a", "b"}), "['a', 'b']");
  EXPECT_EQ(python_list(std::vector<std::string>{"it's"}), "[\"it's\"]");
  EXPECT_EQ(python_list(std::vector<std::string>{"it's \"so\""}), "['it\\'s \"so\"']");
}

TEST(Native, Aliases) {
  EXPECT_EQ(request_of(R"({"max_tokens": 3, "seq_len": 4})").max_dec_len, 4);
  EXPECT_EQ(request_of(R"({"max_tokens": 3, "seq_len": 4, "max_dec_len": 5})").max_dec_len, 5);
  EXPECT_EQ(request_of(R"({"top_p": 0.5})").topp, 0.5);
  EXPECT_EQ(request_of(R"({"seed": 7})").seed, 7);
  EXPECT_EQ(request_of(R"({"eos_token_ids": 7})").eos_token_ids, std::vector<int64_t>{7});
  EXPECT_TRUE(request_of(R"({"stop_seqs": [[1]], "stop_sequences": ["x"]})").stop_sequences.empty());
  EXPECT_FALSE(request_of(R"({"enable_text_truncate": 0})").truncate);
}

TEST(Native, PromptsAreCut) {
  const PaddleNlpConfig config{.seq_len_limit = 256};
  const auto kept = [&](const char* text, int64_t input) { return kept_tokens(request_of(text), config, 1024, input); };
  EXPECT_EQ(kept(R"({"input_ids": [1]})", 224), 224);  // 1024 - 800
  EXPECT_EQ(kept(R"({"input_ids": [1]})", 225), 223);  // one less than the limit
  EXPECT_EQ(kept(R"({"input_ids": [1], "max_dec_len": 24})", 1000), 1000);
  EXPECT_EQ(kept(R"({"input_ids": [1], "max_dec_len": 24})", 1001), 999);
  EXPECT_EQ(kept(R"({"text": "x", "max_dec_len": 24})", 1001), 256);  // by the tokenizer
  EXPECT_EQ(kept(R"({"text": "x"})", 1001), 223);
  EXPECT_EQ(kept(R"({"text": "x", "enable_text_truncate": 0})", 1001), 1001);
  EXPECT_EQ(kept(R"({"input_ids": [1], "max_dec_len": 1024})", 500), 500);  // no room at all: the prompt stays
}

TEST(Native, LengthsAreRefusedAndClamped) {
  PaddleNlpConfig config{.seq_len_limit = 256, .dec_len_limit = 100};
  std::optional<std::string> refused;
  const auto settle = [&](const char* text, int64_t input) {
    refused.reset();
    return settle_lengths(request_of(text), config, 512, input, refused);
  };
  Lengths l = settle(R"({"req_id": "a"})", 200);
  EXPECT_FALSE(refused);
  EXPECT_EQ(l.max_dec_len, 100);
  EXPECT_EQ(l.min_dec_len, 1);
  config.dec_len_limit = 512;
  l = settle(R"({"max_dec_len": 500, "min_dec_len": 300})", 200);
  EXPECT_FALSE(refused);
  EXPECT_EQ(l.max_dec_len, 312);
  EXPECT_EQ(l.min_dec_len, 300);
  settle(R"({"min_dec_len": 312})", 200);
  EXPECT_EQ(refused, "Input text is too long, input_ids_len (200) + min_dec_len (312) >= max_seq_len ");
  config = {.seq_len_limit = 256, .dec_len_limit = 100, .total_blocks = 4, .answer_blocks = 2, .query_blocks = 8};
  settle(R"({"req_id": "a"})", 128);
  EXPECT_FALSE(refused);
  settle(R"({"req_id": "a"})", 129);
  EXPECT_EQ(refused,
            "The input task required resources is exceed the limit, task={'req_id': 'a', 'input_ids_len': 129, "
            "'max_dec_len': 100, 'required_blocks': 5}.");
}

TEST(Native, ErrorObjects) {
  const json::Value plain = *json::parse(error_object({kRefused, "m", "id"}, false));
  EXPECT_EQ(plain.at("req_id"), "id");
  EXPECT_EQ(plain.at("error_code"), 200);
  EXPECT_EQ(plain.at("version"), "4.6");
  EXPECT_TRUE(json::parse(error_object({kRefused, "m", std::nullopt}, true))->at("req_id").is_null());
}

TEST(Native, FiguresOfGpus) {
  std::string out;
  append_gpus(out, {});
  EXPECT_EQ(out, "");
  append_gpus(out,
              {{.uuid = "GPU-1", .utilization = 0.25, .memory_used = 2e9}, {.uuid = "GPU-2", .power_usage = 70.5}});
  EXPECT_EQ(out,
            "# HELP nv_gpu_utilization GPU utilization rate [0.0 - 1.0)\n# TYPE nv_gpu_utilization gauge\n"
            "nv_gpu_utilization{gpu_uuid=\"GPU-1\"} 0.25\n"
            "# HELP nv_gpu_memory_used_bytes GPU used memory, in bytes\n# TYPE nv_gpu_memory_used_bytes gauge\n"
            "nv_gpu_memory_used_bytes{gpu_uuid=\"GPU-1\"} 2e+09\n"
            "# HELP nv_gpu_power_usage GPU power usage in watts\n# TYPE nv_gpu_power_usage gauge\n"
            "nv_gpu_power_usage{gpu_uuid=\"GPU-2\"} 70.5\n");
}

}  // namespace
}  // namespace tern::serve::native
