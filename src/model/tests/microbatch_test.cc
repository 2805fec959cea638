// Decode steps cut into parts (model/microbatch.h), on a device whose microbatches take turns: the same logits as in
// one piece.
#include "model/microbatch.h"

#include <gtest/gtest.h>

#include "device/tests/wrapped_device.h"
#include "json/json.h"
#include "model/run/sequence_runner.h"
#include "model/tests/support.h"

namespace tern::model {
namespace {

using testing::TempFolder;

// A CPU that says it has microbatches, and counts what waits for what.
class MicrobatchDevice final : public device::WrappedDevice {
 public:
  explicit MicrobatchDevice(int microbatches) : WrappedDevice(2), microbatches_(microbatches) {}
  int microbatch_streams() const override { return microbatches_; }
  device::Stream microbatch_stream(int) override { return stream(); }
  Expected<std::unique_ptr<device::Event>> make_event() override {
    return std::unique_ptr<device::Event>(std::make_unique<Counted>(*this));
  }

  int records = 0, waits = 0;
  bool fails = false;  // the next wait

 private:
  class Counted final : public device::Event {
   public:
    explicit Counted(MicrobatchDevice& d) : device_(d) {}
    Status record(device::Stream) override { return ++device_.records, Status(); }
    Status wait_on(device::Stream) override {
      ++device_.waits;
      return device_.fails ? Status(make_error(ErrorCode::kInternal, "no event")) : Status();
    }
    Status synchronize() override { return {}; }
    bool done() override { return true; }

   private:
    MicrobatchDevice& device_;
  };
  int microbatches_;
};

LoadOptions dummy(const TempFolder& folder, const json::Object& config, DType type) {
  testing::write_file(folder.file("config.json"), json::dump(config));
  LoadOptions o;
  o.path = folder.path();
  o.dummy = true;
  o.activation = type;
  return o;
}

// Logits of `steps` decode steps after prompts of unlike lengths, `rows` sequences in each.
std::vector<std::vector<float>> decode(const Model& model, device::Device& device, int rows, int steps) {
  auto runner = SequenceRunner::make(model, device, {.max_tokens = 2048, .max_rows = rows, .max_length = 128});
  if (!runner.ok()) return ADD_FAILURE() << runner.error().message, std::vector<std::vector<float>>{};
  const auto ids = testing::some_ids(rows + steps + 8, model.info().vocab_size);
  std::vector<SequenceRunner::Row> prompts;
  for (int r = 0; r < rows; ++r) {
    prompts.push_back({r, {ids.data() + r % 5, static_cast<size_t>(1 + r % 8)}});
  }
  std::vector<std::vector<float>> logits;
  for (int step = 0; step <= steps; ++step) {
    std::vector<SequenceRunner::Row> next;
    for (int r = 0; r < rows; ++r) next.push_back({r, {ids.data() + r + step, 1}});
    const auto out = (*runner)->step(step == 0 ? prompts : next);
    if (!out.ok()) return ADD_FAILURE() << out.error().message, std::vector<std::vector<float>>{};
    logits.emplace_back(out->begin(), out->end());
  }
  return logits;
}

bool has_experts(const json::Object& config) {
  const std::string text = json::dump(config);
  return text.find("expert") != std::string::npos || text.find("kv_lora") != std::string::npos;
}

TEST(Microbatches, PartsOfAStepGiveTheLogitsOfTheWhole) {
  for (const auto& [name, config] : testing::small_configs(4, 2)) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      const TempFolder folder;
      const LoadOptions options = dummy(folder, config, type);
      MicrobatchDevice cut_device(3), whole(1);
      const auto a = load_model(options, cut_device), b = load_model(options, whole);
      ASSERT_TRUE(a.ok() && b.ok()) << name;
      for (const auto& [rows, parts] : {std::pair{64, 1}, std::pair{65, 2}, std::pair{150, 3}, std::pair{193, 1}}) {
        cut_device.records = cut_device.waits = 0;
        const auto got = decode(**a, cut_device, rows, 2), want = decode(**b, whole, rows, 2);
        EXPECT_EQ(got, want) << name << ", " << rows << " rows";
        const int cut = has_experts(config) || parts == 1 ? 0 : parts;
        EXPECT_EQ(cut_device.waits, 2 * 2 * cut) << name << ", " << rows << " rows";  // two steps, out and back
        EXPECT_EQ(cut_device.records, cut == 0 ? 0 : 2 * (1 + cut)) << name;
      }
      EXPECT_EQ(whole.records + whole.waits, 0);
    }
  }
}

// Logits of a step of 66 rows with a token each, where the workspace is made for no more than that.
std::vector<float> narrow(const Model& model, device::Device& device) {
  constexpr int kRows = 66;
  const auto runner = SequenceRunner::make(model, device, {.max_tokens = kRows, .max_rows = kRows, .max_length = 16});
  if (!runner.ok()) return ADD_FAILURE() << runner.error().message, std::vector<float>{};
  const auto ids = testing::some_ids(kRows, model.info().vocab_size);
  std::vector<SequenceRunner::Row> rows;
  for (int r = 0; r < kRows; ++r) rows.push_back({r, {ids.data() + r, 1}});
  const auto out = (*runner)->step(rows);
  if (!out.ok()) return ADD_FAILURE() << out.error().message, std::vector<float>{};
  return {out->begin(), out->end()};
}

TEST(Microbatches, AStepStaysWholeWhereItsPartsHaveNoRoom) {
  int whole_steps = 0;
  for (const auto& [name, config] : testing::small_configs(4, 2)) {
    if (has_experts(config)) continue;
    const TempFolder folder;
    const LoadOptions options = dummy(folder, config, DType::kF32);
    MicrobatchDevice cut_device(2), whole(1);
    const auto a = load_model(options, cut_device), b = load_model(options, whole);
    ASSERT_TRUE(a.ok() && b.ok()) << name;
    EXPECT_EQ(narrow(**a, cut_device), narrow(**b, whole)) << name;
    EXPECT_TRUE(cut_device.waits == 0 || cut_device.waits == 4) << name;
    whole_steps += cut_device.waits == 0 ? 1 : 0;
  }
  EXPECT_GT(whole_steps, 0);
}

TEST(Microbatches, AFailureIsReportedAndTheNextStepRuns) {
  const TempFolder folder;
  MicrobatchDevice cut_device(2);
  const auto model =
      load_model(dummy(folder, testing::small_config("Ernie4_5ForCausalLM", 4, 2), DType::kF32), cut_device);
  ASSERT_TRUE(model.ok());
  auto runner = SequenceRunner::make(**model, cut_device, {.max_tokens = 512, .max_rows = 70, .max_length = 64});
  ASSERT_TRUE(runner.ok());
  const std::vector<int32_t> ids = testing::some_ids(1, 30);
  std::vector<SequenceRunner::Row> rows;
  for (int r = 0; r < 70; ++r) rows.push_back({r, ids});
  cut_device.fails = true;
  const auto failed = (*runner)->step(rows);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "no event");
  cut_device.fails = false;
  EXPECT_TRUE((*runner)->step(rows).ok());
}

}  // namespace
}  // namespace tern::model
