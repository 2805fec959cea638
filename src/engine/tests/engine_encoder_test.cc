// The encoder cache, tower calls, memory and faults of requests with pictures.
#include <gtest/gtest.h>

#include <random>

#include "engine/step/vision_step.h"
#include "engine/tests/picture_request.h"

namespace tern::engine {

void expect_no_allocations(Harness& h, std::vector<Request> requests, uint64_t steps);

namespace {

using std::chrono::milliseconds;

void expect_answer(Harness& h, const Request& r) {
  EXPECT_EQ(h.answers[r.id].ids, PictureRequest::answer(h.fake(), r, r.max_tokens)) << "request " << r.id;
}

VisionItem item(int h, int w, const std::vector<int32_t>& rows) {
  VisionItem i;
  i.grid = {1, h, w};
  i.rows = std::span(rows).first(static_cast<size_t>(h * w / 4));
  return i;
}

TEST(VisionStep, PacksIntoFewCalls) {
  const FakeTower tower;
  std::vector<int32_t> rows(1000);
  VisionStep step;
  for (int side : {4, 10, 6, 4, 14, 2, 10}) step.items.push_back(item(side, side, rows));
  step.pack({200, 16, 50}, tower);
  // 196 | 100 100 | 36 16 16 4
  ASSERT_EQ(step.call_count, 2 + 1);
  EXPECT_EQ(step.calls[0].items, (std::vector<int>{4, 5}));
  EXPECT_EQ(step.calls[0].patches, 200);
  EXPECT_EQ(step.calls[1].items, (std::vector<int>{1, 6}));
  EXPECT_EQ(step.calls[2].items, (std::vector<int>{2, 0, 3}));
  EXPECT_EQ(step.calls[2].rows.size(), 17u);
  EXPECT_EQ(step.calls[2].index.ints.size(), 12u);
  step.pack({400, 2, 100}, tower);
  EXPECT_EQ(step.call_count, 4) << "two items a call";
  step.pack({400, 16, 50}, tower);
  EXPECT_EQ(step.call_count, 3) << "50 tokens a call";
  step.clear();
  step.pack({400, 16, 50}, tower);
  EXPECT_EQ(step.call_count, 0);
}

TEST(EngineEncoder, PicturesOfSeveralRequestsShareACall) {
  FakeTower tower;
  std::atomic<int64_t> pace{100'000'000};
  FakeOptions o = picture_options();
  o.step_ns = &pace;
  Harness h(picture_config(400), o, tower);
  Request first = Harness::request(1, {1, 2}, 20);
  first.ignore_eos = true;
  ASSERT_TRUE(h->submit(first).ok());
  while (h.answers.empty()) h.take(milliseconds(1));
  std::vector<Request> list;
  for (RequestId id = 2; id <= 7; ++id) list.push_back(PictureRequest().text({3}).picture(8, 8, id).make(id, 3));
  for (const Request& r : list) ASSERT_TRUE(h->submit(r).ok());
  pace = 1'000'000;
  h.read(7);
  for (const Request& r : list) expect_answer(h, r);
  EXPECT_EQ(tower.items, 6);
  EXPECT_LT(tower.calls, 6) << "those that met in one plan share one call";
  EXPECT_EQ(h->stats().tower_patches, 6u * 64u);
}

TEST(EngineEncoder, ARepeatedPictureIsEncodedOnce) {
  FakeTower tower;
  EngineConfig c = picture_config();
  c.scheduler.prefix_caching = false;
  c.vision.encoder_cache_tokens = 1000;
  Harness h(c, picture_options(), tower);
  for (RequestId id = 1; id <= 30; ++id) {
    const Request r = PictureRequest().text({static_cast<int32_t>(id)}).picture(16, 20, 5 + id % 3).make(id, 4);
    ASSERT_TRUE(h->submit(r).ok());
    h.read(id);
    expect_answer(h, r);
  }
  const EngineStats s = h->stats();
  EXPECT_EQ(s.tower_items, 3u);
  EXPECT_EQ(s.encoder_lookups, 30u);
  EXPECT_EQ(s.encoder_hits, 27u);
  EXPECT_EQ(s.tower_patches, 3u * 320u);
}

TEST(EngineEncoder, TheSmallestCacheServesAnyCompany) {
  FakeTower tower;
  EngineConfig c = picture_config(40, 400, 8);
  c.scheduler.prefix_caching = false;
  Harness h(c, picture_options(), tower);
  std::mt19937 random(7);
  std::vector<Request> list;
  for (RequestId id = 1; id <= 120; ++id) {
    PictureRequest p;
    for (int pieces = 1 + static_cast<int>(random() % 3); pieces > 0; --pieces) {
      p.text({static_cast<int32_t>(random() % 80)});
      const int height = 2 + 2 * static_cast<int>(random() % 6), width = 2 + 2 * static_cast<int>(random() % 6);
      if (p.size() + height * width / 4 < 140) p.picture(height, width, random() % 40);
    }
    list.push_back(p.make(id, 5));
  }
  for (const Request& r : list) ASSERT_TRUE(h->submit(r).ok());
  h.read(list.size());
  for (const Request& r : list) expect_answer(h, r);
}

// Eight requests whose prefix match ends inside a large picture, each with a token or two left: together their pictures
// are more than the cache has for a step.
TEST(EngineEncoder, ManyMatchesInsidePicturesWaitForEachOther) {
  FakeTower tower;
  EngineConfig c = picture_config(64, 400, 8);
  Harness h(c, picture_options(), tower);
  const auto with = [&](uint64_t seed, int32_t tail) {
    return PictureRequest().text({1, 2, 3}).picture(18, 20, seed).text({tail, tail, tail, tail, tail});
  };
  RequestId id = 1;
  for (uint64_t seed = 1; seed <= 8; ++seed, ++id) {
    ASSERT_TRUE(h->submit(with(seed, 8).make(id, 2)).ok());
    h.read(id);
  }
  std::vector<Request> list;
  for (uint64_t seed = 1; seed <= 8; ++seed, ++id) list.push_back(with(seed, 9).make(id, 20));
  for (const Request& r : list) ASSERT_TRUE(h->submit(r).ok());
  h.read(16);
  for (const Request& r : list) {
    expect_answer(h, r);
    EXPECT_EQ(h.answers[r.id].last.cached_tokens, 88);
  }
}

TEST(EngineEncoder, AFailingTowerEndsEverythingCleanly) {
  FakeTower tower;
  Harness h(picture_config(), picture_options(), tower);
  Request text = Harness::request(1, {1, 2}, 150);
  text.ignore_eos = true;
  ASSERT_TRUE(h->submit(text).ok());
  while (h.answers.empty()) h.take(milliseconds(5));
  ASSERT_TRUE(h->submit(PictureRequest().special(FakeTower::kFails).picture(4, 4, 1).make(2, 2)).ok());
  h.read(2);
  EXPECT_EQ(h.answers[2].last.finish, FinishReason::kError);
  EXPECT_NE(h.answers[2].last.error.message.find("told to fail"), std::string::npos);
  while (h->healthy()) std::this_thread::yield();
  EXPECT_EQ(h->submit(text).error().code, ErrorCode::kUnavailable);
}

TEST(EngineEncoder, NanPatchesEndOneRequestAndAreForgotten) {
  FakeTower tower;
  EngineConfig c = picture_config();
  c.scheduler.prefix_caching = false;
  Harness h(c, picture_options(), tower);
  const auto bad = [&](RequestId id) {
    return PictureRequest().text({1}).special(std::nanf("")).picture(8, 8, 3).text({2}).make(id, 5);
  };
  const Request good = PictureRequest().text({1}).picture(8, 8, 4).text({2}).make(2, 30);
  ASSERT_TRUE(h->submit(bad(1)).ok());
  ASSERT_TRUE(h->submit(good).ok());
  h.read(2);
  EXPECT_EQ(h.answers[1].last.finish, FinishReason::kError);
  EXPECT_NE(h.answers[1].last.error.message.find("not a number"), std::string::npos);
  expect_answer(h, good);
  EXPECT_TRUE(h->healthy());
  // Had it been a fault of the moment, the next request must not find it in the cache.
  tower.mend = true;
  ASSERT_TRUE(h->submit(bad(3)).ok());
  h.read(3);
  EXPECT_EQ(h.answers[3].last.finish, FinishReason::kLength);
}

TEST(EngineEncoder, RefusesWhatDoesNotFitTogether) {
  FakeTower tower;
  Harness h(picture_config(), picture_options(), tower);
  const Request good = PictureRequest().text({1, 2}).picture(4, 8, 3).text({3}).picture(4, 4, 4).text({5}).make(1, 3);
  std::vector<Request> bad;
  const auto add = [&](auto change) {
    bad.push_back(good);
    bad.back().id = bad.size() + 1;
    change(bad.back());
  };
  add([](Request& r) { std::swap(r.media[0], r.media[1]); });
  add([](Request& r) { r.media[0].begin = -1; });
  add([](Request& r) { r.media[1].begin = 9, r.media[1].end = 13; });
  add([](Request& r) { r.media[1].end = 1000; });
  add([](Request& r) { r.media[0].end -= 1; });
  add([](Request& r) { r.media[0].h = 3; });
  add([](Request& r) { r.media[0].h = 0; });
  add([](Request& r) { r.media[0].t = -1; });
  add([](Request& r) { std::swap(r.media[0].h, r.media[1].h), r.media[0].w = 1 << 30; });
  add([](Request& r) { r.media[0].patches = nullptr; });
  add([](Request& r) { r.media[0].bytes -= 4; });
  add([](Request& r) { r.media[0].offset = 4; });
  add([](Request& r) { r.media[0].offset = ~size_t{0} - 8; });
  add([](Request& r) { r.media[0].key[0] = r.media[0].key[1] = 0; });
  add([](Request& r) { r.positions.pop_back(); });
  add([](Request& r) { r.positions.clear(); });
  add([](Request& r) { r.positions[3] = -1; });
  add([](Request& r) { r.positions[1] = 0; });
  add([](Request& r) { r.positions[r.prompt.size() - 1] += 1; });
  add([](Request& r) { r.rope_delta += 1; });
  add([](Request& r) { r.rope_delta = -1000; });
  add([](Request& r) { r.rope_delta = std::numeric_limits<int32_t>::max(); });
  bad.push_back(PictureRequest().text({1}).picture(20, 22, 3).make(bad.size() + 2, 1));  // more than 400 patches
  bad.push_back(PictureRequest().text({1}).picture(130, 2, 3).make(bad.size() + 2, 1));  // longer than the tower takes
  for (const Request& r : bad) ASSERT_TRUE(h->submit(r).ok());
  h.read(bad.size());
  for (const Request& r : bad) {
    EXPECT_EQ(h.answers[r.id].last.finish, FinishReason::kError) << r.id;
    const bool large = r.id == 10 || r.id > bad.size() - 1;  // the wide one, and the last two
    EXPECT_EQ(h.answers[r.id].last.error.code, large ? ErrorCode::kTooLarge : ErrorCode::kInvalidArgument)
        << r.id << h.answers[r.id].last.error.message;
  }
  EXPECT_EQ(tower.calls, 0);
  ASSERT_TRUE(h->submit(good).ok());
  h.read(bad.size() + 1);
  expect_answer(h, good);

  Harness blind(Harness::small());
  ASSERT_TRUE(blind->submit(good).ok());
  blind.read(1);
  EXPECT_EQ(blind.answers[1].last.error.message, "this model takes no pictures");
}

TEST(EngineEncoder, LetsPatchesGoOnceTheyCannotBeNeededAgain) {
  for (bool preempts : {false, true}) {
    FakeTower tower;
    std::atomic<int64_t> pace{1'000'000};
    FakeOptions o = picture_options();
    o.step_ns = &pace;
    Harness h(picture_config(64, preempts ? 100 : 160), o, tower);
    std::weak_ptr<const RawBytes> patches;
    {
      Request r = PictureRequest().text({1}).picture(8, 8, 3).text({2}).make(1, 100);
      patches = r.media[0].patches;
      ASSERT_TRUE(h->submit(std::move(r)).ok());
    }
    while (h.answers[1].ids.size() < 10) h.take(milliseconds(5));
    EXPECT_EQ(patches.expired(), !preempts);
    h.read(1);
    h.close();
    EXPECT_TRUE(patches.expired());
  }
}

TEST(EngineEncoder, AbortedRequestsLeaveNothingPinned) {
  FakeTower tower;
  std::atomic<int64_t> pace{300'000};
  FakeOptions o = picture_options();
  o.step_ns = &pace;
  EngineConfig c = picture_config(40, 100);
  c.scheduler.prefix_caching = false;
  Harness h(c, o, tower);
  std::mt19937 random(3);
  for (RequestId id = 1; id <= 150; ++id) {
    ASSERT_TRUE(h->submit(PictureRequest().text({1}).picture(10, 16, id % 9).text({2}).make(id, 20)).ok());
    if (id % 2 == 0) h->abort(id - random() % 4);
    if (id % 10 == 0) h.take(milliseconds(3));
  }
  h.read(150, 30);
  for (auto& [id, a] : h.answers) {
    EXPECT_TRUE(a.last.finish == FinishReason::kLength || a.last.finish == FinishReason::kAbort) << id;
  }
  const Request r = PictureRequest().text({1}).picture(10, 16, 99).text({2}).make(1000, 20);
  ASSERT_TRUE(h->submit(r).ok());
  h.read(151);
  expect_answer(h, r);
}

TEST(EngineEncoder, PicturesCountInTheProfile) {
  FakeTower tower;
  FakeModel model(picture_options());
  auto device = device::make_cpu_device({1, false});
  EngineConfig c = picture_config(64, 0);
  auto engine = Engine::start(c, model, **device, &tower);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  engine->reset();
  tower.huge = size_t{1} << 50;
  engine = Engine::start(c, model, **device, &tower);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(engine.error().message.find("--max-encoder-cache"), std::string::npos) << engine.error().message;
  EXPECT_NE(engine.error().message.find("max_pixels"), std::string::npos);
  tower.huge = 0;
  c.vision.max_item_patches = 0;
  EXPECT_FALSE(Engine::start(c, model, **device, &tower).ok());
  c = picture_config();
  c.vision.encoder_cache_tokens = int64_t{1} << 40;
  EXPECT_EQ(Engine::start(c, model, **device, &tower).error().param, "max-encoder-cache");
  FakeModel narrow({});
  EXPECT_EQ(Engine::start(picture_config(), narrow, **device, &tower).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace

TEST(Allocations, NoneInASteadyStepBehindPictures) {
  FakeTower tower;
  EngineConfig c = Harness::small(1200, 8, 64);
  c.scheduler.max_model_len = 1000;
  c.vision.max_item_patches = 400;
  std::atomic<int64_t> pace{100'000};
  FakeOptions o = picture_options();
  o.step_ns = &pace;
  Harness h(c, o, tower);
  std::vector<Request> list;
  for (RequestId id = 1; id <= 8; ++id) {
    list.push_back(PictureRequest().text({1}).picture(8, 8, id).text({2}).picture(4, 4, 9).make(id, 900));
  }
  expect_no_allocations(h, std::move(list), 150);
}

}  // namespace tern::engine
