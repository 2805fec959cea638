// Steps on a device that works beside the host: they run ahead, are told in order, and may hang or fail.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/block_numbers.h"
#include "engine/step/vision_stage.h"
#include "engine/tests/graph_model.h"
#include "engine/tests/late_device.h"
#include "engine/tests/picture_request.h"

namespace tern::engine {
namespace {

using std::chrono::milliseconds;

struct Late {
  explicit Late(EngineConfig c = Harness::small(), FakeOptions o = {}) : model(o) {
    auto made = std::make_unique<LateDevice>();
    device = made.get();
    harness = std::make_unique<Harness>(c, model, std::move(made));
  }
  Harness& operator*() { return *harness; }
  Harness* operator->() { return harness.get(); }
  bool wait_for(const std::function<bool()>& what, int ms = 5000) {
    for (int i = 0; i < ms && !what(); ++i) harness->take(milliseconds(1));
    return what();
  }
  GraphModel model;
  LateDevice* device = nullptr;
  std::unique_ptr<Harness> harness;
};

TEST(LateDevice, AnswersAreThoseOfADeviceThatWorksAtOnce) {
  Late late;
  for (RequestId id = 1; id <= 20; ++id) {
    std::vector<int32_t> prompt(static_cast<size_t>(3 * id), static_cast<int32_t>(id));
    ASSERT_TRUE((*late)->submit(Harness::request(id, prompt, 12)).ok());
  }
  late->read(20);
  for (RequestId id = 1; id <= 20; ++id) {
    std::vector<int32_t> prompt(static_cast<size_t>(3 * id), static_cast<int32_t>(id));
    EXPECT_EQ(late->answers[id].ids, late.model.fake().continuation(prompt, 12, 0)) << id;
  }
  EXPECT_TRUE((*late)->healthy());
}

TEST(LateDevice, TwoStepsAreGivenBeforeTheFirstIsDone) {
  Late late;
  Request r = Harness::request(1, {5, 6, 7}, 8);
  r.ignore_eos = true;
  const int before = late.device->recorded;
  late.device->hold = true;
  ASSERT_TRUE((*late)->submit(std::move(r)).ok());
  ASSERT_TRUE(late.wait_for([&] { return late.device->recorded == before + 2; }));
  late->take(milliseconds(30));
  EXPECT_EQ(late.device->recorded, before + 2) << "no third one";
  EXPECT_EQ((*late)->stats().steps, 0u);
  EXPECT_TRUE(late->answers.empty());
  late.device->hold = false;
  late->read(1);
  EXPECT_EQ(late->answers[1].ids.size(), 8u);
}

// Of two ranks the second one's device is late, or hangs: a step is done when both are.
TEST(LateDevice, ARankWhoseDeviceComesLate) {
  for (const bool hangs : {false, true}) {
    const GraphModel model({});
    std::vector<std::unique_ptr<device::Device>> devices;
    LateDevice* late = nullptr;
    for (int rank = 0; rank < 2; ++rank) {
      devices.push_back(std::make_unique<LateDevice>());
      late = static_cast<LateDevice*>(devices.back().get());
    }
    EngineConfig c = Harness::small();
    if (hangs) c.watchdog_ns = 1'000'000'000;
    Harness h(c, {&model, &model}, std::move(devices));
    const int before = late->recorded;
    late->hold = true;
    Request r = Harness::request(1, {5, 6, 7}, 8);
    r.ignore_eos = true;
    ASSERT_TRUE(h->submit(std::move(r)).ok());
    for (int i = 0; i < 5000 && late->recorded < before + 2; ++i) h.take(milliseconds(1));
    ASSERT_EQ(late->recorded, before + 2) << "two steps are given";
    EXPECT_EQ(h->stats().steps, 0u);
    if (!hangs) {
      h.take(milliseconds(30));
      EXPECT_EQ(h->stats().steps, 0u) << "the first rank alone is done";
      late->hold = false;
    }
    h.read(1);
    if (hangs) {
      EXPECT_NE(h.answers[1].last.error.message.find("the device hangs"), std::string::npos);
      EXPECT_FALSE(h->healthy());
    } else {
      EXPECT_EQ(h.answers[1].ids, model.fake().continuation({5, 6, 7}, 8, -1));
    }
  }
}

void expect_failed(Late& late, const char* why) {
  late->read(3, 5);
  for (RequestId id = 1; id <= 3; ++id) {
    const Delta& last = late->answers[id].last;
    EXPECT_EQ(last.finish, FinishReason::kError) << id;
    EXPECT_NE(last.error.message.find(why), std::string::npos) << last.error.message;
  }
  EXPECT_FALSE((*late)->healthy());
  const Status refused = (*late)->submit(Harness::request(9, {1, 2}, 4));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  (*late)->shutdown(false);
  std::vector<Delta> rest;
  while ((*late)->poll(rest, milliseconds(10))) {
  }
  late->close();  // returns although the device never does
}

void run_with_fault(device::Fault fault, const char* why) {
  EngineConfig c = Harness::small();
  c.fault = fault, c.fault_step = 4;
  c.watchdog_ns = 150'000'000;
  Late late(c);
  late.device->hold = true;  // no step ends, and so none fails, before all are there
  for (RequestId id = 1; id <= 3; ++id) {
    Request r = Harness::request(id, {1, 2, static_cast<int32_t>(id)}, 100);
    r.ignore_eos = true;
    ASSERT_TRUE((*late)->submit(std::move(r)).ok());
  }
  late.device->hold = false;
  expect_failed(late, why);
}

TEST(LateDevice, AStepThatNeverEndsIsSeen) { run_with_fault(device::Fault::kHang, "the device hangs"); }
TEST(LateDevice, AFaultOfTheDeviceEndsEveryone) { run_with_fault(device::Fault::kTrap, "an illegal address"); }

TEST(LateDevice, ALongStepWithinTheTimeIsNoHang) {
  EngineConfig c = Harness::small();
  c.watchdog_ns = 400'000'000;
  Late late(c);
  late.device->hold = true;
  ASSERT_TRUE((*late)->submit(Harness::request(1, {5, 6, 7}, 4)).ok());
  late->take(milliseconds(150));
  late.device->hold = false;
  late->read(1);
  EXPECT_TRUE((*late)->healthy());
  EXPECT_NE(late->answers[1].last.finish, FinishReason::kError);
  late->take(milliseconds(500));  // idle: nothing is watched
  EXPECT_TRUE((*late)->healthy());
}

// More calls than there are staging buffers: they wait for them, nobody else does.
TEST(LateDevice, TowerCallsWaitForTheirBuffersAlone) {
  LateDevice device;
  const FakeTower tower;
  VisionConfig c;
  c.max_item_patches = 16;
  auto plan = plan_vision(c, tower, 64, FakeTower::kHidden, device.stream());
  ASSERT_TRUE(plan.ok());
  auto stage = VisionStage::create(*plan, tower, device);
  ASSERT_TRUE(stage.ok());
  std::vector<int32_t> rows(20);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
  VisionStep step;
  std::vector<std::vector<float>> values;
  for (size_t i = 0; i < 5; ++i) {
    auto patches = std::make_shared<RawBytes>(16 * FakeTower::kValues * sizeof(float), std::byte{});
    auto* v = reinterpret_cast<float*>(patches->data());
    for (size_t k = 0; k < 16 * FakeTower::kValues; ++k) v[k] = static_cast<float>(i * 100 + k);
    values.emplace_back(v, v + 16 * FakeTower::kValues);
    step.items.push_back({{1, 4, 4}, patches, 0, patches->size(), std::span(rows).subspan(4 * i, 4)});
  }
  step.pack(plan->call, tower);
  ASSERT_EQ(step.call_count, 5);
  device.hold = true;
  auto complete = (*stage)->advance(step);
  ASSERT_TRUE(complete.ok() && !*complete);
  EXPECT_EQ(tower.calls.load(), 2);
  complete = (*stage)->advance(step);
  ASSERT_TRUE(complete.ok() && !*complete);
  EXPECT_EQ(tower.calls.load(), 2);
  device.hold = false;
  complete = (*stage)->advance(step);
  ASSERT_TRUE(complete.ok() && *complete);
  EXPECT_EQ(tower.calls.load(), 5);
  for (size_t i = 0; i < 5; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      float want[FakeTower::kHidden];
      FakeTower::row({1, 4, 4}, values[i].data(), j, want);
      const TensorView pictures = (*stage)->pictures();
      EXPECT_EQ(std::memcmp(pictures.row_bytes(static_cast<int64_t>(4 * i) + j), want, sizeof want), 0) << i;
    }
  }
}

// Pictures of several pieces of a copy, none a whole number of them, two in a call.
TEST(LateDevice, LargePicturesAreSentInPieces) {
  LateDevice device;
  const FakeTower tower;
  const std::vector<vision::Grid> grids{{16, 128, 126}, {7, 128, 128}};
  VisionConfig c;
  c.max_item_patches = grids[0].rows();
  c.call_patches = grids[0].rows() + grids[1].rows();
  auto plan = plan_vision(c, tower, 64, FakeTower::kHidden, device.stream());
  ASSERT_TRUE(plan.ok());
  auto stage = VisionStage::create(*plan, tower, device);
  ASSERT_TRUE(stage.ok());
  const auto tokens = static_cast<size_t>(tower.tokens(grids[0]) + tower.tokens(grids[1]));
  ASSERT_LE(tokens, static_cast<size_t>(plan->cache_rows));
  std::vector<int32_t> rows(tokens);
  for (size_t i = 0; i < tokens; ++i) rows[i] = static_cast<int32_t>(i);
  VisionStep step;
  constexpr size_t kBefore = 4096;  // bytes of other pictures in front
  std::vector<const float*> values;
  size_t begin = 0;
  for (const vision::Grid& g : grids) {
    const size_t count = static_cast<size_t>(g.rows()) * FakeTower::kValues, bytes = count * sizeof(float);
    ASSERT_GT(bytes, size_t{1} << 20);
    ASSERT_NE(bytes % (size_t{1} << 20), 0u);
    auto patches = std::make_shared<RawBytes>(kBefore + bytes, std::byte{});
    auto* v = reinterpret_cast<float*>(patches->data() + kBefore);
    for (size_t k = 0; k < count; ++k) v[k] = static_cast<float>(k * 7 % 1000003 + begin);
    values.push_back(v);
    const auto own = static_cast<size_t>(tower.tokens(g));
    step.items.push_back({g, patches, kBefore, bytes, std::span(rows).subspan(begin, own)});
    begin += own;
  }
  step.pack(plan->call, tower);
  ASSERT_EQ(step.call_count, 1);
  const auto complete = (*stage)->advance(step);
  ASSERT_TRUE(complete.ok() && *complete);
  const TensorView pictures = (*stage)->pictures();
  size_t at = 0, wrong = 0;
  for (size_t i = 0; i < grids.size(); ++i) {
    for (int64_t j = 0; j < tower.tokens(grids[i]); ++j, ++at) {
      float want[FakeTower::kHidden];
      FakeTower::row(grids[i], values[i], j, want);
      wrong += std::memcmp(pictures.row_bytes(static_cast<int64_t>(at)), want, sizeof want) == 0 ? 0 : 1;
    }
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(LateDevice, BlocksTakeWhatTheDeviceHasLeft) {
  EngineConfig c = Harness::small(0);
  c.scheduler.max_num_seqs = 4, c.scheduler.max_model_len = 100000, c.scheduler.max_num_batched_tokens = 64;
  c.memory_utilization = 0.5, c.prefix_cache_allowance = 1e6;
  const GraphModel model({});
  const size_t block = model.kv_specs(c.scheduler.block_size)[0].block_bytes();
  LateDevice device;
  device.total = size_t{64} << 20, device.others = size_t{10} << 20;
  auto engine = Engine::start(c, model, device);
  // Ranges of this device are allocated whole when they are reserved: only the rule itself is looked at below.
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.error().message.find("current device block num too small"), std::string::npos);
  BlockQuestion q{c.scheduler};
  q.bytes_per_block = block, q.utilization = 0.5, q.prefix_cache_allowance = 1e6;
  q.memory_total = 1000 * block, q.memory_available = 900 * block;
  q.measured = true, q.memory_left = 850 * block;
  c.scheduler.max_model_len = 64;
  auto n = count_blocks(q);
  ASSERT_TRUE(n.ok());
  EXPECT_EQ(n->total, 500 - 150 - 1);
  q.memory_left = 400 * block;  // others hold more than the share left to this process
  n = count_blocks(q);
  ASSERT_FALSE(n.ok());
  EXPECT_NE(n.error().message.find("gpu-memory-utilization"), std::string::npos);
  EXPECT_EQ(most_blocks(q), 1000);
  q.override_blocks = 1001;
  n = count_blocks(q);
  ASSERT_FALSE(n.ok());
  EXPECT_NE(n.error().message.find("more than all the memory there is"), std::string::npos) << n.error().message;
  q.override_blocks = 1000;
  EXPECT_TRUE(count_blocks(q).ok());
}

TEST(LateDevice, MemoryComesToTheSameAddresses) {
  LateDevice device;
  const GraphModel model({});
  auto memory = CacheMemory::reserve(model.kv_specs(8), 40, device);
  ASSERT_TRUE(memory.ok());
  ASSERT_TRUE((*memory)->grow(0).ok());
  const std::vector<char*> layers = (*memory)->cache().groups[0].layers;
  EXPECT_EQ((*memory)->cache().groups[0].blocks, 1);
  ASSERT_TRUE((*memory)->grow(40).ok());
  EXPECT_EQ((*memory)->cache().groups[0].layers, layers);
  EXPECT_EQ((*memory)->cache().groups[0].blocks, 41);
  EXPECT_FALSE((*memory)->grow(41).ok());
}

TEST(LateDevice, BlocksOfALayerLieTogether) {
  LateDevice device;
  KvSpec spec;
  spec.layers = 3, spec.kv_heads = 2, spec.head_dim_k = spec.head_dim_v = 8, spec.block_size = 16;
  auto memory = CacheMemory::reserve({spec, spec}, 20, device);
  ASSERT_TRUE(memory.ok());
  ASSERT_TRUE((*memory)->grow(20).ok());
  const model::KvCache& cache = (*memory)->cache();
  const size_t block = spec.layer_block_bytes();
  std::vector<const char*> begins;
  for (size_t g = 0; g < 2; ++g) {
    ASSERT_EQ(cache.groups[g].layers.size(), 3u);
    for (int l = 0; l < 3; ++l) {
      const KvLayerView view = cache.layer(g, l);
      EXPECT_EQ(view.block_stride, block);
      std::memset(view.base, static_cast<int>(begins.size()), 21 * block);
      begins.push_back(view.base);
    }
  }
  for (size_t i = 0; i < begins.size(); ++i) {
    for (size_t at = 0; at < 21 * block; ++at) ASSERT_EQ(begins[i][at], static_cast<char>(i)) << "layer " << i;
  }
}

TEST(LateDevice, BlocksThatGetNoMemoryEndTheStart) {
  EngineConfig c = Harness::small(400);
  const GraphModel model({});
  LateDevice device;
  device.full = true;
  auto engine = Engine::start(c, model, device);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(engine.error().message.find("lower --num-gpu-blocks-override"), std::string::npos);
}

TEST(LateDevice, NothingIsAllocatedAfterTheStart) {
  Late late;
  const uint64_t before = late.device->made;
  ASSERT_TRUE((*late)->submit(Harness::request(1, {5, 6, 7}, 40)).ok());
  late->read(1);
  EXPECT_EQ(late.device->made, before);
  EXPECT_EQ((*late)->stats().late_allocations, 0u);
}

}  // namespace
}  // namespace tern::engine
