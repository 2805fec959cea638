// Real tokenizers against published vectors.
#include <chrono>

#include "content/tests/test_data.h"
#include "content/text/tokenizer.h"

namespace tern::content {
namespace {

struct VectorCase {
  const char* folder;
  const char* kind;
  const char* vectors;
};

class Vectors : public testing::TestWithParam<VectorCase> {};

TEST_P(Vectors, IdsAreExactAndDecodeBack) {
  TERN_NEED_SHARED_DATA();
  const std::string root = shared_data() + "/tokenizers/";
  TokenizerOptions options;
  options.only_kind = GetParam().kind;
  const auto start = std::chrono::steady_clock::now();
  auto tokenizer = Tokenizer::load(root + GetParam().folder, options);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  RecordProperty("load_ms", std::to_string(took.count()));
  const json::Value file = load_json(root + "vectors/" + GetParam().vectors + ".json");
  const json::Array& cases = file.at("cases").as_array();
  EXPECT_EQ(cases.size(), 46u);
  for (const json::Value& c : cases) {
    const std::string text(c.at("text").as_string());
    std::vector<int32_t> want;
    for (const json::Value& id : c.at("ids").as_array()) want.push_back(static_cast<int32_t>(id.as_int64()));
    auto got = (*tokenizer)->encode(text, false);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(*got, want) << text;
    if (std::string(GetParam().kind) != "sentencepiece" || !text.empty()) {
      EXPECT_EQ((*tokenizer)->decode(*got, false), text);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Real, Vectors,
                         testing::Values(VectorCase{"gpt-2", "bpe", "gpt-2"},
                                         VectorCase{"llama-3", "tokenizer.json", "llama-bpe"},
                                         VectorCase{"llama-3", "tiktoken", "llama-bpe"},
                                         VectorCase{"llama-2", "tokenizer.json", "llama-spm"},
                                         VectorCase{"llama-2", "sentencepiece", "llama-spm"},
                                         VectorCase{"qwen2.5", "bpe", "qwen2"},
                                         VectorCase{"qwen3", "tokenizer.json", "qwen2"}),
                         [](const auto& row) {
                           std::string name = std::string(row.param.folder) + "_" + row.param.kind;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace tern::content
