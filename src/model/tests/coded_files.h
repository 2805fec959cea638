// Folders of weights stored as codes, written as the libraries of each format lay them out, beside what they stand for.
#pragma once

#include <string>
#include <vector>

#include "json/json.h"
#include "model/loader.h"
#include "model/tests/weight_files.h"

namespace tern::model::testing {

enum class Layout { kGptq, kGptqV2, kAwq, kPacked, kInt8, kFp8Block, kFp8Row, kFp8Tensor, kPaddle };

struct CodedFolder {
  Layout layout = Layout::kPacked;
  int bits = 4;
  int group = 32;      // 0: a scale per row
  bool zeros = false;  // zero points other than the middle
};

std::string name_of(const CodedFolder& f);
// The quantization_config of such a folder.
json::Value config_of(const CodedFolder& f);

// `tensors`, a model of bfloat16 values: the matrices of projections and experts become codes of `f` in `coded` and
// float32 values of the same codes in `widened`.
void encode_model(const CodedFolder& f, const TestTensors& tensors, TestTensors& coded, TestTensors& widened);

// A model of random bfloat16 weights, stored as codes in one folder and as the values of these in another.
struct CodedPair {
  TempFolder coded, widened;
  TestTensors tensors;

  CodedPair(const CodedFolder& f, const std::string& architecture, int width = 192, int head = 16);
  void write() const { write_tensors(coded.file("model.safetensors"), tensors); }
  LoadOptions options(DType type = DType::kF32) const {
    LoadOptions o;
    o.path = coded.path();
    o.activation = type;
    return o;
  }
};

}  // namespace tern::model::testing
