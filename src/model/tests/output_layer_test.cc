// A tied config beside an output layer in the files: reference cases of every architecture, as transformers computes
// them.
#include "model/weights/output_layer.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "model/config/config_reader.h"
#include "model/tests/support.h"
#include "model/verify/verify_case.h"

namespace tern::model {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;
using testing::TestTensors;

json::Object config_of(const std::string& folder) { return *read_config(folder, "config.json", {}); }

bool is_tied(const std::string& name) {
  const json::Object config = config_of(testing::golden(name));
  const json::Value* tied = json::find(config, "tie_word_embeddings");
  return tied != nullptr && tied->is_bool() && tied->get_bool();
}

// The text cases of tests/data/golden.
std::vector<std::string> text_cases() {
  std::vector<std::string> names;
  for (const auto& e : fs::directory_iterator(testing::golden(""))) names.push_back(e.path().filename().string());
  std::erase_if(names, [](const std::string& n) { return n.find("_vl") != std::string::npos; });
  std::sort(names.begin(), names.end());
  return names;
}

// A copy of a reference case with a tied config and other weights.
void write_case(const std::string& name, const std::string& folder, const TestTensors& tensors) {
  for (const char* file : {"golden.json", "golden.safetensors"})
    testing::write_file(folder + "/" + file, testing::read_file(testing::golden(name) + "/" + file));
  json::Object config = config_of(testing::golden(name));
  config["tie_word_embeddings"] = true;
  testing::write_file(folder + "/config.json", json::dump(config));
  testing::write_tensors(folder + "/model.safetensors", tensors);
}

TestTensors weights_of(const std::string& name) {
  return testing::read_tensors(testing::golden(name) + "/model.safetensors");
}

void expect_passes(const std::string& folder, const std::string& name) {
  const auto report = verify_case(folder, {}, testing::cpu());
  ASSERT_TRUE(report.ok()) << name << ": " << report.error().message;
  EXPECT_EQ(report->failed(), 0) << name;
  EXPECT_GT(report->passed(), 8) << name;
}

// What the loader and `tern inspect` say: the same.
std::vector<std::string> notes_of(const std::string& folder, bool want_tied) {
  LoadOptions o;
  o.path = folder;
  const auto summary = summarize_model(o);
  EXPECT_TRUE(summary.ok()) << summary.error().message;
  const auto model = load_model(o, testing::cpu());
  EXPECT_TRUE(model.ok()) << model.error().message;
  if (!summary.ok() || !model.ok()) return {"no model"};
  EXPECT_EQ(summary->tied, want_tied);
  EXPECT_EQ(summary->notes, (*model)->info().notes);
  EXPECT_EQ(summary->parameters, (*model)->info().parameters);
  return summary->notes;
}

TEST(OutputLayer, AnotherHeadInTheFilesWinsWithOneLine) {
  int cases = 0;
  for (const std::string& name : text_cases()) {
    if (is_tied(name)) continue;
    TempFolder folder;
    write_case(name, folder.path(), weights_of(name));
    expect_passes(folder.path(), name);
    const auto notes = notes_of(folder.path(), false);
    ASSERT_EQ(notes.size(), 1u) << name;
    EXPECT_NE(
        notes[0].find("lm_head.weight of the files differs from model.embed_tokens.weight: lm_head.weight is used"),
        std::string::npos)
        << notes[0];
    ++cases;
  }
  EXPECT_GE(cases, 8);
}

TEST(OutputLayer, AnEqualHeadInTheFilesIsTheEmbeddingAndSaysNothing) {
  int cases = 0;
  for (const std::string& name : text_cases()) {
    if (!is_tied(name)) continue;
    TestTensors tensors = weights_of(name);
    tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
    TempFolder folder;
    write_case(name, folder.path(), tensors);
    expect_passes(folder.path(), name);
    EXPECT_TRUE(notes_of(folder.path(), true).empty()) << name;
    ++cases;
  }
  EXPECT_GE(cases, 3);
}

// The float32 copy of bfloat16 values.
testing::TestTensor widened(const testing::TestTensor& t) {
  testing::TestTensor out{"F32", t.shape, std::string(t.bytes.size() * 2, '\0')};
  for (size_t i = 0; i < t.bytes.size(); i += 2) out.bytes.replace(2 * i + 2, 2, t.bytes, i, 2);
  return out;
}

TEST(OutputLayer, TypeAndOrientationMakeNoDifference) {
  const TestTensors plain = weights_of("llama_tied");
  const testing::TestTensor& embed = plain.at("model.embed_tokens.weight");
  for (const testing::TestTensor& head :
       {testing::transposed(embed), widened(embed), testing::transposed(widened(embed))}) {
    TestTensors tensors = plain;
    tensors["lm_head.weight"] = head;
    TempFolder folder;
    write_case("llama_tied", folder.path(), tensors);
    EXPECT_TRUE(notes_of(folder.path(), true).empty());
    // One bit, in the last element.
    tensors["lm_head.weight"].bytes.back() ^= 1;
    testing::write_tensors(folder.file("model.safetensors"), tensors);
    EXPECT_EQ(notes_of(folder.path(), false).size(), 1u);
  }
}

TEST(OutputLayer, OtherPrefixes) {
  TestTensors tensors;
  for (auto& [name, tensor] : weights_of("llama3"))
    tensors[name.starts_with("model.") ? "model.language_model." + name.substr(6) : "language_model." + name] = tensor;
  TempFolder folder;
  write_case("llama3", folder.path(), tensors);
  expect_passes(folder.path(), "llama3");
  const auto notes = notes_of(folder.path(), false);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("language_model.lm_head.weight of the files differs from "
                          "model.language_model.embed_tokens.weight"),
            std::string::npos)
      << notes[0];
}

TEST(OutputLayer, AHeadThatCannotBeOneIsLeftOutWithOneLine) {
  for (const testing::TestTensor& head : {testing::TestTensor{"BF16", {3, 2}, std::string(12, '1')},
                                          testing::TestTensor{"I8", {512, 128}, std::string(512 * 128, '1')}}) {
    TestTensors tensors = weights_of("llama_tied");
    tensors["lm_head.weight"] = head;
    TempFolder folder;
    write_case("llama_tied", folder.path(), tensors);
    expect_passes(folder.path(), "llama_tied");
    const auto notes = notes_of(folder.path(), true);
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_NE(notes[0].find("cannot be it"), std::string::npos) << notes[0];
  }
}

}  // namespace
}  // namespace tern::model
