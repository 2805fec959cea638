// Loading keeps little more than the weights in memory: pages of the files are given back as they are packed.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "model/quantized/export.h"
#include "model/tests/support.h"

namespace tern::model {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

using testing::TempFolder;

constexpr size_t kThread = 64u << 20;  // what a thread may take for its work

struct BigTensor {
  std::string name;
  std::vector<int64_t> shape;
};

// Writes tensors of plausible bfloat16 values without holding them; returns their places for the index.
std::string write_shard(const std::string& folder, const std::string& file, const std::vector<BigTensor>& tensors) {
  std::string index, header = "{";
  uint64_t at = 0;
  for (const BigTensor& t : tensors) {
    const uint64_t bytes =
        2 * static_cast<uint64_t>(t.shape[0]) * static_cast<uint64_t>(t.shape.size() > 1 ? t.shape[1] : 1);
    header += fmt::format(
        "{}\"{}\":{{\"dtype\":\"BF16\",\"shape\":{},\"data_offsets\":[{},{}]}}", at == 0 ? "" : ",", t.name,
        t.shape.size() > 1 ? fmt::format("[{},{}]", t.shape[0], t.shape[1]) : fmt::format("[{}]", t.shape[0]), at,
        at + bytes);
    index += fmt::format("{}\"{}\":\"{}\"", at == 0 ? "" : ",", t.name, file);
    at += bytes;
  }
  header += "}";
  std::ofstream out(folder + "/" + file, std::ios::binary);
  const uint64_t n = header.size();
  out.write(reinterpret_cast<const char*>(&n), 8).write(header.data(), static_cast<std::streamsize>(n));
  std::vector<uint16_t> piece(1 << 19);
  for (size_t k = 0; k < piece.size(); ++k) piece[k] = static_cast<uint16_t>(0x3c00 + (k * 2654435761u >> 20 & 0x803f));
  for (uint64_t left = at; left > 0;) {
    const uint64_t take = std::min<uint64_t>(left, piece.size() * 2);
    out.write(reinterpret_cast<const char*>(piece.data()), static_cast<std::streamsize>(take));
    left -= take;
  }
  return index;
}

// About 200 MB in two shards.
void write_big(const std::string& folder, bool paddle, bool fused) {
  constexpr int64_t h = 1024, wide = 4096, vocab = 24576, layers = 4;
  testing::write_file(
      folder + "/config.json",
      fmt::format(
          R"({{"architectures":["Ernie4_5ForCausalLM"],"vocab_size":{},"hidden_size":{},"intermediate_size":{},"num_hidden_layers":{},
             "num_attention_heads":16,"num_key_value_heads":4,"head_dim":64,"tie_word_embeddings":false,"max_position_embeddings":256}})",
          vocab, h, wide, layers));
  const auto matrix = [&](const std::string& name, int64_t out, int64_t in) {
    return BigTensor{name, paddle ? std::vector<int64_t>{in, out} : std::vector<int64_t>{out, in}};
  };
  const std::string root = paddle ? "ernie." : "model.";
  std::vector<BigTensor> shards[2];
  shards[0] = {{root + "embed_tokens.weight", {vocab, h}}, {root + "norm.weight", {h}}};
  shards[1] = {matrix("lm_head.weight", vocab, h)};
  for (int64_t l = 0; l < layers; ++l) {
    const std::string at = root + fmt::format("layers.{}.", l);
    auto& s = shards[l % 2];
    s.push_back({at + "input_layernorm.weight", {h}});
    s.push_back({at + "post_attention_layernorm.weight", {h}});
    if (fused) {
      s.push_back(matrix(at + "self_attn.qkv_proj.weight", 1536, h));
      s.push_back(matrix(at + "mlp.up_gate_proj.weight", 2 * wide, h));
    } else {
      for (const auto& [leaf, n] : {std::pair("q", 1024), std::pair("k", 256), std::pair("v", 256)})
        s.push_back(matrix(at + "self_attn." + leaf + "_proj.weight", n, h));
      for (const char* leaf : {"gate", "up"}) s.push_back(matrix(at + "mlp." + leaf + "_proj.weight", wide, h));
    }
    s.push_back(matrix(at + "self_attn.o_proj.weight", h, 1024));
    s.push_back(matrix(at + "mlp.down_proj.weight", h, wide));
  }
  const std::string files[] = {"model-0.safetensors", "model-1.safetensors"};
  const std::string first = write_shard(folder, files[0], shards[0]), second = write_shard(folder, files[1], shards[1]);
  testing::write_file(folder + "/model.safetensors.index.json", "{\"weight_map\":{" + first + "," + second + "}}");
}

size_t status_kb(const char* key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key, 0) == 0) return std::stoul(line.substr(std::strlen(key) + 1));
  return 0;
}

// Loads in a process of its own and gives (peak minus before, weights), in bytes.
std::pair<size_t, size_t> peak_of(const std::string& folder, const Quantization& quantization = {}) {
  int fds[2];
  EXPECT_EQ(::pipe(fds), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    size_t out[2] = {0, 0};
    auto device = device::make_cpu_device({.threads = 2, .pin = false});
    LoadOptions o;
    o.path = folder;
    o.quantization = quantization;
    std::ofstream("/proc/self/clear_refs") << 5;  // the peak starts here
    const size_t before = status_kb("VmRSS:");
    const auto model = load_model(o, **device);
    if (model.ok()) {
      out[0] = (status_kb("VmHWM:") - before) * 1024;
      out[1] = (*model)->info().weight_bytes;
    } else {
      std::fprintf(stderr, "%s\n", model.error().message.c_str());
    }
    const bool sent = ::write(fds[1], out, sizeof out) == sizeof out;
    ::_exit(sent ? 0 : 1);
  }
  size_t in[2] = {0, 0};
  EXPECT_EQ(::read(fds[0], in, sizeof in), static_cast<ssize_t>(sizeof in));
  ::close(fds[0]), ::close(fds[1]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return {in[0], in[1]};
}

// Codes are made slice by slice: never is there a copy of the weights as they were.
TEST(Memory, QuantizingPeaksAtTheCodesAndAFewPercent) {
  if (kSanitized) GTEST_SKIP() << "sanitizers use memory of their own";
  for (const bool paddle : {false, true}) {
    TempFolder folder;
    write_big(folder.path(), paddle, paddle);
    for (const char* method : {"wint8", "wint4", "block_wise_fp8"}) {
      const auto quantization = read_quantization(method, "LlamaForCausalLM");
      ASSERT_TRUE(quantization.ok());
      const auto [peak, weights] = peak_of(folder.path(), *quantization);
      ASSERT_GT(weights, 40u << 20);
      EXPECT_LE(peak, weights + weights / 20 + 2 * kThread) << method << (paddle ? " (Paddle layout)" : "");
    }
  }
}

// Neither is there one of codes that the files hold.
TEST(Memory, LoadingCodesPeaksAtThemAndAFewPercent) {
  if (kSanitized) GTEST_SKIP() << "sanitizers use memory of their own";
  TempFolder plain, coded;
  write_big(plain.path(), false, false);
  ExportOptions o;
  o.load.path = plain.path(), o.write.out = coded.file("out");
  o.load.quantization = *read_quantization("wint8", "LlamaForCausalLM");
  ASSERT_TRUE(export_model(o).ok());
  const auto [peak, weights] = peak_of(coded.file("out"));
  ASSERT_GT(weights, 40u << 20);
  EXPECT_LE(peak, weights + weights / 20 + 2 * kThread);
}

TEST(Memory, LoadingPeaksAtTheWeightsAndATenth) {
  if (kSanitized) GTEST_SKIP() << "sanitizers use memory of their own";
  for (const auto& [paddle, fused] : {std::pair(false, false), std::pair(true, true)}) {
    TempFolder folder;
    write_big(folder.path(), paddle, fused);
    const auto [peak, weights] = peak_of(folder.path());
    ASSERT_GT(weights, 190u << 20);
    EXPECT_GE(peak, weights * 9 / 10);
    EXPECT_LE(peak, weights + weights / 10)
        << "peak " << peak << " over weights " << weights << (paddle ? " (Paddle layout)" : "");
  }
}

}  // namespace
}  // namespace tern::model
