#include "model/tests/coded_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/bf16.h"
#include "model/tests/support.h"

namespace tern::model::testing {
namespace {

bool is_fp8(Layout l) { return l == Layout::kFp8Block || l == Layout::kFp8Row || l == Layout::kFp8Tensor; }

// A matrix as whole numbers: value = (q - z) * s.
struct Numbers {
  int64_t n, k, rows, cols;  // rows and columns of a scale
  std::vector<int> q, z;
  std::vector<float> s;
  int64_t groups() const { return (k + cols - 1) / cols; }
  size_t scale_of(int64_t r, int64_t c) const { return static_cast<size_t>(r / rows * groups() + c / cols); }
  int code(int64_t r, int64_t c) const { return q[static_cast<size_t>(r * k + c)]; }
};

double e4m3(int code) {
  const int e = code >> 3 & 15, m = code & 7;
  const double a = e == 0 ? std::ldexp(m, -9) : std::ldexp(8 + m, e - 10);
  return code >= 128 ? -a : a;
}

int nearest_e4m3(double v) {
  int best = 0;
  for (int code = 0; code < 256; ++code) {
    if ((code & 127) == 127) continue;
    if (std::fabs(e4m3(code) - v) < std::fabs(e4m3(best) - v)) best = code;
  }
  return best;
}

// Eight significant bits, so that float16 and bfloat16 hold it.
float short_float(double v) { return to_float(to_bf16(static_cast<float>(v))); }

Numbers numbers_of(const CodedFolder& f, const std::vector<float>& w, int64_t n, int64_t k) {
  Numbers x{n, k, 1, f.group == 0 ? k : f.group, std::vector<int>(w.size()), {}, {}};
  if (f.layout == Layout::kFp8Block) x.rows = x.cols = 128;
  if (f.layout == Layout::kFp8Tensor) x.rows = n;
  const int64_t blocks = (n + x.rows - 1) / x.rows * x.groups();
  std::vector<double> top(static_cast<size_t>(blocks), 1e-3);
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = 0; c < k; ++c)
      top[x.scale_of(r, c)] =
          std::max(top[x.scale_of(r, c)], std::fabs(static_cast<double>(w[static_cast<size_t>(r * k + c)])));
  const int middle = 1 << (f.bits - 1);
  for (int64_t b = 0; b < blocks; ++b) {
    const double bound = is_fp8(f.layout) ? 448 : middle - 1;
    x.s.push_back(short_float(top[static_cast<size_t>(b)] / bound));
    x.z.push_back(f.zeros ? middle + static_cast<int>(b % 5) - 2 : middle);
  }
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t c = 0; c < k; ++c) {
      const auto i = static_cast<size_t>(r * k + c);
      const size_t g = x.scale_of(r, c);
      const double v = static_cast<double>(w[i]) / static_cast<double>(x.s[g]);
      x.q[i] = is_fp8(f.layout) ? nearest_e4m3(v)
                                : std::clamp(static_cast<int>(std::nearbyint(v)) + x.z[g], 0, 2 * middle - 1);
    }
  }
  return x;
}

template <class T>
TestTensor tensor(const char* dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  return {dtype, std::move(shape), {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)}};
}

uint16_t half_bits(float v) {  // of normal, positive values
  const auto bits = std::bit_cast<uint32_t>(v);
  return static_cast<uint16_t>(((bits >> 23) - 112) << 10 | (bits >> 13 & 1023));
}

// Words of 32 bits over a table of numbers by (word row, word column, place in the word).
template <class F>
std::vector<uint32_t> words(int64_t rows, int64_t cols, int bits, F&& number) {
  std::vector<uint32_t> out;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      uint32_t word = 0;
      for (int p = 0; p < 32 / bits; ++p) word |= static_cast<uint32_t>(number(i, j, p)) << (p * bits);
      out.push_back(word);
    }
  }
  return out;
}

void put_gptq(const CodedFolder& f, const std::string& module, const Numbers& x, TestTensors& out) {
  const int per = 32 / f.bits, less = f.layout == Layout::kGptq ? 1 : 0;
  const int64_t g = x.groups();
  out[module + ".qweight"] =
      tensor("I32", {x.k / per, x.n},
             words(x.k / per, x.n, f.bits, [&](auto i, auto j, int p) { return x.code(j, i * per + p); }));
  out[module + ".qzeros"] = tensor("I32", {g, x.n / per}, words(g, x.n / per, f.bits, [&](auto i, auto j, int p) {
                                     return x.z[static_cast<size_t>((j * per + p) * g + i)] - less;
                                   }));
  std::vector<uint16_t> scales;
  for (int64_t i = 0; i < g; ++i)
    for (int64_t r = 0; r < x.n; ++r) scales.push_back(half_bits(x.s[static_cast<size_t>(r * g + i)]));
  out[module + ".scales"] = tensor("F16", {g, x.n}, scales);
  std::vector<int32_t> index;
  for (int64_t c = 0; c < x.k; ++c) index.push_back(static_cast<int32_t>(c / x.cols));
  out[module + ".g_idx"] = tensor("I32", {x.k}, index);
}

// Eight neighbouring rows in a word, in the order 0, 2, 4, 6, 1, 3, 5, 7.
void put_awq(const std::string& module, const Numbers& x, TestTensors& out) {
  constexpr int kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  const int64_t g = x.groups();
  out[module + ".qweight"] =
      tensor("I32", {x.k, x.n / 8},
             words(x.k, x.n / 8, 4, [&](auto i, auto j, int p) { return x.code(j * 8 + kOrder[p], i); }));
  out[module + ".qzeros"] = tensor("I32", {g, x.n / 8}, words(g, x.n / 8, 4, [&](auto i, auto j, int p) {
                                     return x.z[static_cast<size_t>((j * 8 + kOrder[p]) * g + i)];
                                   }));
  std::vector<uint16_t> scales;
  for (int64_t i = 0; i < g; ++i)
    for (int64_t r = 0; r < x.n; ++r) scales.push_back(half_bits(x.s[static_cast<size_t>(r * g + i)]));
  out[module + ".scales"] = tensor("F16", {g, x.n}, scales);
}

TestTensor bf16_scales(const Numbers& x) {
  std::vector<bf16> scales;
  for (const float s : x.s) scales.push_back(to_bf16(s));
  return tensor("BF16", {x.n, x.groups()}, scales);
}

void put_packed(const CodedFolder& f, const std::string& module, const Numbers& x, TestTensors& out) {
  const int per = 32 / f.bits;
  const int64_t g = x.groups(), wide = (x.k + per - 1) / per;
  out[module + ".weight_packed"] = tensor("I32", {x.n, wide}, words(x.n, wide, f.bits, [&](auto i, auto j, int p) {
                                            return j * per + p < x.k ? x.code(i, j * per + p) : 0;
                                          }));
  out[module + ".weight_scale"] = bf16_scales(x);
  out[module + ".weight_shape"] = tensor("I64", {2}, std::vector<int64_t>{x.n, x.k});
  if (f.zeros)
    out[module + ".weight_zero_point"] =
        tensor("I32", {x.n / per, g}, words(x.n / per, g, f.bits, [&](auto i, auto j, int p) {
                 return x.z[static_cast<size_t>((i * per + p) * g + j)];
               }));
}

void put_bytes(const CodedFolder& f, const std::string& module, const Numbers& x, TestTensors& out) {
  const int middle = is_fp8(f.layout) ? 0 : 1 << (f.bits - 1);
  std::vector<int8_t> codes, zeros;
  for (const int q : x.q) codes.push_back(static_cast<int8_t>(q - middle));
  for (const int z : x.z) zeros.push_back(static_cast<int8_t>(z - middle));
  const bool paddle = f.layout == Layout::kPaddle;
  out[module + (paddle ? ".quant_weight" : ".weight")] = tensor(is_fp8(f.layout) ? "F8_E4M3" : "I8", {x.n, x.k}, codes);
  const auto blocks = static_cast<int64_t>(x.s.size()) / x.groups();
  if (f.layout == Layout::kFp8Block) {
    out[module + ".weight_scale_inv"] = tensor("F32", {blocks, x.groups()}, x.s);
  } else if (f.layout == Layout::kFp8Tensor) {
    out[module + ".weight_scale"] = tensor("F32", {}, x.s);
  } else if (paddle) {
    out[module + ".weight_scale"] = tensor("F32", {x.n}, x.s);
  } else {
    out[module + ".weight_scale"] = bf16_scales(x);
  }
  if (f.zeros) out[module + ".weight_zero_point"] = tensor("I8", {x.n, x.groups()}, zeros);
}

bool is_coded(const std::string& name, const TestTensor& t) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  return t.shape.size() == 2 && has("_proj") && name.ends_with(".weight");
}

}  // namespace

std::string name_of(const CodedFolder& f) {
  constexpr const char* kNames[] = {"gptq",     "gptq_v2", "awq",       "packed", "int8",
                                    "fp8block", "fp8row",  "fp8tensor", "paddle"};
  return fmt::format("{}_{}_{}{}", kNames[static_cast<size_t>(f.layout)], f.bits, f.group, f.zeros ? "_zp" : "");
}

json::Value config_of(const CodedFolder& f) {
  const int group = f.group == 0 ? -1 : f.group;
  const auto compressed = [&](const char* format, const char* type, const char* strategy) {
    json::Object weights{{"num_bits", f.bits}, {"type", type}, {"symmetric", !f.zeros}, {"strategy", strategy}};
    weights["group_size"] = f.group == 0 ? json::Value() : json::Value(f.group);
    return json::Object{{"quant_method", "compressed-tensors"},
                        {"format", format},
                        {"quantization_status", "compressed"},
                        {"ignore", json::Array{"lm_head", "re:.*gate$", "re:.*kv_b_proj$"}},
                        {"config_groups", json::Object{{"group_0", json::Object{{"targets", json::Array{"Linear"}},
                                                                                {"weights", weights},
                                                                                {"input_activations", nullptr}}}}}};
  };
  switch (f.layout) {
    case Layout::kGptq:
    case Layout::kGptqV2:
      return json::Object{
          {"quant_method", "gptq"}, {"bits", f.bits},
          {"group_size", group},    {"desc_act", false},
          {"sym", !f.zeros},        {"checkpoint_format", f.layout == Layout::kGptq ? "gptq" : "gptq_v2"}};
    case Layout::kAwq:
      return json::Object{
          {"quant_method", "awq"}, {"bits", 4}, {"group_size", group}, {"zero_point", true}, {"version", "gemm"}};
    case Layout::kPacked:
      return compressed("pack-quantized", "int", f.group == 0 ? "channel" : "group");
    case Layout::kInt8:
      return compressed("int-quantized", "int", f.group == 0 ? "channel" : "group");
    case Layout::kFp8Row:
      return compressed("float-quantized", "float", "channel");
    case Layout::kFp8Block:
      return json::Object{{"quant_method", "fp8"},
                          {"activation_scheme", "dynamic"},
                          {"fmt", "e4m3"},
                          {"weight_block_size", json::Array{128, 128}}};
    case Layout::kFp8Tensor:
      return json::Object{{"quant_method", "fp8"}, {"activation_scheme", "static"}};
    case Layout::kPaddle:
      break;
  }
  return json::Object{{"quantization", "wint8"}, {"is_quantized", true}, {"is_permuted", false}};
}

void encode_model(const CodedFolder& f, const TestTensors& tensors, TestTensors& coded, TestTensors& widened) {
  for (const auto& [name, t] : tensors) {
    // The latent projections of MLA are stored as codes in FP8 files only.
    const bool latent = name.find("kv_b_proj") != std::string::npos && f.layout != Layout::kFp8Block;
    if (!is_coded(name, t) || latent) {
      coded[name] = widened[name] = t;
      continue;
    }
    std::vector<float> w;
    for (size_t i = 0; i < t.bytes.size(); i += 2) {
      bf16 v;
      std::memcpy(&v, t.bytes.data() + i, sizeof v);
      w.push_back(to_float(v));
    }
    const Numbers x = numbers_of(f, w, t.shape[0], t.shape[1]);
    for (int64_t r = 0; r < x.n; ++r) {
      for (int64_t c = 0; c < x.k; ++c) {
        const size_t g = x.scale_of(r, c);
        const double whole = is_fp8(f.layout) ? e4m3(x.code(r, c)) : x.code(r, c) - x.z[g];
        w[static_cast<size_t>(r * x.k + c)] = static_cast<float>(whole * static_cast<double>(x.s[g]));
      }
    }
    widened[name] = tensor("F32", t.shape, w);
    const std::string module = name.substr(0, name.size() - 7);
    if (f.layout == Layout::kGptq || f.layout == Layout::kGptqV2) {
      put_gptq(f, module, x, coded);
    } else if (f.layout == Layout::kAwq) {
      put_awq(module, x, coded);
    } else if (f.layout == Layout::kPacked) {
      put_packed(f, module, x, coded);
    } else {
      put_bytes(f, module, x, coded);
    }
  }
}

CodedPair::CodedPair(const CodedFolder& f, const std::string& architecture, int width, int head) {
  json::Object config = small_config(architecture, 4, 2);
  config["intermediate_size"] = width, config["head_dim"] = head;
  if (width == 128) config["moe_intermediate_size"] = width;
  write_random_model(widened.path(), config);
  TestTensors values;
  encode_model(f, read_tensors(widened.file("model.safetensors")), tensors, values);
  write_tensors(widened.file("model.safetensors"), values);
  config["quantization_config"] = config_of(f);
  write_file(coded.file("config.json"), json::dump(config));
  write();
}

}  // namespace tern::model::testing
