#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace tern::sample {
namespace {

class SamplerTest : public testing::Test {
 protected:
  void make(LogprobsMode mode, int vocab = 50) {
    limits_.slots = limits_.max_rows = 4;
    limits_.max_logit_rows = 8;
    limits_.vocab = vocab;
    limits_.max_logprobs = 5;
    limits_.masks = true;
    limits_.mode = mode;
    auto device = device::make_cpu_device({1, false});
    device_ = std::move(device).value();
    sampler_ = std::move(Sampler::create(limits_, *device_)).value();
    batch_ = std::move(SamplingBatch::create(limits_, *device_)).value();
    std::mt19937 rng(4);
    std::normal_distribution<float> d(0, 2);
    base_.resize(8 * 64);
    for (float& v : base_) v = d(rng);
    logits_ = base_;
    batch_.clear();
  }
  void run() {
    const Status ok = sampler_.run(batch_, tensor2(logits_.data(), DType::kF32, 8, 64), *device_, device_->stream());
    ASSERT_TRUE(ok.ok()) << ok.error().message;
  }
  const float* row(int i) const { return base_.data() + i * 64; }
  double log_softmax(const std::vector<double>& x, int id) const {
    double sum = 0;
    for (double v : x) sum += std::exp(v);
    return x[static_cast<size_t>(id)] - std::log(sum);
  }
  std::vector<double> values(int i, double scale = 1) const {
    std::vector<double> x;
    for (int64_t k = 0; k < limits_.vocab; ++k) x.push_back(static_cast<double>(row(i)[k]) * scale);
    return x;
  }

  SamplerLimits limits_;
  std::unique_ptr<device::Device> device_;
  Sampler sampler_;
  SamplingBatch batch_;
  std::vector<float> base_, logits_;
};

SamplingParams params() {
  SamplingParams p;
  p.temperature = 0.5f, p.top_p = 0.9f, p.seed = 3, p.logprobs = 3;
  p.logit_bias = {{4, 1.5f}};
  p.bad_words = {6};
  return p;
}

TEST_F(SamplerTest, ModesReportWhatTheySay) {
  for (LogprobsMode mode : {LogprobsMode::kRawLogprobs, LogprobsMode::kRawLogits, LogprobsMode::kProcessedLogprobs,
                            LogprobsMode::kProcessedLogits}) {
    make(mode);
    const SamplingParams p = params();
    batch_.updates.add(2, p, {}, {}, {});
    const uint32_t bits = wanted_processors(p);
    const ops::SampleRow r{3, 2, 17, 0, 0, -1};
    batch_.add(r, bits);
    batch_.add_logprobs(r, p, bits);
    batch_.add_prompt_logprobs(5, 9, 2);
    run();
    const int32_t id = batch_.id(3);
    auto x = values(3);
    const bool processed = mode == LogprobsMode::kProcessedLogprobs || mode == LogprobsMode::kProcessedLogits;
    const bool as_logits = mode == LogprobsMode::kRawLogits || mode == LogprobsMode::kProcessedLogits;
    if (processed) {
      x[4] += 1.5;
      for (double& v : x) v *= 2;
      x[6] = -1e10;
    }
    ASSERT_EQ(batch_.requests(), 2);
    const auto scores = batch_.scores(0);
    ASSERT_EQ(scores.size(), 4u);
    EXPECT_EQ(scores[0].id, id);
    for (const auto& s : scores) {
      const double want = as_logits ? x[static_cast<size_t>(s.id)] : log_softmax(x, s.id);
      EXPECT_NEAR(s.value, want, 1e-5);
    }
    EXPECT_GE(scores[1].value, scores[2].value);
    EXPECT_EQ(scores[1].rank, 1);
    const auto prompt = batch_.scores(1);
    ASSERT_EQ(prompt.size(), 3u);
    EXPECT_EQ(prompt[0].id, 9);
    EXPECT_NEAR(prompt[0].value, as_logits ? values(5)[9] : log_softmax(values(5), 9), 1e-5);
  }
}

TEST_F(SamplerTest, TemperatureScaledAndNucleusLogprobs) {
  make(LogprobsMode::kRawLogprobs);
  SamplingParams p = params();
  p.logit_bias.clear(), p.bad_words.clear();
  p.temp_scaled_logprobs = true;
  SamplingParams q = p;
  q.top_p_normalized_logprobs = true;
  const ops::SampleRow a{0, 0, 5, 0, 0, -1}, b{1, 1, 5, 0, 0, -1};
  batch_.updates.add(0, p, {}, {}, {});
  batch_.updates.add(1, q, {}, {}, {});
  batch_.add(a, 0), batch_.add_logprobs(a, p, 0);
  batch_.add(b, 0), batch_.add_logprobs(b, q, 0);
  run();
  EXPECT_NEAR(batch_.scores(0)[0].value, log_softmax(values(0, 2), batch_.id(0)), 1e-5);
  // The nucleus of 0.9 is renormalised: values are larger, and what was sampled lies inside.
  const double plain = log_softmax(values(1, 2), batch_.id(1));
  EXPECT_GT(batch_.scores(1)[0].value, plain);
  EXPECT_LT(batch_.scores(1)[0].value, plain - std::log(0.9) + 1e-5);
}

TEST_F(SamplerTest, RowsDoNotDependOnTheirNeighbours) {
  make(LogprobsMode::kRawLogprobs);
  const SamplingParams p = params();
  std::vector<int32_t> together;
  for (int i = 0; i < 4; ++i) batch_.updates.add(i, p, {}, {}, {});
  for (int i = 0; i < 4; ++i) batch_.add({i, i, 30 + i, 0, 0, -1}, wanted_processors(p));
  run();
  for (int i = 0; i < 4; ++i) together.push_back(batch_.id(i));
  for (int i = 0; i < 4; ++i) {
    batch_.clear();
    logits_ = base_;
    batch_.updates.add(3 - i, p, {}, {}, {});
    batch_.add({i, 3 - i, 30 + i, 0, 0, -1}, wanted_processors(p));
    run();
    EXPECT_EQ(batch_.id(i), together[static_cast<size_t>(i)]);
  }
}

TEST_F(SamplerTest, MasksAndColumnsBeyondTheVocabulary) {
  make(LogprobsMode::kRawLogprobs);
  for (float& v : logits_) v = 0;
  for (int i = 0; i < 8; ++i) logits_[static_cast<size_t>(i * 64 + 60)] = 100;  // a padding column
  SamplingParams p;
  p.temperature = 0;
  batch_.updates.add(0, p, {}, {}, {});
  const int plain = batch_.add({0, 0, 0, 0, 0, -1}, 0);
  const int masked = batch_.add({1, 0, 0, 0, 0, -1}, kMask);
  const int closed = batch_.add({2, 0, 0, 0, 0, -1}, kMask);
  EXPECT_EQ(plain, 0);
  auto bits = batch_.mask(masked);
  std::fill(bits.begin(), bits.end(), 0u);
  bits[1] = 1u << 5;
  auto none = batch_.mask(closed);
  std::fill(none.begin(), none.end(), 0u);
  run();
  EXPECT_EQ(batch_.id(0), 0);
  EXPECT_EQ(batch_.id(1), 37);
  EXPECT_EQ(batch_.status(2), ops::kSampleEmpty);
}

TEST_F(SamplerTest, PenaltiesFollowTheSlotThroughResumption) {
  make(LogprobsMode::kRawLogprobs);
  SamplingParams p;
  p.temperature = 0, p.repetition_penalty = 1.5f, p.presence_penalty = 1.0f, p.frequency_penalty = 0.5f;
  const int32_t prompt[] = {1, 2, 3};
  std::vector<int32_t> output, again;
  const uint32_t bits = wanted_processors(p);
  for (int t = 0; t < 10; ++t) {
    batch_.clear();
    logits_ = base_;
    if (t == 0) batch_.updates.add(0, p, {}, prompt, {});
    batch_.add({0, 0, 3 + t, t, 0, -1}, bits);
    run();
    output.push_back(batch_.id(0));
  }
  for (int t = 0; t < 10; ++t) {  // a new slot for every token, as if preempted each time
    batch_.clear();
    logits_ = base_;
    batch_.updates.add(t % 4, p, {}, prompt, again);
    batch_.add({0, t % 4, 3 + t, t, 0, -1}, bits);
    run();
    again.push_back(batch_.id(0));
  }
  EXPECT_EQ(output, again);
  EXPECT_NE(output[0], output[3]);  // the penalties do something
}

// A prompt that pinned memory does not hold counts like one that it does.
TEST_F(SamplerTest, LongPromptsArePenalisedAsShortOnesAre) {
  make(LogprobsMode::kRawLogprobs);
  SamplingParams p;
  p.temperature = 0, p.repetition_penalty = 100.0f;
  p.logit_bias = {{4, 0.5f}}, p.bad_words = {7};
  const uint32_t bits = wanted_processors(p);
  const std::vector<int32_t> favourites = {1, 2, 3, 5, 8};
  std::vector<int32_t> many(100'000, 1);
  std::copy(favourites.begin(), favourites.end(), many.end() - 5);
  logits_ = base_;
  batch_.updates.add(0, p, {}, favourites, {});
  batch_.updates.add(1, p, {}, many, {});
  batch_.updates.add(2, p, {}, favourites, {});
  for (int32_t slot = 0; slot < 3; ++slot) {
    std::copy_n(base_.begin(), 64, logits_.begin() + slot * 64);
    for (const int32_t id : favourites) logits_[static_cast<size_t>(slot * 64 + id)] = 9.0f;
    batch_.add({slot, slot, 3, 0, 0, -1}, bits);
  }
  run();
  for (const int32_t row : {0, 1, 2}) {
    EXPECT_EQ(std::count(favourites.begin(), favourites.end(), batch_.id(row)), 0) << row;
    EXPECT_EQ(batch_.id(row), batch_.id(0));
    EXPECT_NE(batch_.id(row), 7);
  }
}

// PaddleNLP counts what was generated alone.
TEST_F(SamplerTest, RepetitionMayLeaveThePromptOut) {
  make(LogprobsMode::kRawLogprobs);
  SamplingParams p;
  p.temperature = 0, p.repetition_penalty = 100.0f, p.repetition_over_prompt = false;
  const std::vector<int32_t> favourites = {1, 2, 3, 5, 8};
  logits_ = base_;
  batch_.updates.add(0, p, {}, favourites, {});
  batch_.updates.add(1, p, {}, favourites, favourites);
  for (int32_t slot = 0; slot < 2; ++slot) {
    std::copy_n(base_.begin(), 64, logits_.begin() + slot * 64);
    for (const int32_t id : favourites) logits_[static_cast<size_t>(slot * 64 + id)] = 9.0f;
    batch_.add({slot, slot, 3, 0, 0, -1}, wanted_processors(p));
  }
  run();
  EXPECT_EQ(std::count(favourites.begin(), favourites.end(), batch_.id(0)), 1);
  EXPECT_EQ(std::count(favourites.begin(), favourites.end(), batch_.id(1)), 0);
}

TEST(Validate, RefusesWhatIsNotANumberOrOutOfRange) {
  const SlotCapacity capacity;
  const auto ok = [&](auto change) {
    SamplingParams p;
    change(p);
    return validate(p, 3, 100, 20, capacity).ok();
  };
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(ok([](SamplingParams&) {}));
  for (float SamplingParams::*field :
       {&SamplingParams::temperature, &SamplingParams::top_p, &SamplingParams::min_p,
        &SamplingParams::repetition_penalty, &SamplingParams::frequency_penalty, &SamplingParams::presence_penalty}) {
    for (float v : {nan, inf, -inf, -3.0f}) EXPECT_FALSE(ok([&](SamplingParams& p) { p.*field = v; }));
  }
  EXPECT_FALSE(ok([](SamplingParams& p) { p.repetition_penalty = 0; }));
  EXPECT_FALSE(ok([](SamplingParams& p) { p.top_k = -2; }));
  EXPECT_FALSE(ok([](SamplingParams& p) { p.logprobs = 21; }));
  EXPECT_FALSE(ok([](SamplingParams& p) { p.prompt_logprobs = 21; }));
  EXPECT_FALSE(ok([](SamplingParams& p) { p.logit_bias = {{100, 1.0f}}; }));
  EXPECT_FALSE(ok([&](SamplingParams& p) { p.logit_bias = {{1, nan}}; }));
  EXPECT_FALSE(ok([](SamplingParams& p) { p.logit_bias.resize(1025); }));
  EXPECT_FALSE(ok([](SamplingParams& p) { p.bad_words = {-1}; }));
  EXPECT_FALSE(ok([](SamplingParams& p) { p.bad_words.resize(1025); }));
  EXPECT_FALSE(ok([](SamplingParams& p) { p.min_tokens = -1; }));
  SamplingParams all;
  all.logprobs = 100;
  EXPECT_TRUE(validate(all, 3, 100, -1, capacity).ok());
  EXPECT_FALSE(validate(all, 129, 100, -1, capacity).ok());
}

}  // namespace
}  // namespace tern::sample
