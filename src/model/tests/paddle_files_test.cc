// The files of static exports, made of bytes: what is right is read, what is cut, lies or overflows is an error.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "base/bf16.h"
#include "json/json.h"
#include "model/paddle/params_file.h"
#include "model/paddle/program.h"
#include "model/paddle/weight_only.h"
#include "model/paddle/wire.h"
#include "model/tests/support.h"

namespace tern::model {
namespace {

template <class T>
std::string bytes_of(T v) {
  return {reinterpret_cast<const char*>(&v), sizeof v};
}

std::string varint(uint64_t v) {
  std::string out;
  for (; v >= 0x80; v >>= 7) out.push_back(static_cast<char>(v | 0x80));
  out.push_back(static_cast<char>(v));
  return out;
}
std::string field(uint32_t number, uint64_t v) { return varint(number << 3) + varint(v); }
std::string field(uint32_t number, const std::string& part) {
  return varint(number << 3 | 2) + varint(part.size()) + part;
}

std::string desc(uint64_t type, const std::vector<int64_t>& dims) {
  std::string out = field(1, type);
  for (const int64_t d : dims) out += field(2, static_cast<uint64_t>(d));
  return out;
}
std::string tensor(const std::string& description, const std::string& data,
                   const std::string& levels = bytes_of<uint64_t>(0)) {
  return bytes_of<uint32_t>(0) + levels + bytes_of<uint32_t>(0) + bytes_of(static_cast<int32_t>(description.size())) +
         description + data;
}

TEST(Pdiparams, TensorsLieOneBehindTheOther) {
  const std::string levels = bytes_of<uint64_t>(1) + bytes_of<uint64_t>(3) + "abc";
  const std::string packed = field(1, 5) + field(2, varint(2) + varint(300));  // dims in one field
  const std::string file = tensor(desc(22, {2, 3}), std::string(12, 'x')) + tensor(desc(21, {4}), "1234", levels) +
                           tensor(desc(5, {}), "scal") + tensor(packed, std::string(2400, 'y')) +
                           tensor(desc(5, {0, 7}), "");
  const auto read = parse_pdiparams(file);
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->size(), 5u);
  EXPECT_EQ((*read)[0].tensor, (PaddleTensor{FileType::kBF16, {2, 3}}));
  EXPECT_EQ(file.substr((*read)[1].begin, (*read)[1].end - (*read)[1].begin), "1234");
  EXPECT_EQ((*read)[2].tensor.dims, std::vector<int64_t>{});
  EXPECT_EQ((*read)[3].tensor.dims, (std::vector<int64_t>{2, 300}));
  EXPECT_EQ((*read)[4].end, file.size());
}

TEST(Pdiparams, CutAnywhereItIsAnErrorThatNamesTheTensor) {
  const std::string first = tensor(desc(22, {2, 3}), std::string(12, 'x'));
  const std::string file = first + tensor(desc(5, {3}), std::string(12, 'y'));
  for (size_t n = 1; n < file.size(); ++n) {
    const auto read = parse_pdiparams(std::string_view(file).substr(0, n));
    ASSERT_EQ(read.ok(), n == first.size()) << n;
    if (!read.ok()) {
      EXPECT_EQ(read.error().message.find(n < first.size() ? "tensor 0" : "tensor 1"), 0u) << n;
    }
  }
}

TEST(Pdiparams, CountsThatLieAndWrongTypesAreErrors) {
  const int64_t huge = int64_t{1} << 62;
  const std::pair<std::string, const char*> rows[] = {
      {bytes_of<uint32_t>(7) + std::string(20, '\0'), "version 7"},
      {tensor(desc(22, {2}), "1234", bytes_of<uint64_t>(~0ull)), "cut off"},
      {tensor(desc(22, {2}), "1234", bytes_of<uint64_t>(1) + bytes_of<uint64_t>(~0ull)), "cut off"},
      {bytes_of<uint32_t>(0) + bytes_of<uint64_t>(0) + bytes_of<uint32_t>(0) + bytes_of<int32_t>(-1), "-1 bytes"},
      {bytes_of<uint32_t>(0) + bytes_of<uint64_t>(0) + bytes_of<uint32_t>(0) + bytes_of<int32_t>(1 << 30), "bytes"},
      {tensor(desc(22, {huge, 8}), "1234"), "too large"},
      {tensor(desc(22, {huge}), "1234"), "beyond the end"},
      {tensor(desc(22, {1 << 20}), "1234"), "beyond the end"},
      {tensor(desc(22, {-1}), "1234"), "negative"},
      {tensor(desc(22, std::vector<int64_t>(9, 1)), "12"), "too many"},
      {tensor(desc(7, {2}), "1234"), "type 7"},
      {tensor(field(2, 4), "1234"), "no type"},
      {tensor(field(1, std::string("x")), "1234"), "no number as its type"},
      {tensor(field(1, 22) + field(2, std::string("\xff")), "1234"), "negative"},
      {tensor(desc(22, {2}) + "\xff", "1234"), "cut off"},
  };
  for (const auto& [file, why] : rows) {
    const auto read = parse_pdiparams(file);
    ASSERT_FALSE(read.ok()) << why;
    EXPECT_NE(read.error().message.find(why), std::string::npos) << read.error().message;
  }
}

TEST(Wire, OnlyWholeFieldsAreRead) {
  for (const std::string& bad :
       {std::string("\x80"), std::string("\x08"),
        std::string("\x0a\x05"
                    "abc",
                    5),
        std::string("\x0b"), std::string(1, '\0'), std::string("\x08") + std::string(10, '\xff'),
        std::string("\x09"
                    "1234567"),
        std::string("\x0d"
                    "123")}) {
    WireReader fields(bad);
    while (fields.next()) {
    }
    EXPECT_TRUE(fields.failed());
    EXPECT_FALSE(fields.next());
  }
  WireReader fields(
      std::string_view("\x09"
                       "12345678"
                       "\x0d"
                       "1234"
                       "\x10\x05",
                       16));
  EXPECT_TRUE(fields.next() && !fields.integer() && !fields.bytes());
  EXPECT_TRUE(fields.next() && fields.next());
  EXPECT_EQ(fields.integer(), 5u);
}

// ---- programs

json::Object parameter(int id, const std::string& name, const std::string& type, const json::Array& dims) {
  return {{"#", "p"},
          {"A", {0, 1, 1, name}},
          {"O", json::Object{{"%", id},
                             {"TT", json::Object{{"#", "0.t_dtensor"}, {"D", {json::Object{{"#", type}}, dims}}}}}}};
}
json::Object operation(const std::string& type, const json::Array& inputs, const char* name, const json::Value& value) {
  json::Array in;
  for (const json::Value& i : inputs) in.push_back(json::Object{{"%", i}});
  return {{"#", type}, {"I", in}, {"A", {json::Object{{"N", name}, {"AT", json::Object{{"D", value}}}}}}};
}
std::string program_of(const json::Array& ops, const char* magic = "pir") {
  const json::Object block{{"ops", ops}}, region{{"blocks", json::Array{block}}};
  return json::dump(json::Object{{"base_code", json::Object{{"magic", magic}}},
                                 {"program", json::Object{{"regions", json::Array{region}}}}});
}

TEST(PirProgram, ParametersAreSortedAndTheirUsesKnown) {
  // The product stands in a branch.
  json::Object branch{{"#", "1.if"}, {"I", json::Array{}}, {"A", json::Array{}}};
  branch["regions"] = json::Array{json::Object{
      {"blocks", json::Array{json::Object{{"ops", json::Array{operation("1.matmul", {9, 1}, "transpose_y", true)}}}}}}};
  const auto read = parse_pir_program(program_of(
      {parameter(1, "w", "0.t_bf16", {4, 2}), parameter(2, "e", "0.t_f16", {8, 2}), parameter(3, "c", "0.t_i8", {2, 2}),
       branch, operation("1.embedding", {7, 2}, "x", 0), operation("1.weight_only_linear", {9, 3}, "arch", 86)}));
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->parameters.size(), 3u);
  EXPECT_EQ(read->parameters[0].name, "c");
  EXPECT_TRUE(read->parameters[1].looked_up && !read->parameters[1].multiplied);
  EXPECT_TRUE(read->parameters[2].multiplied && read->parameters[2].transposed);
  EXPECT_EQ(read->parameters[2].tensor, (PaddleTensor{FileType::kBF16, {4, 2}}));
  EXPECT_EQ(read->arch, 86);
}

TEST(PirProgram, WhatIsNoneIsAnError) {
  const json::Object p = parameter(1, "w", "0.t_bf16", {4});
  const auto without = [&](const char* key) {
    json::Object o = p;
    o.erase(key);
    return program_of({o});
  };
  const std::pair<std::string, const char*> rows[] = {
      {"[]", "not a JSON object"},
      {"{", ""},
      {"{}", "base_code.magic"},
      {program_of({p}, "onnx"), "\"onnx\", not \"pir\""},
      {R"({"base_code": {"magic": "pir"}})", "no program"},
      {R"({"base_code": {"magic": "pir"}, "program": {}})", "no regions"},
      {R"({"base_code": {"magic": "pir"}, "program": {"regions": [{}]}})", "no blocks"},
      {R"({"base_code": {"magic": "pir"}, "program": {"regions": [{"blocks": [{}]}]}})", "no ops"},
      {R"({"base_code": {"magic": "pir"}, "program": {"regions": [{"blocks": [{"ops": [5]}]}]}})", "not an object"},
      {program_of({}), "no parameters"},
      {program_of({p, parameter(2, "w", "0.t_f32", {1})}), "twice"},
      {program_of({json::Object{{"A", json::Array{}}}}), "no type"},
      {without("A"), "no name"},
      {without("O"), "no type"},
      {program_of({parameter(1, "w", "0.t_c64", {4})}), "no weights have"},
      {program_of({parameter(1, "w", "0.t_bf16", {-1})}), "shape"},
      {program_of({parameter(1, "w", "0.t_bf16", {"4"})}), "shape"},
      {program_of({parameter(1, "w", "0.t_bf16", {1, 1, 1, 1, 1, 1, 1, 1, 1})}), "shape"},
      {program_of({parameter(1, "", "0.t_bf16", {1})}), "0 bytes"},
      {program_of({p, operation("1.weight_only_linear", {9, 1}, "group_size", 64)}), "no arch"},
      {program_of({p, operation("1.weight_only_linear", {9, 1}, "arch", -70)}), "architecture -70, which is not known"},
      {program_of({p, operation("1.weight_only_linear", {9, 1}, "arch", 70),
                   operation("1.weight_only_linear", {9, 1}, "arch", 80)}),
       "two architectures, 70 and 80"},
  };
  for (const auto& [text, why] : rows) {
    const auto read = parse_pir_program(text);
    ASSERT_FALSE(read.ok()) << why;
    EXPECT_NE(read.error().message.find(why), std::string::npos) << read.error().message;
  }
}

std::string variable(const std::string& name, uint64_t type, const std::string& description, bool persistable = true) {
  return field(
      3, field(1, name) + field(2, field(1, type) + field(3, field(1, description))) + field(3, uint64_t{persistable}));
}
std::string input(const std::string& called, const std::string& name) {
  return field(1, field(1, called) + field(2, name));
}
std::string attribute(const std::string& name, uint32_t number, uint64_t v) {
  return field(4, field(1, name) + field(2, uint64_t{0}) + field(number, v));
}

TEST(ProgramDesc, ParametersAreThePersistableTensors) {
  const std::string block =
      variable("w", 7, desc(22, {4, 2})) + variable("feed", 9, desc(22, {1})) +
      variable("x", 7, desc(22, {-1, 2}), false) + variable("e", 7, desc(4, {8, 2})) +
      variable("c", 7, desc(21, {2, 2})) +
      field(4, input("X", "x") + input("Y", "w") + field(3, std::string("matmul_v2")) + attribute("trans_y", 10, 1)) +
      field(4, input("W", "e") + field(3, std::string("lookup_table_v2"))) +
      field(4, input("weight", "c") + field(3, std::string("weight_only_linear")) + attribute("arch", 3, 70));
  const std::string bytes = field(1, block) + field(4, field(1, uint64_t{0}));
  const auto read = parse_program_desc(bytes);
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->parameters.size(), 3u);
  EXPECT_EQ(read->parameters[0].name, "c");
  EXPECT_TRUE(read->parameters[1].looked_up);
  EXPECT_TRUE(read->parameters[2].transposed);
  EXPECT_EQ(read->arch, 70);
  // Cut anywhere it is an error or has fewer fields at its end.
  for (size_t n = 0; n < bytes.size(); ++n) {
    const auto cut = parse_program_desc(std::string_view(bytes).substr(0, n));
    EXPECT_TRUE(!cut.ok() || n >= field(1, block).size());
  }
}

TEST(ProgramDesc, WhatIsNoneIsAnError) {
  const std::pair<std::string, const char*> rows[] = {
      {"", "no parameters"},
      {"\xff\xff", "no ProgramDesc"},
      {field(1, uint64_t{5}), "not what ProgramDesc has"},
      {field(1, variable("w", 7, desc(7, {1}))), "variable w: a tensor has elements of type 7"},
      {field(1, variable("w", 7, desc(5, {-1}))), "negative"},
      {field(1, variable("w", 7, desc(5, {1})) + variable("w", 7, desc(5, {1}))), "twice"},
      {field(1, field(4, field(3, std::string("weight_only_linear")))), "no arch"},
      {field(1, field(4, field(1, uint64_t{3}))), "not what ProgramDesc has"},
  };
  for (const auto& [bytes, why] : rows) {
    const auto read = parse_program_desc(bytes);
    ASSERT_FALSE(read.ok()) << why;
    EXPECT_NE(read.error().message.find(why), std::string::npos) << read.error().message;
  }
}

// ---- codes

std::string from_hex(const json::Value& text) {
  std::string out;
  const std::string_view hex = text.get_string();
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return out;
}

// What weight_quantize has made, for both algorithms, architectures and group sizes (tools/golden/make_static.py):
// codes are the values over their scales, to nearest and halves away from zero.
TEST(WeightOnly, CodesOfPaddleAreThoseOfAPlainQuantization) {
  const auto file = json::parse_file(std::string(TERN_SOURCE_DIR) + "/tests/data/static/weight_quantize.json");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const json::Object& all = file->get_object();
  const int64_t n = all.at("n").to_number<int64_t>(), k = all.at("k").to_number<int64_t>();
  const std::string weights = from_hex(all.at("weights"));
  const auto bf16_at = [](const std::string& s, int64_t i) {
    bf16 v;
    std::memcpy(&v, s.data() + 2 * i, sizeof v);
    return to_float(v);
  };
  for (const json::Value& value : all.at("rows").get_array()) {
    const json::Object& row = value.get_object();
    const int bits = row.at("algo").get_string().ends_with("int8") ? 8 : 4;
    const int64_t group = row.at("group").to_number<int64_t>(), width = group == 0 ? k : group;
    const WeightOnlyLayout layout{bits, row.at("arch").to_number<int>() < 75, n, k};
    const std::string codes = from_hex(row.at("codes")), scales = from_hex(row.at("scales"));
    ASSERT_TRUE(layout.possible());
    ASSERT_EQ(static_cast<int64_t>(codes.size()), layout.bytes());
    std::vector<int8_t> got(static_cast<size_t>(n * k));
    layout.read(codes.data(), 0, 0, tensor2(got.data(), DType::kI8, n, k));
    const float bound = bits == 8 ? 127.0f : 7.0f;
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < k; ++c) {
        const float q = bf16_at(weights, r * k + c) / bf16_at(scales, c / width * n + r);
        const float want = std::clamp(std::trunc(q + std::copysign(0.5f, q)), -bound, bound);
        ASSERT_EQ(static_cast<float>(got[static_cast<size_t>(r * k + c)]), want)
            << json::dump(row.at("algo")) << r << " " << c;
      }
    }
    // A block is that part of the whole.
    std::vector<int8_t> part(5 * 9);
    layout.read(codes.data(), 3, 61, tensor2(part.data(), DType::kI8, 5, 9));
    for (int64_t i = 0; i < 45; ++i)
      EXPECT_EQ(part[static_cast<size_t>(i)], got[static_cast<size_t>((3 + i / 9) * k + 61 + i % 9)]);
  }
}

TEST(WeightOnly, EveryBitOfATensorIsOneCodes) {
  for (const bool columns : {false, true}) {
    for (const int bits : {8, 4}) {
      const WeightOnlyLayout layout{bits, columns, 32, 192};
      std::string tensor(static_cast<size_t>(layout.bytes()), '\0');
      std::vector<int8_t> codes(static_cast<size_t>(layout.n * layout.k));
      std::vector<bool> seen(codes.size(), false);
      for (size_t i = 0; i < tensor.size(); ++i) {
        for (int shift = 0; shift < 8; shift += bits) {
          tensor[i] = static_cast<char>(1 << shift);
          layout.read(tensor.data(), 0, 0, tensor2(codes.data(), DType::kI8, layout.n, layout.k));
          const int8_t low = bits == 8 ? -128 : -8;
          const auto at = static_cast<size_t>(
              std::find_if(codes.begin(), codes.end(), [&](int8_t c) { return c != low; }) - codes.begin());
          ASSERT_LT(at, codes.size());
          EXPECT_EQ(codes[at], low + 1);
          EXPECT_FALSE(seen[at]);
          seen[at] = true;
          tensor[i] = 0;
        }
      }
      EXPECT_TRUE(std::ranges::all_of(seen, std::identity{}));
    }
  }
  EXPECT_FALSE((WeightOnlyLayout{8, false, 16, 96}.possible()));
  EXPECT_TRUE((WeightOnlyLayout{8, true, 16, 96}.possible()));
  EXPECT_FALSE((WeightOnlyLayout{4, true, 8, 64}.possible()));
}

}  // namespace
}  // namespace tern::model
