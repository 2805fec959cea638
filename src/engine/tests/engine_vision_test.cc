// Requests with pictures through the engine, over a model and a tower that notice every wrong row.
#include <gtest/gtest.h>

#include "engine/tests/picture_request.h"

namespace tern::engine {
namespace {

using std::chrono::milliseconds;

// Text and pictures of several sizes, some of them equal; a video of three units.
std::vector<Request> mixture(int count, int tokens = 12) {
  std::vector<Request> list;
  for (int i = 0; i < count; ++i) {
    PictureRequest p;
    p.text({i % 3, 2, 3, 4 + i % 2});
    if (i % 4 != 3) p.picture(4 + 2 * (i % 3), 6, static_cast<uint64_t>(i % 5));
    if (i % 3 == 1) p.text({5, 6}).picture(2, 2, 50).picture(10, 16, static_cast<uint64_t>(60 + i % 2), 1, 12);
    if (i % 5 == 2) p.text({7}).picture(4, 4, 70, 2).picture(4, 4, 71, 2).picture(4, 4, 72, 1);
    if (i % 2 == 0) p.text({8, 9, i});
    list.push_back(p.make(static_cast<RequestId>(i + 1), tokens));
  }
  return list;
}

void expect_answers(Harness& h, const std::vector<Request>& requests) {
  for (const Request& r : requests) ASSERT_TRUE(h->submit(r).ok());
  h.read(h.ended + requests.size());
  for (const Request& r : requests) {
    const Answer& a = h.answers[r.id];
    EXPECT_EQ(a.last.finish, FinishReason::kLength) << r.id << ": " << a.last.error.message;
    EXPECT_EQ(a.ids, PictureRequest::answer(h.fake(), r, r.max_tokens)) << "request " << r.id;
  }
}

// One request alone; the answer must be right. Returns its last news.
Delta ask(Harness& h, const Request& r) {
  EXPECT_TRUE(h->submit(r).ok());
  h.read(h.ended + 1);
  EXPECT_EQ(h.answers[r.id].ids, PictureRequest::answer(h.fake(), r, r.max_tokens)) << "request " << r.id;
  return h.answers[r.id].last;
}

TEST(EngineVision, AnswersDoNotDependOnChunks) {
  for (bool v1 : {true, false}) {
    for (int budget : {8, 16, 33, 64, 600}) {
      SCOPED_TRACE(budget);
      FakeTower tower;
      EngineConfig c = picture_config(budget);
      c.scheduler.v1 = v1;
      c.scheduler.max_num_partial_prefills = 3;
      c.vision.step_tokens = budget == 600 ? 1 : 0;  // the largest item's, that is
      Harness h(c, picture_options(), budget == 33 ? 2 : 1, &tower);
      expect_answers(h, mixture(20));
      const EngineStats s = h->stats();
      EXPECT_EQ(s.tower_items, static_cast<uint64_t>(tower.items));
      EXPECT_EQ(s.tower_calls, static_cast<uint64_t>(tower.calls));
      EXPECT_GT(s.tower_ns, 0u);
      EXPECT_GE(s.encoder_lookups, s.encoder_hits + s.tower_items);
      EXPECT_LE(s.tower_items, 30u) << "pictures that repeat are not encoded again";
    }
  }
  FakeTower tower;
  EngineConfig c = picture_config(600);
  c.scheduler.chunked_prefill = false;
  Harness h(c, picture_options(), tower);
  expect_answers(h, mixture(20));
}

// Of two engines with a cache each, the one that has the picture and the text before it gets what follows on them.
TEST(EngineVision, TwoEngines) {
  FakeTower tower;
  Harness h(picture_config(33), picture_options(), 1, &tower, 2);
  expect_answers(h, mixture(20));
  RequestId id = 100;
  std::vector<PictureRequest> talks;
  std::vector<Request> first;
  for (int i = 0; i < 6; ++i) {
    PictureRequest p;
    talks.push_back(
        p.text({40 + i, 2, 3, 4, 5, 6, 7, 8, 9}).picture(8, 12, static_cast<uint64_t>(500 + i)).text({1, 2}));
    first.push_back(talks.back().make(++id, 9));
  }
  expect_answers(h, first);
  for (PictureRequest& talk : talks) {
    const int size = talk.size() / 8 * 8;
    EXPECT_EQ(ask(h, talk.text({3, 4, 5, 6, 7, 8, 9, 10, 11}).make(++id, 4)).cached_tokens, size);
  }
  for (const EngineStats& s : h->parts()) EXPECT_GT(s.prefix_hits, 0u);
}

TEST(EngineVision, PreemptedInTheMiddleOfAPromptOfPictures) {
  for (bool v1 : {true, false}) {
    for (bool save : {true, false}) {
      FakeTower tower;
      EngineConfig c = picture_config(16, 24);
      c.scheduler.v1 = v1;
      c.scheduler.prefix_caching = save;
      c.scheduler.reserve_output_blocks = 0;
      c.scheduler.kv_cache_ratio = 0.95;
      Harness h(c, picture_options(), tower);
      expect_answers(h, mixture(16, 50));
      EXPECT_GT(h->stats().preemptions, 0u);
    }
  }
}

TEST(EngineVision, TheSamePromptAgainIsFoundInThePrefixCache) {
  for (bool whole : {false, true}) {
    FakeTower tower;
    EngineConfig c = picture_config();
    c.scheduler.disable_chunked_mm_input = whole;
    Harness h(c, picture_options(), tower);
    // 11 tokens of text, 24 of the picture: it begins in block 1 and ends in block 4.
    PictureRequest p;
    p.text({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}).picture(8, 12, 5);
    PictureRequest longer = p, other = p;
    EXPECT_EQ(ask(h, p.text({20, 21, 22, 23, 24, 25}).make(1, 4)).cached_tokens, 0);
    EXPECT_EQ(ask(h, p.make(2, 4)).cached_tokens, 40);
    EXPECT_EQ(ask(h, longer.text({20, 21, 22, 23, 24, 25, 26, 27}).make(3, 4)).cached_tokens, 40);
    // The match ends inside the picture: the rest of it is needed again, or it goes back to the block before it.
    const uint64_t encoded = h->stats().tower_items;
    EXPECT_EQ(ask(h, other.text({30, 31, 32, 33, 34, 35}).make(4, 4)).cached_tokens, whole ? 8 : 32);
    EXPECT_EQ(h->stats().tower_items, encoded) << "the encoder cache still has it";
    EXPECT_EQ(h->stats().tower_items, 1u);
  }
}

TEST(EngineVision, AMatchInsideAPictureEncodesItAgainWhenItsRowsAreGone) {
  FakeTower tower;
  EngineConfig c = picture_config(16, 400);
  Harness h(c, picture_options(), tower);
  PictureRequest p;
  p.text({1, 2, 3}).picture(8, 12, 5);
  ask(h, PictureRequest(p).text({20, 21, 22, 23, 24, 25}).make(1, 2));
  for (RequestId id = 10; id < 30; ++id) ask(h, PictureRequest().text({9}).picture(16, 20, id).make(id, 1));
  const uint64_t encoded = h->stats().tower_items;
  EXPECT_EQ(ask(h, PictureRequest(p).text({30, 31, 32, 33, 34}).make(2, 2)).cached_tokens, 24);
  EXPECT_EQ(h->stats().tower_items, encoded + 1);
}

TEST(EngineVision, TheSamePictureElsewhereIsAnotherPrefix) {
  FakeTower tower;
  Harness h(picture_config(), picture_options(), tower);
  const std::vector<int32_t> tail{20, 21, 22};
  RequestId id = 1;
  // Every offset in a block, so that pictures share placeholder ids and keys, not places in their blocks.
  for (int before = 0; before < 18; ++before) {
    PictureRequest p;
    p.text(std::vector<int32_t>(static_cast<size_t>(before), PictureRequest::kPlace)).picture(8, 12, 5).text(tail);
    ask(h, p.make(id++, 5));
    // The same picture twice.
    p.picture(8, 12, 5).text(tail);
    ask(h, p.make(id++, 5));
  }
  EXPECT_EQ(h->stats().tower_items, 1u);
}

TEST(EngineVision, EqualIdsOfDifferentPicturesAreTwoPrefixes) {
  FakeTower tower;
  Harness h(picture_config(), picture_options(), tower);
  const std::vector<int32_t> head{1, 2, 3, 4, 5, 6, 7, 8, 9}, tail{20, 21, 22, 23, 24, 25, 26, 27, 28};
  const auto with = [&](uint64_t seed) { return PictureRequest().text(head).picture(8, 12, seed).text(tail); };
  EXPECT_EQ(ask(h, with(5).make(1, 4)).cached_tokens, 0);
  EXPECT_EQ(ask(h, with(6).make(2, 4)).cached_tokens, 8) << "only what lies before the picture";
  EXPECT_EQ(ask(h, with(5).make(3, 4)).cached_tokens, 40);
  EXPECT_EQ(ask(h, with(6).make(4, 4)).cached_tokens, 40);
  EXPECT_EQ(h->stats().tower_items, 2u);
}

TEST(EngineVision, HighAndWideAreTwoPrefixes) {
  FakeTower tower;
  EngineConfig c = picture_config(64, 800);
  c.scheduler.max_model_len = 900;
  c.vision.max_item_patches = 3000;
  Harness h(c, picture_options(), tower);
  const std::vector<int32_t> head{1, 2, 3, 4, 5, 6, 7, 8}, tail{20, 21, 22, 23, 24, 25, 26, 27, 28};
  // Even with the same fingerprint: the engine adds the grid and the positions.
  const auto with = [&](int high, int wide) { return PictureRequest().text(head).picture(high, wide, 5).text(tail); };
  ask(h, with(30, 100).make(1, 4));
  EXPECT_EQ(ask(h, with(100, 30).make(2, 4)).cached_tokens, 8);
  EXPECT_GT(ask(h, with(30, 100).make(3, 4)).cached_tokens, 750);
  EXPECT_GT(ask(h, with(100, 30).make(4, 4)).cached_tokens, 750);
  EXPECT_EQ(h->stats().tower_items, 2u);
}

TEST(EngineVision, PositionsArePartOfThePrefix) {
  FakeTower tower;
  Harness h(picture_config(), picture_options(), tower);
  const Request plain = PictureRequest().text({1, 2}).picture(8, 8, 5).text({3, 4, 5, 6, 7, 8, 9}).make(1, 3);
  ask(h, plain);
  // The same ids and pixels, as a model with another rule would place them: t moves on, text goes on later.
  Request moved = plain;
  moved.id = 2;
  const size_t n = moved.prompt.size();
  for (size_t axis = 0; axis < 3; ++axis) {
    for (size_t i = 18; i < n; ++i) moved.positions[axis * n + i] += 7;
  }
  moved.rope_delta += 7;
  EXPECT_EQ(ask(h, moved).cached_tokens, 0);
  Request inside = plain;
  inside.id = 3;
  for (size_t i = 10; i < 18; ++i) inside.positions[i] += 1;
  EXPECT_EQ(ask(h, inside).cached_tokens, 0);
}

TEST(EngineVision, SaltsKeepTenantsApart) {
  FakeTower tower;
  Harness h(picture_config(), picture_options(), tower);
  const auto with = [&](uint64_t salt) {
    return PictureRequest()
        .salt(salt)
        .text({1, 2, 3, 4, 5, 6, 7, 8})
        .picture(8, 8, 5)
        .text({9, 9, 9, 9, 9, 9, 9, 9, 9});
  };
  ask(h, with(0).make(1, 3));
  EXPECT_EQ(ask(h, with(7).make(2, 3)).cached_tokens, 0);
  EXPECT_EQ(h->stats().encoder_hits, 0u) << "nor can the time of the tower be seen";
  EXPECT_EQ(ask(h, with(8).make(3, 3)).cached_tokens, 0);
  EXPECT_EQ(ask(h, with(7).make(4, 3)).cached_tokens, 32);
  EXPECT_EQ(h->stats().tower_items, 3u);
}

TEST(EngineVision, AnAnswerIsFoundAsThePrefixOfTheNextTurn) {
  FakeTower tower;
  Harness h(picture_config(), picture_options(), tower);
  PictureRequest p;
  p.text({1, 2, 3}).picture(8, 12, 5).text({4, 5, 6});
  ask(h, p.make(1, 20));
  std::vector<int32_t> turn = h.answers[1].ids;
  turn.insert(turn.end(), {40, 41, 42});
  // 30 tokens of prompt and 19 of the answer have keys and values: 6 blocks.
  EXPECT_EQ(ask(h, p.text(turn).make(2, 10)).cached_tokens, 48);
  EXPECT_EQ(h->stats().tower_items, 1u);
}

TEST(EngineVision, ScoresPromptsWithPictures) {
  FakeTower tower;
  EngineConfig c = picture_config(16);
  c.prompt_logit_rows = 30;
  Harness h(c, picture_options(), tower);
  Request r = PictureRequest().text({1, 2, 3}).picture(8, 12, 5).text({4, 5, 6}).make(1, 2);
  r.sampling.prompt_logprobs = 1;
  ask(h, r);
  EXPECT_EQ(h.answers[1].prompt_logprobs.size(), r.prompt.size() - 1);
  Request large = PictureRequest().text({1}).picture(16, 12, 5).make(2, 2);
  large.sampling.prompt_logprobs = 1;
  ASSERT_TRUE(h->submit(large).ok());
  h.read(2);
  EXPECT_EQ(h.answers[2].last.error.code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace tern::engine
