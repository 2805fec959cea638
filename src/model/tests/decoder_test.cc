// The forward pass: no allocation, workspace as measured, random weights, formats from outside.
#include "model/decoder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "model/run/sequence_runner.h"
#include "model/tests/plain_formats.h"
#include "model/tests/support.h"
#include "model/verify/verify_case.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};
void count_new() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace
#include "base/tests/counted_new.h"

namespace tern::model {
namespace {

using testing::TempFolder;

// Two rows: a prefill of 20 tokens and a decode of one, over memory of our own.
struct Harness {
  explicit Harness(const Model& model) : limits{64, 4, 8, 4} {
    device::Device& device = testing::cpu();
    stream = device.stream();
    for (const KvSpec& spec : model.kv_specs(64)) {
      memory.push_back(*device.allocate(spec.block_bytes() * 9));
      cache.groups.push_back(KvCache::Group::in(spec, memory.back().data(), 9));
    }
    workspace_size = model.workspace_bytes(limits, stream);
    memory.push_back(*device.allocate(workspace_size + 64));
    workspace = memory.back().data();
    std::memset(workspace + workspace_size, 0x5a, 64);
    ids = testing::some_ids(21, 90);
    for (int i = 0; i < 20; ++i) positions.push_back(i), slots.push_back(3 * 64 + i);
    positions.push_back(0), slots.push_back(5 * 64);
    for (int i = 0; i < 2; ++i) positions.insert(positions.end(), positions.begin(), positions.begin() + 21);
    batch.tokens = 21, batch.rows = 2, batch.logit_rows = 2, batch.max_query_len = 20, batch.max_context_len = 20;
    batch.token_ids = tensor1(ids.data(), DType::kI32, 21);
    batch.positions = tensor2(positions.data(), DType::kI32, 3, 21);
    batch.slot_mapping = tensor1(slots.data(), DType::kI64, 21);
    batch.row_start = tensor1(starts, DType::kI32, 3);
    batch.context_len = tensor1(contexts, DType::kI32, 2);
    batch.block_table = tensor2(tables, DType::kI32, 2, 1);
    batch.logit_index = tensor1(wanted, DType::kI32, 2);
    logits.resize(2 * static_cast<size_t>(model.info().outputs()));
    out = tensor2(logits.data(), DType::kF32, 2, model.info().outputs());
  }
  Status run(const Model& model) {
    device::Arena arena(workspace, workspace_size);
    return model.forward({batch, cache, stream, arena, nullptr}, out);
  }

  BatchLimits limits;
  device::Stream stream;
  std::vector<device::Buffer> memory;
  KvCache cache;
  char* workspace = nullptr;
  size_t workspace_size = 0;
  std::vector<int32_t> ids, positions;
  std::vector<int64_t> slots;
  int32_t starts[3] = {0, 20, 21}, contexts[2] = {20, 1}, tables[2] = {3, 5}, wanted[2] = {19, 20};
  Batch batch;
  std::vector<float> logits;
  TensorView out;
};

Expected<std::unique_ptr<Model>> dummy(const json::Object& config, DType type = DType::kBF16, uint64_t seed = 0) {
  TempFolder folder;
  testing::write_file(folder.file("config.json"), json::dump(config));
  LoadOptions o;
  o.path = folder.path();
  o.dummy = true;
  o.dummy_seed = seed;
  o.activation = type;
  return load_model(o, testing::cpu());
}

TEST(Decoder, ASteadyStepAllocatesNothingAndStaysInItsWorkspace) {
  for (const auto& [name, config] : testing::small_configs(4, 2)) {
    for (DType type : {DType::kF32, DType::kBF16}) {
      const auto model = dummy(config, type);
      ASSERT_TRUE(model.ok()) << name << ": " << model.error().message;
      Harness h(**model);
      const Status first = h.run(**model);
      ASSERT_TRUE(first.ok()) << name << ": " << first.error().message;
      allocations = 0;
      counting = true;
      const Status second = h.run(**model);
      counting = false;
      EXPECT_TRUE(second.ok());
      EXPECT_EQ(allocations, 0) << name;
      for (int i = 0; i < 64; ++i) ASSERT_EQ(h.workspace[h.workspace_size + static_cast<size_t>(i)], 0x5a) << name;
      for (float v : h.logits) ASSERT_TRUE(std::isfinite(v)) << name;
    }
  }
}

// Whoever looks at hidden states gets all rows of the last layer; the logits are the same without them.
TEST(Decoder, RowsWithoutLogitsEndWithTheirKeysAndValues) {
  class Watcher final : public Probe {
   public:
    void tensor(std::string_view name, TensorView value) override { last = std::string(name), rows = value.dim[0]; }
    bool routing(int, TensorView) override { return false; }
    std::string last;
    int64_t rows = 0;
  };
  for (const auto& [name, config] : testing::small_configs(4, 2)) {
    for (DType type : {DType::kF32, DType::kBF16}) {
      const auto model = dummy(config, type);
      ASSERT_TRUE(model.ok()) << name << ": " << model.error().message;
      Harness h(**model);
      ASSERT_TRUE(h.run(**model).ok()) << name;
      const std::vector<float> cut = h.logits;
      Watcher probe;
      device::Arena arena(h.workspace, h.workspace_size);
      h.logits.assign(h.logits.size(), 0.0f);
      ASSERT_TRUE((*model)->forward({h.batch, h.cache, h.stream, arena, &probe}, h.out).ok()) << name;
      EXPECT_EQ(probe.rows, 21) << name << " " << probe.last;
      EXPECT_EQ(h.logits, cut) << name;
      h.batch.logit_rows = 0;  // a piece of a prompt that is not the last
      EXPECT_TRUE(h.run(**model).ok()) << name;
    }
  }
}

TEST(Decoder, WorkspaceGrowsWithTheLimits) {
  const auto model = dummy(testing::small_config("Qwen3MoeForCausalLM", 4, 2));
  const device::Stream stream = testing::cpu().stream();
  size_t last = 0;
  for (int tokens : {1, 16, 256, 4096}) {
    const size_t bytes = (*model)->workspace_bytes({tokens, 4, 4, 8}, stream);
    EXPECT_GT(bytes, last);
    last = bytes;
  }
}

TEST(Decoder, ErrorsOfABadCallAreValues) {
  const auto model = dummy(testing::small_config("LlamaForCausalLM", 4, 2));
  Harness h(**model);
  KvCache none;
  device::Arena arena(h.workspace, h.workspace_size);
  EXPECT_FALSE((*model)->forward({h.batch, none, h.stream, arena, nullptr}, h.out).ok());
  h.ids[3] = 96;  // the vocabulary's size
  EXPECT_FALSE(h.run(**model).ok());
  h.ids[3] = -1;
  EXPECT_FALSE(h.run(**model).ok());
}

TEST(Dummy, DependsOnTheSeedAlone) {
  const auto config = testing::small_config("Ernie4_5_MoeForCausalLM", 4, 2);
  const auto ids = testing::some_ids(12, 96);
  const auto logits = [&](DType type, uint64_t seed) { return testing::logits_of(**dummy(config, type, seed), ids); };
  EXPECT_EQ(logits(DType::kBF16, 1), logits(DType::kBF16, 1));
  EXPECT_NE(logits(DType::kBF16, 1), logits(DType::kBF16, 2));
  // The same weights in float32: close, not equal.
  const auto a = logits(DType::kBF16, 1), b = logits(DType::kF32, 1);
  double error = 0.0, size = 0.0;
  for (size_t i = 0; i < a.size(); ++i) error += std::pow(a[i] - b[i], 2), size += std::pow(b[i], 2);
  EXPECT_LT(std::sqrt(error / size), 0.1);
  EXPECT_GT(error, 0.0);
}

TEST(Dummy, AnOverriddenShapeLoads) {
  TempFolder folder;
  testing::copy_config(testing::golden("qwen3_moe"), folder.path());
  LoadOptions o;
  o.path = folder.path();
  o.dummy = true;
  o.overrides = json::parse(R"({"num_hidden_layers":1,"vocab_size":64})").value().get_object();
  size_t calls = 0, last = 0;
  o.progress = [&](size_t done, size_t all) {
    EXPECT_LE(done, all);
    EXPECT_GE(done, last);
    last = done, ++calls;
  };
  const auto model = load_model(o, testing::cpu());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ((*model)->info().layers, 1);
  EXPECT_EQ((*model)->info().vocab_size, 64);
  EXPECT_GT(calls, 3u);
  EXPECT_EQ(testing::logits_of(**model, {1, 2, 3}).size(), 3u * 64u);
}

TEST(Loader, FewerLayersOfARealCheckpoint) {
  LoadOptions o;
  o.path = testing::golden("llama3");
  o.overrides = json::parse(R"({"num_hidden_layers":1})").value().get_object();
  const auto model = load_model(o, testing::cpu());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ((*model)->info().layers, 1);
}

TEST(Loader, UnknownFormatsAndTypesAreErrors) {
  LoadOptions o;
  o.path = testing::golden("llama3");
  o.weight_format = "wint3";
  EXPECT_EQ(load_model(o, testing::cpu()).error().code, ErrorCode::kUnsupported);
  o.weight_format.clear();
  o.activation = DType::kF16;
  EXPECT_EQ(load_model(o, testing::cpu()).error().code, ErrorCode::kUnsupported);
  o.path = testing::golden("nowhere");
  EXPECT_EQ(load_model(o, testing::cpu()).error().code, ErrorCode::kNotFound);
}

// A format that no model file knows of: int8 rows with a scale each. Its own rounding is about 0.4 % per weight.
TEST(Format, Int8FromOutsidePassesReferenceCases) {
  const testing::Int8Format int8;
  for (const char* name : {"llama3", "qwen3_moe", "deepseek_v3"}) {
    const bool experts = std::string(name) != "llama3";
    VerifyOptions o{.activation = experts ? DType::kBF16 : DType::kF32,
                    .format = &int8,
                    .tolerance = {0.1, 0.07},
                    .variations = false};
    const auto report = verify_case(testing::golden(name), o, testing::cpu());
    ASSERT_TRUE(report.ok()) << report.error().message;
    for (const auto& c : report->tensors)
      EXPECT_TRUE(c.ok) << name << " " << c.name << " " << c.relative << " " << c.rms;
    for (const auto& c : report->prompts) EXPECT_TRUE(c.ok()) << name << " " << c.name;
  }
}

TEST(Format, TheNamedFormatKeepsFloat32WeightsUnderBfloat16) {
  LoadOptions a, b;
  a.path = b.path = testing::golden("qwen2");
  a.weight_format = "f32";
  const auto ids = testing::some_ids(10, 500);
  // bfloat16 weights are the same numbers in either format; only the order of summing may differ.
  const auto x = testing::logits_of(a, ids), y = testing::logits_of(b, ids);
  double worst = 0.0, top = 0.0;
  for (size_t i = 0; i < x.size(); ++i)
    worst = std::max<double>(worst, std::fabs(x[i] - y[i])), top = std::max<double>(top, std::fabs(y[i]));
  EXPECT_LT(worst / top, 0.03);
}

// Logits of GQA models are bit-equal whatever shares the step; chunk sizes, block tables and whole prompts in one batch
// are in golden_test. Here: decode rows beside prefill rows, and one thread against two.
TEST(Batching, MixedStepsGiveTheSameLogits) {
  LoadOptions o;
  o.path = testing::golden("qwen3");
  const auto model = load_model(o, testing::cpu());
  ASSERT_TRUE(model.ok());
  const auto ids = testing::some_ids(90, 500), other = testing::some_ids(70, 300);
  const auto make = [&] {
    return *SequenceRunner::make(**model, testing::cpu(), {.max_tokens = 256, .max_rows = 3, .max_length = 256});
  };
  const auto alone = make();
  std::vector<std::vector<float>> want;
  for (size_t i = 0; i < ids.size(); ++i) {
    const SequenceRunner::Row row{0, {&ids[i], 1}, false};
    const auto v = alone->step({&row, 1});
    ASSERT_TRUE(v.ok());
    want.emplace_back(v->begin(), v->end());
  }
  const auto mixed = make();
  size_t at = 0;
  for (int step = 0; at < ids.size(); ++step) {
    // The first sequence decodes or prefills in odd pieces while another one runs beside it.
    const size_t n = std::min<size_t>(1 + static_cast<size_t>(step * 5 % 11), ids.size() - at);
    std::vector<SequenceRunner::Row> rows{{2, {&ids[at], n}, false}};
    if (step < 10) rows.insert(rows.begin(), SequenceRunner::Row{0, {&other[static_cast<size_t>(step) * 7], 7}, false});
    const auto v = mixed->step(rows);
    ASSERT_TRUE(v.ok());
    at += n;
    const size_t vocab = want.front().size();
    const std::vector<float> got(v->end() - static_cast<std::ptrdiff_t>(vocab), v->end());
    EXPECT_EQ(got, want[at - 1]) << "after " << at << " tokens";
  }
  auto single = *device::make_cpu_device({.threads = 1, .pin = false});
  const auto model1 = load_model(o, *single);
  const auto runner = *SequenceRunner::make(**model1, *single, {.max_tokens = 256, .max_rows = 1, .max_length = 256});
  const SequenceRunner::Row row{0, ids, false};
  const auto v = runner->step({&row, 1});
  ASSERT_TRUE(v.ok());
  EXPECT_EQ(std::vector<float>(v->begin(), v->end()), want.back());
}

}  // namespace
}  // namespace tern::model
