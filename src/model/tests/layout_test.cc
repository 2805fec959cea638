// One model in many spellings: the logits must be the same bit for bit.
#include <gtest/gtest.h>

#include <regex>

#include "model/tests/support.h"

namespace tern::model {
namespace {

using testing::golden;
using testing::stack;
using testing::stacked_rows;
using testing::TempFolder;
using testing::TestTensor;
using testing::TestTensors;
using testing::transposed;

bool ends_with(const std::string& s, const std::string& tail) {
  return s.size() >= tail.size() && s.compare(s.size() - tail.size(), tail.size(), tail) == 0;
}

// The stem of each tensor with this leaf: "model.layers.0.self_attn." for "q_proj.weight".
std::vector<std::string> stems(const TestTensors& t, const std::string& leaf) {
  std::vector<std::string> out;
  for (const auto& [name, tensor] : t)
    if (ends_with(name, "." + leaf)) out.push_back(name.substr(0, name.size() - leaf.size()));
  return out;
}

TestTensor take(TestTensors& t, const std::string& name) {
  TestTensor out = t.at(name);
  t.erase(name);
  return out;
}

void fuse(TestTensors& t, const std::vector<std::string>& leaves, const std::string& fused) {
  for (const std::string& stem : stems(t, leaves.front())) {
    std::vector<TestTensor> parts;
    for (const auto& leaf : leaves) parts.push_back(take(t, stem + leaf));
    t[stem + fused] = stacked_rows(parts);
  }
}

// Every matrix but the embedding as [in, out].
void turn(TestTensors& t) {
  for (auto& [name, tensor] : t)
    if (tensor.shape.size() == 2 && tensor.shape[0] > 1 && !ends_with(name, "embed_tokens.weight"))
      tensor = transposed(tensor);
}

void rename(TestTensors& t, const std::string& from, const std::string& to) {
  TestTensors out;
  for (auto& [name, tensor] : t) out[std::regex_replace(name, std::regex(from), to)] = std::move(tensor);
  t = std::move(out);
}

void stack_experts(TestTensors& t, const std::string& block, const char* gate, const char* up, const char* down,
                   bool input_major) {
  for (const std::string& stem : stems(t, block + ".gate.weight")) {
    const std::string at = stem + block + ".experts.";
    std::vector<TestTensor> gate_up, downs;
    for (int e = 0; t.count(at + std::to_string(e) + "." + gate + ".weight") != 0; ++e) {
      const std::string mine = at + std::to_string(e) + ".";
      TestTensor g = take(t, mine + gate + ".weight"), u = take(t, mine + up + ".weight"),
                 d = take(t, mine + down + ".weight");
      TestTensor both = stacked_rows({g, u});
      gate_up.push_back(input_major ? transposed(both) : both);
      downs.push_back(input_major ? transposed(d) : d);
    }
    t[stem + "mlp.experts.gate_up_proj"] = stack(gate_up);
    t[stem + "mlp.experts.down_proj"] = stack(downs);
    if (block != "mlp") t[stem + "mlp.gate.weight"] = take(t, stem + block + ".gate.weight");
  }
}

template <class Rewrite>
void expect_same_logits(const std::string& name, Rewrite&& rewrite) {
  TempFolder folder;
  testing::copy_config(golden(name), folder.path());
  TestTensors tensors = testing::read_tensors(golden(name) + "/model.safetensors");
  rewrite(tensors);
  testing::write_tensors(folder.file("model.safetensors"), tensors);
  const auto ids = testing::some_ids(40, 500);
  for (DType type : {DType::kF32, DType::kBF16}) {
    LoadOptions a, b;
    a.path = golden(name), b.path = folder.path();
    a.activation = b.activation = type;
    const auto want = testing::logits_of(a, ids), got = testing::logits_of(b, ids);
    ASSERT_EQ(want.size(), got.size()) << name;
    EXPECT_TRUE(std::equal(want.begin(), want.end(), got.begin())) << name;
  }
}

void paddle_names(TestTensors& t) {
  fuse(t, {"q_proj.weight", "k_proj.weight", "v_proj.weight"}, "qkv_proj.weight");
  fuse(t, {"gate_proj.weight", "up_proj.weight"}, "up_gate_proj.weight");
  rename(t, "^model\\.", "ernie.");
}

TEST(Layout, PaddleNamesAndOrientation) {
  for (const char* name : {"ernie4_5", "ernie4_5_hd128", "ernie4_5_moe"})
    expect_same_logits(name, [](TestTensors& t) {
      paddle_names(t);
      turn(t);
    });
}

TEST(Layout, NamesAndOrientationAreIndependent) {
  expect_same_logits("ernie4_5", paddle_names);
  expect_same_logits("ernie4_5_moe", paddle_names);
  for (const char* name : {"ernie4_5", "ernie4_5_moe", "llama3", "qwen2_moe", "deepseek_v3", "mixtral"})
    expect_same_logits(name, turn);
}

TEST(Layout, FusedProjectionsAndBiases) {
  for (const char* name : {"llama3", "qwen2", "qwen3"})
    expect_same_logits(name, [](TestTensors& t) {
      fuse(t, {"q_proj.weight", "k_proj.weight", "v_proj.weight"}, "qkv_proj.weight");
      fuse(t, {"q_proj.bias", "k_proj.bias", "v_proj.bias"}, "qkv_proj.bias");
      fuse(t, {"gate_proj.weight", "up_proj.weight"}, "gate_up_proj.weight");
    });
}

TEST(Layout, StackedExperts) {
  for (const bool input_major : {false, true}) {
    for (const char* name : {"qwen3_moe", "qwen2_moe", "deepseek_v3", "glm4_moe"})
      expect_same_logits(
          name, [&](TestTensors& t) { stack_experts(t, "mlp", "gate_proj", "up_proj", "down_proj", input_major); });
    expect_same_logits("mixtral",
                       [&](TestTensors& t) { stack_experts(t, "block_sparse_moe", "w1", "w3", "w2", input_major); });
    expect_same_logits("ernie4_5_moe", [&](TestTensors& t) {
      stack_experts(t, "mlp", "gate_proj", "up_proj", "down_proj", input_major);
      rename(t, "mlp\\.moe_statics", "mlp.gate.moe_statics");
    });
  }
}

TEST(Layout, OtherPrefixes) {
  expect_same_logits("qwen3", [](TestTensors& t) { rename(t, "^model\\.", "model.language_model."); });
  expect_same_logits("llama_tied", [](TestTensors& t) { rename(t, "^model\\.", ""); });
}

TEST(Layout, OptionalTensorsMayBeThere) {
  expect_same_logits("llama_tied", [](TestTensors& t) {
    t["lm_head.weight"] = t.at("model.embed_tokens.weight");
    t["model.layers.0.self_attn.rotary_emb.inv_freq"] = {"F32", {1}, "1234"};
  });
  expect_same_logits("ernie4_5", [](TestTensors& t) {
    t["model.mtp_emb_norm.0.weight"] = {"BF16", {1}, "12"};
    t["model.mtp_block.0.mlp.down_proj.weight"] = {"I8", {1}, "1"};
  });
  expect_same_logits("deepseek_v3", [](TestTensors& t) { t["model.layers.3.eh_proj.weight"] = {"F8_E4M3", {1}, "1"}; });
}

TEST(Layout, MisalignedTensorsLoad) {
  // An odd byte in front of everything: no tensor is aligned to its type.
  expect_same_logits("llama3", [](TestTensors& t) { t["a.rotary_emb.inv_freq"] = {"U8", {1}, "1"}; });
}

std::string load_error(const std::string& name, const std::function<void(TestTensors&)>& rewrite) {
  TempFolder folder;
  testing::copy_config(golden(name), folder.path());
  TestTensors tensors = testing::read_tensors(golden(name) + "/model.safetensors");
  rewrite(tensors);
  testing::write_tensors(folder.file("model.safetensors"), tensors);
  LoadOptions o;
  o.path = folder.path();
  const auto model = load_model(o, testing::cpu());
  return model.ok() ? "" : model.error().message;
}

TEST(Layout, MissingAndUnexpectedTensorsAreReportedTogether) {
  const std::string e = load_error("llama3", [](TestTensors& t) {
    rename(t, "layers.0.self_attn.q_proj", "layers.0.self_attn.q_prj");
    t.erase("model.norm.weight");
    t["model.layers.9.mlp.up_proj.weight"] = {"BF16", {1}, "12"};
  });
  for (const char* part :
       {"2 tensors missing, 2 unexpected",
        "missing model.layers.0.self_attn.q_proj.weight (nearest: model.layers.0.self_attn.q_prj.weight)",
        "missing model.norm.weight", "unexpected model.layers.9.mlp.up_proj.weight",
        "unexpected model.layers.0.self_attn.q_prj.weight (nearest: model.layers.0.self_attn.q_proj.weight)"})
    EXPECT_NE(e.find(part), std::string::npos) << part << "\n" << e;
}

TEST(Layout, LongListsAreCutShort) {
  const std::string e = load_error("qwen3_moe", [](TestTensors& t) { rename(t, "experts", "xperts"); });
  EXPECT_NE(e.find("72 tensors missing, 72 unexpected"), std::string::npos) << e;
  EXPECT_NE(e.find("and 56 more missing"), std::string::npos) << e;
  EXPECT_LT(e.size(), 8000u);
}

TEST(Layout, WrongShapesAndTypesAreErrors) {
  EXPECT_NE(load_error("llama3",
                       [](TestTensors& t) {
                         t["model.norm.weight"] = {"BF16", {2}, "1234"};
                       })
                .find("model.norm.weight has shape [2], not [128]"),
            std::string::npos);
  EXPECT_NE(load_error("llama3", [](TestTensors& t) { t["model.norm.weight"].dtype = "I16"; }).find("has type I16"),
            std::string::npos);
  EXPECT_NE(
      load_error("llama3",
                 [](TestTensors& t) { t["model.embed_tokens.weight"] = transposed(t["model.embed_tokens.weight"]); })
          .find("has shape [128, 512]"),
      std::string::npos);
  EXPECT_NE(load_error("llama3",
                       [](TestTensors& t) {
                         t["model.layers.0.mlp.down_proj.weight"] =
                             transposed(t["model.layers.0.mlp.down_proj.weight"]);
                       })
                .find("both orientations"),
            std::string::npos);
}

TEST(Layout, FloatTypesLoadAlike) {
  // bfloat16 values are exact in float32, and in float16 where they are of ordinary size.
  const auto convert = [](TestTensors& t, const char* type) {
    for (auto& [name, tensor] : t) {
      std::string out;
      for (size_t i = 0; i < tensor.bytes.size(); i += 2) {
        bf16 v;
        std::memcpy(&v, &tensor.bytes[i], 2);
        const float f = to_float(v);
        out.append(reinterpret_cast<const char*>(&f), 4);
      }
      tensor = {type, tensor.shape, out};
    }
  };
  expect_same_logits("qwen2", [&](TestTensors& t) { convert(t, "F32"); });
  expect_same_logits("ernie4_5_moe", [&](TestTensors& t) { convert(t, "F32"); });
}

TEST(Layout, Float16Loads) {
  TempFolder half, full;
  TestTensors a = testing::read_tensors(golden("llama3") + "/model.safetensors"), b = a;
  for (auto& [name, tensor] : a) {
    // Any bit pattern of ordinary size, as float16 in one file and its exact value as float32 in the other.
    std::string wide;
    for (size_t i = 0; i < tensor.bytes.size(); i += 2) {
      uint16_t h;
      std::memcpy(&h, &tensor.bytes[i], 2);
      h = static_cast<uint16_t>((h & 0x83ff) | 0x2c00);
      std::memcpy(&tensor.bytes[i], &h, 2);
      const float f = half_to_float(h);
      wide.append(reinterpret_cast<const char*>(&f), 4);
    }
    tensor.dtype = "F16";
    b[name] = {"F32", tensor.shape, wide};
  }
  for (auto* f : {&half, &full}) testing::copy_config(golden("llama3"), f->path());
  testing::write_tensors(half.file("model.safetensors"), a);
  testing::write_tensors(full.file("model.safetensors"), b);
  LoadOptions x, y;
  x.path = half.path(), y.path = full.path();
  x.activation = y.activation = DType::kF32;
  const auto ids = testing::some_ids(20, 500);
  EXPECT_EQ(testing::logits_of(x, ids), testing::logits_of(y, ids));
}

}  // namespace
}  // namespace tern::model
