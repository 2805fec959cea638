// Checkpoints that keep the experts of a layer as one tensor of codes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/tests/coded_files.h"
#include "model/tests/support.h"

namespace tern::model {
namespace {

using testing::CodedFolder;
using testing::Layout;
using testing::TestTensors;
using Pair = testing::CodedPair;

// Experts' tensors of a layer as one stack each, gate above up.
TestTensors stacked(const TestTensors& tensors, bool bare) {
  TestTensors out;
  for (const auto& [name, t] : tensors) {
    const size_t at = name.find("experts.");
    if (at == std::string::npos) {
      out[name] = t;
      continue;
    }
    const std::string layer = name.substr(0, at + 8);
    const size_t leaf_at = name.find("_proj.") + 5;
    const std::string which = name.substr(name.find('.', at + 8) + 1), leaf = name.substr(leaf_at);
    if (!which.starts_with("down_proj") && !which.starts_with("gate_proj")) continue;  // up follows gate
    const bool down = which.starts_with("down_proj");
    const std::string bare_leaf = leaf.starts_with(".weight") ? leaf.substr(7) : fmt::format("_{}", leaf.substr(1));
    const std::string to = layer + (down ? "down_proj" : "gate_up_proj") + (bare ? bare_leaf : leaf);
    if (out.contains(to)) continue;
    testing::TestTensor& all = out[to];
    all.dtype = t.dtype;
    all.shape = t.shape;
    int64_t count = 0;
    for (;; ++count) {
      const auto one = tensors.find(layer + std::to_string(count) + (down ? ".down_proj" : ".gate_proj") + leaf);
      if (one == tensors.end()) break;
      all.bytes += one->second.bytes;
      if (!down) all.bytes += tensors.at(layer + std::to_string(count) + ".up_proj" + leaf).bytes;
    }
    if (!down) all.shape.at(0) *= 2;
    all.shape.insert(all.shape.begin(), count);
  }
  return out;
}

TEST(StoredCodesStacks, AreTheExpertsTheyWereMadeOf) {
  for (const CodedFolder& folder :
       {CodedFolder{Layout::kFp8Block, 8, 0, false}, CodedFolder{Layout::kFp8Row, 8, 0, false},
        CodedFolder{Layout::kInt8, 8, 32, true}, CodedFolder{Layout::kPaddle, 8, 0, false}}) {
    Pair pair(folder, "Qwen3MoeForCausalLM", 128);
    const TestTensors apart = pair.tensors;
    const std::vector<int32_t> ids = testing::some_ids(9, 64);
    const std::vector<float> want = testing::logits_of(pair.options(), ids);
    for (const bool bare : {false, true}) {
      SCOPED_TRACE(testing::name_of(folder) + (bare ? " bare" : ""));
      pair.tensors = stacked(apart, bare);
      pair.write();
      EXPECT_EQ(testing::logits_of(pair.options(), ids), want);
    }
    // One matrix too few.
    testing::TestTensor& codes = pair.tensors.at(std::string("model.layers.1.mlp.experts.down_proj") +
                                                 (folder.layout == Layout::kPaddle ? "_quant_weight" : ""));
    codes.bytes.resize(codes.bytes.size() / static_cast<size_t>(codes.shape[0]) *
                       static_cast<size_t>(codes.shape[0] - 1));
    --codes.shape[0];
    pair.write();
    const auto model = load_model(pair.options(), testing::cpu());
    ASSERT_FALSE(model.ok());
    EXPECT_NE(model.error().message.find("experts.down_proj"), std::string::npos) << model.error().message;
    EXPECT_NE(model.error().message.find("1 wrong"), std::string::npos) << model.error().message;
  }
}

}  // namespace
}  // namespace tern::model
