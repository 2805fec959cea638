// tern export: what is written, loaded again, is what quantizing while loading makes, bit by bit; and no half folder.
#include "model/quantized/export.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "model/tests/support.h"

namespace tern::model {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;

Quantization quantization(const std::string& text, const std::string& architecture) {
  return *read_quantization(text.starts_with("{") ? *json::parse(text) : json::Value(text), architecture);
}

// A random model with a row of zeros among its weights.
void write_model(const TempFolder& folder, const std::string& architecture) {
  testing::write_random_model(folder.path(), testing::small_config(architecture, 4, 2));
  testing::TestTensors tensors = testing::read_tensors(folder.file("model.safetensors"));
  const auto o_proj = tensors.find("model.layers.0.self_attn.o_proj.weight");
  ASSERT_NE(o_proj, tensors.end());
  std::fill_n(o_proj->second.bytes.begin(), 2 * o_proj->second.shape[1], '\0');
  testing::write_tensors(folder.file("model.safetensors"), tensors);
  testing::write_file(folder.file("tokenizer.json"), "{}");
  testing::write_file(folder.file("chat_template.jinja"), "{{ messages }}");
}

ExportOptions options_of(const TempFolder& from, const std::string& to, const std::string& text,
                         const std::string& architecture) {
  ExportOptions o;
  o.load.path = from.path();
  o.load.threads = 2;
  o.load.quantization = quantization(text, architecture);
  o.write.out = to;
  return o;
}

TEST(Export, LoadedAgainItIsTheSameModel) {
  constexpr const char* kGroups = R"({"quantization":"wint4","group_size":32})";
  constexpr const char* kMixed = R"({"quantization":"mix_quant","dense_quant_type":"wint8","moe_quant_type":"wint4"})";
  const std::pair<const char*, std::vector<const char*>> rows[] = {
      {"LlamaForCausalLM",
       {"wint8", "wint4", kGroups, "block_wise_fp8", R"({"quantization":"wint8","lm_head_quant_type":"wint8"})",
        R"({"quantization":"wint4","ignore":["model.layers.0.mlp.down_proj","re:model\\.layers\\.1\\."]})"}},
      {"Qwen3MoeForCausalLM", {kMixed, kGroups, "block_wise_fp8"}},
      {"DeepseekV3ForCausalLM", {"wint8", "block_wise_fp8"}},
      {"Ernie4_5_MoeForCausalLM", {"wint4", "block_wise_fp8"}},
      {"Ernie4_5_VLMoeForConditionalGeneration", {kMixed}},
      {"Qwen2_5_VLForConditionalGeneration", {"wint8"}}};
  for (const auto& [architecture, methods] : rows) {
    TempFolder from, to;
    int count = 0;
    write_model(from, architecture);
    const std::vector<int32_t> ids = testing::some_ids(9, 50);
    for (const char* method : methods) {
      SCOPED_TRACE(std::string(architecture) + " " + method);
      const std::string out = to.file(std::to_string(count++));
      ExportOptions o = options_of(from, out, method, architecture);
      const Status status = export_model(o);
      ASSERT_TRUE(status.ok()) << status.error().message;
      LoadOptions again;
      again.path = out;
      const std::vector<float> want = testing::logits_of(o.load, ids), got = testing::logits_of(again, ids);
      ASSERT_FALSE(want.empty());
      EXPECT_EQ(got, want);
      // What was left alone by name is so by the files now.
      if (!o.load.quantization.ignore.empty()) continue;
      EXPECT_EQ(load_model(again, testing::cpu()).value()->info().formats,
                load_model(o.load, testing::cpu()).value()->info().formats);
    }
  }
}

// Scales that are powers of two: so while loading, in the files and when these are read.
TEST(Export, ScalesMayBePowersOfTwo) {
  TempFolder from, to;
  write_model(from, "LlamaForCausalLM");
  ExportOptions o =
      options_of(from, to.file("out"), R"({"quantization":"block_wise_fp8","scale_fmt":"ue8m0"})", "LlamaForCausalLM");
  ASSERT_TRUE(export_model(o).ok());
  int scales = 0;
  for (const auto& [name, t] : testing::read_tensors(to.file("out/model.safetensors"))) {
    if (!name.ends_with(".weight_scale_inv")) continue;
    for (size_t i = 0; i < t.bytes.size(); i += 4, ++scales) {
      uint32_t bits;
      std::memcpy(&bits, t.bytes.data() + i, sizeof bits);
      EXPECT_EQ(bits & 0x807fffffu, 0u) << name;
    }
  }
  EXPECT_GT(scales, 13);
  const json::Value config = *json::parse(testing::read_file(to.file("out/config.json")));
  EXPECT_EQ(config.at("quantization_config").at("scale_fmt"), "ue8m0");
  LoadOptions again;
  again.path = to.file("out");
  const std::vector<float> want = testing::logits_of(o.load, {1, 2, 3});
  EXPECT_EQ(testing::logits_of(again, {1, 2, 3}), want);
  o.load.quantization.pow2_scales = false;
  EXPECT_NE(testing::logits_of(o.load, {1, 2, 3}), want);
  // Other scales are no such ones.
  o.write.out = to.file("other");
  ASSERT_TRUE(export_model(o).ok());
  again.path = o.write.out;
  again.overrides["quantization_config"] = json::Object{{"scale_fmt", "ue8m0"}};
  const auto wrong = load_model(again, testing::cpu());
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("which is no power of two"), std::string::npos) << wrong.error().message;
}

TEST(Export, WritesSeveralFilesAndCopiesTheRest) {
  TempFolder from, to;
  write_model(from, "LlamaForCausalLM");
  ExportOptions o = options_of(from, to.file("out"), "wint8", "LlamaForCausalLM");
  o.write.file_bytes = 20'000;
  size_t done = 0, all = 1;
  o.write.progress = [&](size_t d, size_t a) { done = d, all = a; };
  ASSERT_TRUE(export_model(o).ok());
  EXPECT_EQ(done, all);
  int shards = 0;
  for (const auto& e : fs::directory_iterator(to.file("out"))) shards += e.path().extension() == ".safetensors";
  EXPECT_GT(shards, 3);
  EXPECT_TRUE(fs::exists(to.file("out/model.safetensors.index.json")));
  EXPECT_EQ(testing::read_file(to.file("out/tokenizer.json")), "{}");
  EXPECT_EQ(testing::read_file(to.file("out/chat_template.jinja")), "{{ messages }}");
  const json::Value config = *json::parse(testing::read_file(to.file("out/config.json")));
  EXPECT_EQ(config.at("hidden_size"), 64);
  EXPECT_EQ(config.at("quantization_config").at("format"), "pack-quantized");
  EXPECT_EQ(config.at("quantization_config").at("ignore"), json::Value({"lm_head"}));
  LoadOptions again;
  again.path = to.file("out");
  EXPECT_EQ(testing::logits_of(again, {1, 2, 3}), testing::logits_of(o.load, {1, 2, 3}));
  // A second time, or of what is quantized already, it ends before anything is made.
  EXPECT_NE(export_model(o).error().message.find("is there already and not an empty folder"), std::string::npos);
  o.load.path = to.file("out"), o.write.out = to.file("twice");
  EXPECT_NE(export_model(o).error().message.find("is quantized already (compressed-tensors, 8 bits"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(to.file("twice")));
}

// What else is in the files (a tower, draft layers) is taken over byte by byte.
TEST(Export, TakesOverWhatIsNotTheDecoders) {
  TempFolder from, to;
  write_model(from, "Qwen2_5_VLForConditionalGeneration");
  testing::TestTensors tensors = testing::read_tensors(from.file("model.safetensors"));
  tensors["visual.blocks.0.attn.qkv.weight"] = {"BF16", {6, 2}, std::string(24, 'q')};
  tensors["visual.blocks.0.norm1.weight"] = {"F32", {2}, std::string(8, 'n')};
  testing::write_tensors(from.file("model.safetensors"), tensors);
  ASSERT_TRUE(export_model(options_of(from, to.file("out"), "wint4", "Qwen2_5_VLForConditionalGeneration")).ok());
  const testing::TestTensors got = testing::read_tensors(to.file("out/model.safetensors"));
  EXPECT_EQ(got.at("visual.blocks.0.attn.qkv.weight").bytes, std::string(24, 'q'));
  EXPECT_EQ(got.at("visual.blocks.0.norm1.weight").bytes, std::string(8, 'n'));
  const json::Value config = *json::parse(testing::read_file(to.file("out/config.json")));
  const std::string ignored = json::dump(config.at("quantization_config").at("ignore"));
  EXPECT_NE(ignored.find("\"visual.blocks.0.attn.qkv\""), std::string::npos) << ignored;
}

std::vector<std::string> entries(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& e : fs::directory_iterator(folder)) names.push_back(e.path().filename().string());
  return names;
}

TEST(Export, LeavesNoHalfFolder) {
  TempFolder from, to;
  write_model(from, "LlamaForCausalLM");
  ExportOptions o = options_of(from, to.file("out"), "wint8", "LlamaForCausalLM");
  int asked = 0;
  o.write.stop = [&] { return ++asked > 5; };
  const Status stopped = export_model(o);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(entries(to.path()).empty());
  // A file system that takes no more.
  o.write.stop = nullptr;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 30'000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status full = export_model(o);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, ErrorCode::kIo);
  EXPECT_NE(full.error().message.find("cannot write"), std::string::npos) << full.error().message;
  EXPECT_TRUE(entries(to.path()).empty());
  EXPECT_TRUE(export_model(o).ok());
}

TEST(Export, RefusesWhatFilesCannotSay) {
  TempFolder from, to;
  write_model(from, "Qwen3MoeForCausalLM");
  const std::pair<const char*, const char*> rows[] = {
      {R"({"quantization":"wint4","group_size":128})", "groups of 128 do not divide the 64 columns"},
      {R"({"quantization":"mix_quant","dense_quant_type":"block_wise_fp8","moe_quant_type":"wint4"})",
       "both whole numbers and e4m3"},
      {"none", "nothing of this model would be quantized"}};
  for (const auto& [text, message] : rows) {
    const Status status = export_model(options_of(from, to.file("out"), text, "Qwen3MoeForCausalLM"));
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_NE(status.error().message.find(message), std::string::npos) << status.error().message;
  }
  TempFolder tied;
  write_model(tied, "Ernie4_5_MoeForCausalLM");
  const Status head = export_model(options_of(
      tied, to.file("out"), R"({"quantization":"wint8","lm_head_quant_type":"wint8"})", "Ernie4_5_MoeForCausalLM"));
  ASSERT_FALSE(head.ok());
  EXPECT_NE(head.error().message.find("leave lm_head_quant_type out"), std::string::npos) << head.error().message;
  testing::TestTensors tensors = testing::read_tensors(from.file("model.safetensors"));
  auto& bytes = tensors.at("model.layers.1.self_attn.q_proj.weight").bytes;
  bytes[8] = '\x80', bytes[9] = '\x7f';
  testing::write_tensors(from.file("model.safetensors"), tensors);
  const Status infinite = export_model(options_of(from, to.file("out"), "wint8", "Qwen3MoeForCausalLM"));
  ASSERT_FALSE(infinite.ok());
  EXPECT_NE(infinite.error().message.find("q_proj.weight holds NaN or infinity in rows 0 to 63"), std::string::npos);
  EXPECT_TRUE(entries(to.path()).empty());
}

}  // namespace
}  // namespace tern::model
