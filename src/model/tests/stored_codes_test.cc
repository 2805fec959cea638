// Checkpoints whose files hold codes: every layout against float32 weights of the same codes, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "model/opened_folder.h"
#include "model/tests/coded_files.h"
#include "model/tests/support.h"
#include "model/weights/pack.h"

namespace tern::model {
namespace {

using testing::CodedFolder;
using testing::Layout;
using testing::TestTensors;
using Pair = testing::CodedPair;

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0.0, size = 0.0;
  for (size_t i = 0; i < b.size(); ++i)
    error += std::pow(static_cast<double>(a[i] - b[i]), 2), size += std::pow(static_cast<double>(b[i]), 2);
  return a.size() == b.size() ? std::sqrt(error / size) : 1e9;
}

const CodedFolder kFolders[] = {
    {Layout::kGptq, 4, 32, false},   {Layout::kGptq, 4, 0, true},       {Layout::kGptq, 8, 32, true},
    {Layout::kGptqV2, 4, 64, true},  {Layout::kGptqV2, 8, 0, false},    {Layout::kAwq, 4, 32, true},
    {Layout::kPacked, 4, 32, false}, {Layout::kPacked, 4, 64, true},    {Layout::kPacked, 8, 0, false},
    {Layout::kPacked, 8, 32, true},  {Layout::kPacked, 4, 0, false},    {Layout::kInt8, 8, 0, false},
    {Layout::kInt8, 8, 32, true},    {Layout::kInt8, 4, 32, false},     {Layout::kFp8Block, 8, 0, false},
    {Layout::kFp8Row, 8, 0, false},  {Layout::kFp8Tensor, 8, 0, false}, {Layout::kPaddle, 8, 0, false}};

class StoredCodes : public ::testing::TestWithParam<CodedFolder> {};

TEST_P(StoredCodes, AreTheValuesThatTheirFormatSays) {
  const Pair pair(GetParam(), "LlamaForCausalLM");
  OpenedFolder folder = OpenedFolder::open(pair.options(), true).value();
  DecoderWeights places;
  const auto plan = folder.plan(places);
  ASSERT_TRUE(plan.ok());
  auto stored = folder.resolve(*plan);
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  const CheckpointSource source(plan->parameters, *stored);
  const TestTensors want = testing::read_tensors(pair.widened.file("model.safetensors"));
  int matrices = 0;
  for (size_t i = 0; i < stored->size(); ++i) {
    const Parameter& p = plan->parameters[i];
    if ((*stored)[i].coded == nullptr) continue;
    ++matrices;
    std::vector<float> got(static_cast<size_t>(p.elements()));
    const Piece whole{static_cast<int>(i), 0, p.rows, 0, p.cols};
    source.read(whole, tensor2(got.data(), DType::kF32, p.rows, p.cols));
    EXPECT_TRUE(source.check(whole).ok());
    const std::string& bytes = want.at(p.name).bytes;
    ASSERT_EQ(bytes.size(), got.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(bytes.data(), got.data(), bytes.size()), 0) << p.name;
  }
  EXPECT_EQ(matrices, 14);
}

TEST_P(StoredCodes, ComputeWhatTheirValuesCompute) {
  for (const char* architecture : {"LlamaForCausalLM", "Qwen3MoeForCausalLM", "DeepseekV2ForCausalLM"}) {
    if (GetParam().group == 64 && std::string(architecture) != "LlamaForCausalLM") continue;  // widths of 32
    SCOPED_TRACE(architecture);
    const Pair pair(GetParam(), architecture);
    LoadOptions plain = pair.options();
    plain.path = pair.widened.path();
    const std::vector<int32_t> ids = testing::some_ids(9, 64);
    const std::vector<float> want = testing::logits_of(plain, ids);
    EXPECT_LE(distance(testing::logits_of(pair.options(), ids), want), 5e-6);
    EXPECT_LE(distance(testing::logits_of(pair.options(DType::kBF16), ids), want), 0.025);
  }
}

// A rank's slices of codes, scales and zero points: all values that a packed weight holds.
TEST_P(StoredCodes, AreSlicedForRanks) {
  const Pair pair(GetParam(), "LlamaForCausalLM", 256, 64);
  for (int rank = 0; rank < 2; ++rank) {
    LoadOptions o = pair.options();
    o.shard = {rank, 2, false};
    OpenedFolder folder = OpenedFolder::open(o, true).value();
    DecoderWeights weights;
    auto plan = folder.plan(weights);
    ASSERT_TRUE(plan.ok());
    const auto stored = folder.resolve(*plan);
    ASSERT_TRUE(stored.ok()) << stored.error().message;
    const CheckpointSource source(plan->parameters, *stored);
    ASSERT_TRUE(take_stored_formats(source, o, device::DeviceKind::kCpu, *plan).ok());
    const auto pack = pack_options(o, device::DeviceKind::kCpu);
    const Status packed = pack_weights(*plan, source, *pack, testing::cpu(), weights);
    ASSERT_TRUE(packed.ok()) << packed.error().message;
    for (const MatrixPlan& m : plan->matrices) {
      if (m.format == nullptr) continue;
      std::vector<int32_t> ids(static_cast<size_t>(m.n));
      std::iota(ids.begin(), ids.end(), 0);
      std::vector<float> got(static_cast<size_t>(m.n * m.k)), want(got.size());
      ASSERT_TRUE(m.format
                      ->gather_rows(*m.out, tensor1(ids.data(), DType::kI32, m.n),
                                    tensor2(got.data(), DType::kF32, m.n, m.k), {})
                      .ok());
      float* at = want.data();
      for (const Piece& p : m.pieces) {
        source.read(p, tensor2(at, DType::kF32, p.rows, m.k));
        at += p.rows * m.k;
      }
      EXPECT_EQ(got, want) << plan->parameters[static_cast<size_t>(m.pieces[0].parameter)].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, StoredCodes, ::testing::ValuesIn(kFolders),
                         [](const auto& one) { return testing::name_of(one.param); });

std::string failure(const LoadOptions& o) {
  const auto model = load_model(o, testing::cpu());
  return model.ok() ? "" : model.error().message;
}

TEST(StoredCodesErrors, SayWhichTensorAndWhy) {
  const std::string at = "model.layers.1.mlp.down_proj";
  const CodedFolder gptq{Layout::kGptq, 4, 32, true}, packed{Layout::kPacked, 4, 32, false};
  const CodedFolder fp8{Layout::kFp8Block, 8, 0, false};
  const auto set = [](testing::TestTensor& t, size_t index, auto value) {
    std::memcpy(t.bytes.data() + index * sizeof value, &value, sizeof value);
  };
  struct Row {
    CodedFolder folder;
    std::function<void(TestTensors&)> spoil;
    const char* message;
  };
  const Row rows[] = {
      {gptq, [&](TestTensors& t) { t.erase(at + ".scales"); }, "down_proj has codes but no scales"},
      {gptq, [&](TestTensors& t) { t.erase(at + ".qzeros"); }, "down_proj has codes but no qzeros"},
      {gptq, [&](TestTensors& t) { t.erase(at + ".qweight"); }, "missing model.layers.1.mlp.down_proj.weight"},
      {gptq, [&](TestTensors& t) { set(t[at + ".g_idx"], 5, int32_t{6}); },
       "down_proj.g_idx names group 6 of 6 for column 5"},
      {gptq, [&](TestTensors& t) { set(t[at + ".g_idx"], 5, int32_t{-1}); }, "down_proj.g_idx names group -1 of 6"},
      {gptq, [&](TestTensors& t) { set(t[at + ".g_idx"], 5, int32_t{3}); }, "columns in an order of their own"},
      {gptq, [&](TestTensors& t) { set(t[at + ".scales"], 7, uint16_t{0}); },
       "the scale of model.layers.1.mlp.down_proj for row 7 and group 0 is 0"},
      {gptq, [&](TestTensors& t) { set(t[at + ".scales"], 7, uint16_t{0x7c00}); }, "for row 7 and group 0 is inf"},
      {gptq, [&](TestTensors& t) { t[at + ".scales"] = t["model.layers.1.mlp.up_proj.scales"]; },
       "down_proj.scales is F16 [2, 192], not [6, 64]"},
      {gptq,
       [&](TestTensors& t) {
         t[at + ".weight"] = {"BF16", {64, 192}, std::string(64 * 192 * 2, 0)};
       },
       "down_proj is stored twice"},
      {packed, [&](TestTensors& t) { set(t[at + ".weight_shape"], 1, int64_t{96}); },
       "down_proj.weight_shape says [64, 96], but the model has [64, 192]"},
      {packed, [&](TestTensors& t) { t[at + ".weight_scale_inv"] = t[at + ".weight_scale"]; },
       "down_proj has its scales twice"},
      {packed, [&](TestTensors& t) { t[at + ".weight_packed"].dtype = "F32"; },
       "down_proj.weight_packed is F32 [64, 24], not [64, 24]"},
      {fp8, [&](TestTensors& t) { t[at + ".weight"].bytes[9] = '\x7f'; },
       "the codes of model.layers.1.mlp.down_proj hold NaN"},
      {fp8,
       [&](TestTensors& t) {
         t[at + ".weight_scale_inv"].shape = {2};
         t[at + ".weight_scale_inv"].bytes.resize(8);
       },
       "down_proj.weight_scale_inv is F32 [2], not [1, 2]"},
  };
  for (const Row& row : rows) {
    Pair pair(row.folder, "LlamaForCausalLM");
    row.spoil(pair.tensors);
    pair.write();
    const std::string said = failure(pair.options());
    EXPECT_NE(said.find(row.message), std::string::npos) << row.message << "\n" << said;
  }
}

TEST(StoredCodesErrors, GroupsMustDivideTheColumns) {
  const Pair pair({Layout::kPacked, 4, 128, false}, "LlamaForCausalLM");
  EXPECT_NE(failure(pair.options()).find("groups of 128 do not divide 64 columns"), std::string::npos);
}

TEST(StoredCodesErrors, WhatConfigSaysMustBeSo) {
  Pair pair({Layout::kPacked, 4, 32, false}, "LlamaForCausalLM");
  LoadOptions o = pair.options();
  o.overrides = *json::parse(R"({"quantization_config":{"ignore":["lm_head","re:.*up_proj"]}})")->if_object();
  EXPECT_NE(failure(o).find("up_proj is stored as codes although quantization_config leaves it out"),
            std::string::npos);
  o.overrides = *json::parse(R"({"quantization_config":{"ignore":["re:(a*)*"]}})")->if_object();
  EXPECT_NE(failure(o).find("is too long or repeats a part in parentheses"), std::string::npos);
  const Pair neutral({Layout::kGptq, 4, 32, true}, "LlamaForCausalLM");
  o = neutral.options();
  o.overrides = *json::parse(R"({"quantization_config":{"sym":true}})")->if_object();
  EXPECT_NE(failure(o).find("quantization_config says sym, but model.layers."), std::string::npos) << failure(o);
}

// Lists of modules in configs and the files say the same, or the load ends.
TEST(StoredCodesErrors, ListsOfModulesMustAgree) {
  const CodedFolder gptq{Layout::kGptq, 4, 32, true}, awq{Layout::kAwq, 4, 32, true};
  const CodedFolder fp8{Layout::kFp8Block, 8, 0, false};
  constexpr const char *kLeft = "is stored as codes although quantization_config leaves it out", *kGood = "";
  struct Row {
    CodedFolder folder;
    const char *key, *value, *message;
  };
  const Row rows[] = {
      {fp8, "modules_to_not_convert", R"(["lm_head","model.layers.0.input_layernorm"])", kGood},
      {fp8, "modules_to_not_convert", "null", kGood},
      {fp8, "modules_to_not_convert", R"(["layers.1.mlp"])", kLeft},
      {fp8, "modules_to_not_convert", R"(["model.language_model.layers.1.mlp.up_proj"])", kLeft},
      {fp8, "modules_to_not_convert", R"(["re:.*\\.1\\.mlp"])", kLeft},
      {fp8, "modules_to_not_convert", R"(["gate", "layers.1.mlp.up"])", kGood},  // parts of words say nothing
      {fp8, "modules_to_not_convert", R"("lm_head")", "modules_to_not_convert must be a list of names"},
      {fp8, "modules_to_not_convert", R"([1])", "modules_to_not_convert must be a list of names"},
      {fp8, "ignored_layers", R"(["up_proj"])", kLeft},
      {awq, "modules_to_not_convert", R"(["visual"])", kGood},
      {awq, "modules_to_not_convert", R"(["mlp.up_proj"])", kLeft},
      {gptq, "dynamic", R"({"-:lm_head":{}})", kGood},
      {gptq, "dynamic", R"({"-:.*up_proj":{}})", kLeft},
      {gptq, "dynamic", R"({"+:.*up_proj":{"bits":8}})", "settings of their own for some modules"},
      {gptq, "modules_in_block_to_quantize", R"([["mlp.up_proj"]])", kLeft},
      {gptq, "modules_in_block_to_quantize", R"([["self_attn"],["mlp.down_proj","mlp.gate_proj","mlp.up_proj"]])",
       kGood},
      {gptq, "modules_in_block_to_quantize", R"(["mlp"])", "must be a list of names"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.key) + " " + row.value);
    const Pair pair(row.folder, "LlamaForCausalLM");
    LoadOptions o = pair.options();
    o.overrides["quantization_config"] = json::Object{{row.key, *json::parse(row.value)}};
    const std::string said = failure(o);
    EXPECT_EQ(said.empty(), row.message == kGood) << said;
    EXPECT_NE(said.find(row.message), std::string::npos) << said;
  }
}

// A matrix of values that the config does not leave out; with a list of modules it says what is left out.
TEST(StoredCodesErrors, ValuesMustBeLeftOut) {
  Pair pair({Layout::kFp8Block, 8, 0, false}, "LlamaForCausalLM");
  const std::string at = "model.layers.1.mlp.down_proj";
  pair.tensors.erase(at + ".weight_scale_inv");
  pair.tensors[at + ".weight"] = {"BF16", {64, 192}, std::string(64 * 192 * 2, 0)};
  pair.write();
  LoadOptions o = pair.options();
  EXPECT_EQ(failure(o), "");
  const auto with = [&](const char* list) {
    o.overrides["quantization_config"] = json::Object{{"modules_to_not_convert", *json::parse(list)}};
    return failure(o);
  };
  EXPECT_NE(with(R"(["lm_head"])").find("down_proj.weight is stored as BF16, but quantization_config names it"),
            std::string::npos);
  EXPECT_EQ(with(R"(["lm_head","model.layers.1.mlp.down_proj"])"), "");
  EXPECT_EQ(with(R"(["lm_head","down"])"), "");
  // Without the files, what the list names is counted as values.
  EXPECT_EQ(with(R"(["model.layers.1.mlp.down_proj"])"), "");
  o.dummy = true;
  const auto summary = summarize_model(o);
  ASSERT_TRUE(summary.ok()) << summary.error().message;
  EXPECT_NE(summary->formats.find("7 projections in block_wise_fp8"), std::string::npos) << summary->formats;
}

TEST(StoredCodesErrors, OtherMethodsNameWhatWorks) {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"quant_method":"bitsandbytes"})", "the method bitsandbytes is not read: take the unquantized checkpoint"},
      {R"({"quant_method":"gguf"})", "the method gguf is not read: take the safetensors files"},
      {R"({"quant_method":"gptq","bits":3})", "gptq of 3 bits is not read"},
      {R"({"quant_method":"gptq","bits":4,"group_size":48})", "group_size 48 is not read"},
      {R"({"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"})", "checkpoint_format marlin is not read"},
      {R"({"quant_method":"awq","bits":4,"version":"gemv"})", "awq's version gemv is not read"},
      {R"({"quant_method":"fp8","weight_block_size":[64,64]})", "weight_block_size [64,64] is not read"},
      {R"({"quant_method":"compressed-tensors","format":"marlin-24","config_groups":{"a":{"targets":["Linear"],"weights":{"num_bits":4}}}})",
       "compressed-tensors marlin-24 of 4 bits"},
      {R"({"quantization":"wint4","is_quantized":true})",
       "permuted for one kernel is not read: take the bf16 checkpoint"},
      {R"({"quantization":"wint2","is_quantized":true,"is_permuted":false})", "stored codes of the type wint2"},
      {R"({"quantization":"w4a8","is_moe_quantized":true})", "permuted"},
      {R"({"bits":4})", "has neither quant_method nor quantization"},
      {R"(["fp8"])", "must be an object"},
  };
  for (const auto& [text, message] : rows) {
    const auto read = read_quantization_config(*json::parse(text), "LlamaForCausalLM");
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_NE(read.error().message.find(message), std::string::npos) << read.error().message;
    if (read.error().code == ErrorCode::kUnsupported) {
      EXPECT_NE(read.error().message.find("what works: fp8"), std::string::npos) << read.error().message;
    }
  }
}

TEST(StoredCodesChoice, FilesWinOverTheCommandLine) {
  const Pair pair({Layout::kAwq, 4, 32, true}, "LlamaForCausalLM");
  LoadOptions o = pair.options();
  o.quantization = *read_quantization("wint8", "LlamaForCausalLM");
  const auto model = load_model(o, testing::cpu());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_NE((*model)->info().formats.find("8 projections in wint4-32-zp"), std::string::npos)
      << (*model)->info().formats;
  ASSERT_EQ((*model)->info().notes.size(), 1u);
  EXPECT_EQ((*model)->info().notes[0],
            "--quantization wint8 is not used: config.json says awq, 4 bits, groups of 32, zero points");
  const auto summary = summarize_model(o);
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->formats, (*model)->info().formats);
  EXPECT_EQ(summary->weight_bytes.back().second, (*model)->info().weight_bytes);
  // Made while loading, as config.json says.
  o.path = pair.widened.path();
  o.overrides = *json::parse(R"({"quantization_config":{"quantization":"wint4"}})")->if_object();
  const auto made = load_model(o, testing::cpu());
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_NE((*made)->info().formats.find("8 projections in wint4,"), std::string::npos) << (*made)->info().formats;
}

// Folders of older libraries have a file of their own instead.
TEST(StoredCodesChoice, OlderFoldersAreRead) {
  for (const auto& [folder, name] : {std::pair(CodedFolder{Layout::kGptq, 4, 32, false}, "quantize_config.json"),
                                     std::pair(CodedFolder{Layout::kAwq, 4, 32, true}, "quant_config.json")}) {
    Pair pair(folder, "LlamaForCausalLM");
    json::Object own = testing::config_of(folder).get_object();
    own.erase("quant_method");
    const std::vector<int32_t> ids = testing::some_ids(5, 64);
    const std::vector<float> want = testing::logits_of(pair.options(), ids);
    json::Object config = json::parse(testing::read_file(pair.coded.file("config.json")))->get_object();
    config.erase("quantization_config");
    testing::write_file(pair.coded.file("config.json"), json::dump(config));
    testing::write_file(pair.coded.file(name), json::dump(own));
    EXPECT_EQ(testing::logits_of(pair.options(), ids), want);
  }
}

TEST(StoredCodesChoice, QuantizedActivationsAreALine) {
  const Pair pair({Layout::kFp8Block, 8, 0, false}, "LlamaForCausalLM");
  const auto model = load_model(pair.options(), testing::cpu());
  ASSERT_TRUE(model.ok());
  ASSERT_EQ((*model)->info().notes.size(), 1u);
  EXPECT_EQ((*model)->info().notes[0], "the checkpoint (fp8) wants activations in 8 bits; they stay in bfloat16 here");
}

}  // namespace
}  // namespace tern::model
