// Experts by modality in a running engine: which bank serves a token depends on its id, which in a decode step is known
// on the device only. Scores must be those of the finished text run through the model at once.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "engine/tests/engine_harness.h"
#include "model/loader.h"
#include "model/run/sequence_runner.h"

namespace tern::engine {
namespace {

constexpr int kVocab = 96, kFirstPictureId = 48;

std::unique_ptr<model::Model> make_model(device::Device& device) {
  std::string folder = (std::filesystem::temp_directory_path() / "tern-banks-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return nullptr;
  std::ofstream(folder + "/config.json") << fmt::format(
      R"({{"architectures":["Ernie4_5_VLMoeForConditionalGeneration"],"vocab_size":{},"hidden_size":64,
      "intermediate_size":96,"num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,
      "max_position_embeddings":512,"tie_word_embeddings":false,"moe_num_experts":[6,4],"moe_k":2,
      "moe_intermediate_size":[32,48],"moe_num_shared_experts":1,"moe_layer_start_index":[1,0],
      "im_patch_id":{},"freq_allocation":2}})",
      kVocab, kFirstPictureId);
  model::LoadOptions o;
  o.path = folder, o.dummy = true, o.activation = DType::kF32;
  auto model = model::load_model(o, device);
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? std::move(*model) : nullptr;
}

double log_prob(std::span<const float> row, int32_t id) {
  double sum = 0.0;
  for (float v : row) sum += std::exp(static_cast<double>(v));
  return static_cast<double>(row[static_cast<size_t>(id)]) - std::log(sum);
}

TEST(ExpertBanks, TokensInFlightHaveTheExpertsOfTheirIds) {
  const auto device = std::move(device::make_cpu_device({1, false})).value();
  const auto model = make_model(*device);
  ASSERT_NE(model, nullptr);
  EngineConfig config;
  config.scheduler.max_num_seqs = 4;
  config.scheduler.max_num_batched_tokens = 64;
  config.scheduler.max_model_len = 256;
  config.scheduler.prealloc_dec_block_slot_num_threshold = 2;
  config.scheduler.enc_dec_block_num = 1;
  config.num_blocks_override = 40;
  Harness h(config, *model);
  std::map<RequestId, std::vector<int32_t>> prompts;
  for (RequestId id = 1; id <= 4; ++id) {
    for (int i = 0; i < 20 + 7 * static_cast<int>(id); ++i)
      prompts[id].push_back((i * 37 + static_cast<int>(id)) % kVocab);
    Request r = Harness::request(id, prompts[id], 60);
    r.ignore_eos = true;
    r.sampling.logprobs = 1;
    r.sampling.temperature = 1.0f, r.sampling.seed = id;
    ASSERT_TRUE(h->submit(std::move(r)).ok());
  }
  h.read(4, 60);
  int of_pictures = 0, of_text = 0;
  for (const auto& [id, prompt] : prompts) {
    const Answer& answer = h.answers[id];
    ASSERT_EQ(answer.ids.size(), 60u);
    std::vector<int32_t> all = prompt;
    all.insert(all.end(), answer.ids.begin(), answer.ids.end());
    auto runner = model::SequenceRunner::make(*model, *device, {.max_tokens = 256, .max_rows = 1, .max_length = 256});
    ASSERT_TRUE(runner.ok());
    const model::SequenceRunner::Row row{0, all, true};
    const auto logits = (*runner)->step({&row, 1});
    ASSERT_TRUE(logits.ok()) << logits.error().message;
    for (size_t i = 0; i < answer.ids.size(); ++i) {
      const auto at = logits->subspan((prompt.size() + i - 1) * kVocab, kVocab);
      ASSERT_FALSE(answer.tokens[i].logprobs.empty());
      EXPECT_EQ(answer.tokens[i].logprobs[0].id, answer.ids[i]);
      EXPECT_NEAR(answer.tokens[i].logprobs[0].logprob, log_prob(at, answer.ids[i]), 1e-4) << id << " " << i;
      ++(answer.ids[i] >= kFirstPictureId ? of_pictures : of_text);
    }
  }
  EXPECT_GT(of_pictures, 40);
  EXPECT_GT(of_text, 40);
}

}  // namespace
}  // namespace tern::engine
