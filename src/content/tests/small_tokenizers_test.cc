// The small tokenizers of tests/data/tokenizers (tools/make_tokenizers.py) against the ids of the reference libraries,
// and the streaming detokenizer over every kind.
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "content/tests/test_data.h"
#include "content/text/detokenizer.h"
#include "content/text/tokenizer.h"

namespace tern::content {
namespace {

struct Small {
  const char* folder;
  const char* kind;
};

const Small kSmall[] = {{"byte_level", "tokenizer.json"},
                        {"custom_split", "tokenizer.json"},
                        {"byte_fallback", "tokenizer.json"},
                        {"vocab_merges", "bpe"},
                        {"tiktoken", "tiktoken"},
                        {"sentencepiece_ernie", "sentencepiece"},
                        {"sentencepiece_llama", "sentencepiece"},
                        {"sentencepiece_unigram", "sentencepiece"}};

std::vector<int32_t> ids_of(const json::Value& list) {
  std::vector<int32_t> out;
  for (const json::Value& id : list.as_array()) out.push_back(static_cast<int32_t>(id.as_int64()));
  return out;
}

std::unique_ptr<Tokenizer> load_small(const std::string& folder) {
  auto loaded = Tokenizer::load(own_data("tokenizers/" + folder));
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
  return loaded.ok() ? std::move(loaded).value() : nullptr;
}

bool valid_utf8(const std::string& text) {
  std::string quoted;
  json::append_quoted(quoted, text);
  auto back = json::parse(quoted);
  return back.ok() && back->as_string() == text;
}

class SmallTokenizers : public testing::TestWithParam<Small> {};

TEST_P(SmallTokenizers, IdsEqualTheReference) {
  auto tokenizer = load_small(GetParam().folder);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->kind(), GetParam().kind);
  const json::Value file = load_json(own_data(std::string("tokenizers/") + GetParam().folder + "/expected.json"));
  ASSERT_GE(file.at("cases").as_array().size(), 100u);
  for (const json::Value& c : file.at("cases").as_array()) {
    const std::string text(c.at("text").as_string());
    EXPECT_EQ(*tokenizer->encode(text, false), ids_of(c.at("ids"))) << '"' << text << '"';
    EXPECT_EQ(*tokenizer->encode(text, true), ids_of(c.at("ids_with_special"))) << '"' << text << '"';
    if (const json::Value* decoded = json::find(c.as_object(), "decoded")) {
      EXPECT_EQ(tokenizer->decode(ids_of(c.at("ids")), false), decoded->as_string()) << '"' << text << '"';
    }
  }
}

TEST_P(SmallTokenizers, TokensAndIdsGoBothWays) {
  auto tokenizer = load_small(GetParam().folder);
  ASSERT_NE(tokenizer, nullptr);
  int present = 0;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    if (!tokenizer->has_id(id)) continue;
    ++present;
    EXPECT_EQ(tokenizer->token_to_id(tokenizer->id_to_token(id)), id) << tokenizer->id_to_token(id);
    EXPECT_FALSE(tokenizer->id_to_bytes(id).empty());
    EXPECT_TRUE(valid_utf8(tokenizer->token_text(id)));
  }
  EXPECT_GT(present, 300);
  for (int32_t id : {-1, tokenizer->vocab_size(), 1 << 30}) {
    EXPECT_FALSE(tokenizer->has_id(id));
    EXPECT_TRUE(tokenizer->id_to_bytes(id).empty());
    EXPECT_TRUE(tokenizer->id_to_token(id).empty());
  }
  EXPECT_FALSE(tokenizer->token_to_id("no such token at all").has_value());
}

// Random ids, valid and broken characters alike, in random pieces: what the stream gave is what the full decode gives.
TEST_P(SmallTokenizers, StreamEqualsFullDecode) {
  auto tokenizer = load_small(GetParam().folder);
  ASSERT_NE(tokenizer, nullptr);
  std::mt19937 rng(20240607);
  std::vector<int32_t> bytes;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    const auto text = tokenizer->id_to_bytes(id);
    if (!text.empty() && static_cast<uint8_t>(text[0]) >= 0x80) bytes.push_back(id);
  }
  ASSERT_FALSE(bytes.empty());
  int replaced = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<int32_t> ids(rng() % 40);
    for (int32_t& id : ids) {
      const bool any = rng() % 2 == 0;
      id = any ? static_cast<int32_t>(rng() % static_cast<uint32_t>(tokenizer->vocab_size() + 2))
               : bytes[rng() % bytes.size()];
    }
    const bool skip = rng() % 2 == 0;
    const std::string whole = tokenizer->decode(ids, skip);
    ASSERT_TRUE(valid_utf8(whole));
    replaced += whole.find("\xEF\xBF\xBD") != std::string::npos;
    StreamDetokenizer stream(*tokenizer, skip);
    std::string joined;
    for (size_t at = 0; at < ids.size();) {
      const size_t n = std::min<size_t>(1 + rng() % 4, ids.size() - at);
      const std::string delta = stream.push(std::span(ids).subspan(at, n));
      ASSERT_TRUE(valid_utf8(delta)) << "round " << round;
      joined += delta;
      at += n;
    }
    joined += stream.finish();
    ASSERT_EQ(joined, whole) << "round " << round;
  }
  if (std::string(GetParam().folder) != "sentencepiece_unigram") {
    EXPECT_GT(replaced, 100);  // broken characters did occur
  }
}

// Whatever the bound: the same ids when they fit, a refusal when they do not, and never a refusal of what fits.
TEST_P(SmallTokenizers, ABoundChangesNoIds) {
  auto tokenizer = load_small(GetParam().folder);
  ASSERT_NE(tokenizer, nullptr);
  std::mt19937 rng(7);
  const std::vector<std::string> parts = {
      "the ", "12345", "  ", "\n",      "Grüße ", "你好", "😀", "▁▁▁", "e\u0301", "\u212A", "\u1FBE\u0308\u0301",
      "aaaa", "...",   "\t", "<|end|>", "</s>"};
  std::vector<std::string> texts;
  for (const std::string& part : parts) {
    std::string run;
    for (int i = 0; i < 200; ++i) run += part;
    texts.push_back(run);
  }
  for (int round = 0; round < 100; ++round) {
    std::string text;
    for (size_t n = rng() % 60; n > 0; --n) text += parts[rng() % parts.size()];
    texts.push_back(text);
  }
  for (const std::string& text : texts) {
    for (const bool special : {false, true}) {
      const auto whole = tokenizer->encode(text, special);
      ASSERT_TRUE(whole.ok());
      const size_t n = whole->size();
      for (const size_t most : {n, n + 1, 2 * n + 7}) {
        const auto same = tokenizer->encode(text, special, {most, nullptr});
        ASSERT_TRUE(same.ok()) << text << ' ' << most;
        ASSERT_EQ(*same, *whole);
      }
      if (n == 0) continue;
      const auto refused = tokenizer->encode(text, special, {rng() % n, nullptr});
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
    }
  }
}

// What it costs is measured with the real program (tests/security).
TEST_P(SmallTokenizers, ALongTextIsRefusedAndADroppedOneEnds) {
  auto tokenizer = load_small(GetParam().folder);
  ASSERT_NE(tokenizer, nullptr);
  const auto refused = tokenizer->encode(std::string(8u << 20, '7'), false, {2048, nullptr});
  const bool one_unknown = std::string(GetParam().folder) == "sentencepiece_unigram";  // the run is one unknown id
  ASSERT_EQ(refused.ok(), one_unknown);
  if (!one_unknown) {
    EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  }
  const std::atomic<bool> gone{true};
  const auto dropped = tokenizer->encode("one two three", false, {SIZE_MAX, &gone});
  ASSERT_FALSE(dropped.ok());
  EXPECT_EQ(dropped.error().code, ErrorCode::kCancelled);
}

TEST_P(SmallTokenizers, TextComesBackThroughTheStream) {
  auto tokenizer = load_small(GetParam().folder);
  ASSERT_NE(tokenizer, nullptr);
  if (std::string(GetParam().folder) == "sentencepiece_unigram") GTEST_SKIP() << "normalises: text does not come back";
  const std::string text = "Grüße, 你好 😀👍🏽! done\n\tnext line";
  auto ids = tokenizer->encode(text, false);
  ASSERT_TRUE(ids.ok());
  StreamDetokenizer stream(*tokenizer);
  std::string joined;
  for (int32_t id : *ids) joined += stream.push(id);
  EXPECT_FALSE(stream.pending());
  EXPECT_EQ(joined + stream.finish(), text);
}

TEST_P(SmallTokenizers, ManyThreadsShareOne) {
  auto tokenizer = load_small(GetParam().folder);
  ASSERT_NE(tokenizer, nullptr);
  const std::string text = "The server takes a request 42 times. 早上七点 <|end|> 😀";
  const auto want = *tokenizer->encode(text, true);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        if (*tokenizer->encode(text, true) != want) ++wrong;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(All, SmallTokenizers, testing::ValuesIn(kSmall),
                         [](const auto& row) { return std::string(row.param.folder); });

TEST(SmallTokenizer, SpecialTokensOfTheConfigFiles) {
  auto level = load_small("byte_level");
  ASSERT_NE(level, nullptr);
  EXPECT_EQ(level->special_text().bos_token, "<|begin|>");
  EXPECT_EQ(level->special_text().eos_token, "<|end|>");
  EXPECT_EQ(level->bos_id(), level->token_to_id("<|begin|>"));
  EXPECT_EQ(level->eos_id(), level->token_to_id("<|end|>"));
  EXPECT_TRUE(level->adds_bos());
  EXPECT_EQ(level->model_max_length(), 4096);
  EXPECT_TRUE(level->is_special(*level->eos_id()));
  EXPECT_FALSE(level->is_special(*level->token_to_id("<tool>")));
  auto ernie = load_small("sentencepiece_ernie");
  ASSERT_NE(ernie, nullptr);
  EXPECT_FALSE(ernie->adds_bos());
  EXPECT_TRUE(ernie->is_special(*ernie->token_to_id("<|user|>")));
  EXPECT_FALSE(ernie->is_special(*ernie->token_to_id("<|LOC_0|>")));
  EXPECT_EQ(ernie->eos_id(), 2);
  auto fallback = load_small("byte_fallback");
  ASSERT_NE(fallback, nullptr);
  EXPECT_TRUE(fallback->adds_bos());
  EXPECT_FALSE(fallback->model_max_length().has_value());
}

TEST(SmallTokenizer, SkippingSpecialTokens) {
  auto t = load_small("byte_level");
  ASSERT_NE(t, nullptr);
  const auto ids = *t->encode("<|user|>Hi<tool>x</tool><|end|>", true);
  EXPECT_EQ(t->decode(ids, false), "<|begin|><|user|>Hi<tool>x</tool><|end|>");
  EXPECT_EQ(t->decode(ids, true), "Hi<tool>x</tool>");
}

TEST(SmallTokenizer, TokenTextShowsBytes) {
  auto t = load_small("sentencepiece_llama");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->token_text(*t->token_to_id("<0xE4>")), "bytes:\\xe4");
  EXPECT_EQ(t->token_text(*t->token_to_id("<0x41>")), "A");
}

TEST(SmallTokenizer, InvalidTextIsRefused) {
  for (const Small& s : kSmall) {
    auto t = load_small(s.folder);
    ASSERT_NE(t, nullptr);
    for (const char* text : {"\xFF", "ok \xE4\xBD", "\xED\xA0\x80", "\xC0\x80"}) {
      const auto got = t->encode(text, false);
      ASSERT_FALSE(got.ok());
      EXPECT_EQ(got.error().code, ErrorCode::kInvalidArgument);
    }
  }
}

// A long text of one letter, of spaces, or of one broken-up word must not take quadratic time: quadratic work at this
// size would stand out.
TEST(SmallTokenizer, LongTextsOfEveryShape) {
  for (const Small& s : kSmall) {
    auto t = load_small(s.folder);
    ASSERT_NE(t, nullptr);
    for (const char* unit : {"a", " ", "\n", "1", "!", "你", "ab ", "<|end|>", "<|", " \n", "'"}) {
      std::string text;
      while (text.size() < 60'000) text += unit;
      const auto ids = t->encode(text, false);
      ASSERT_TRUE(ids.ok());
      if (std::string(s.folder) != "sentencepiece_unigram") {
        EXPECT_EQ(t->decode(*ids, false), text) << s.folder << " " << unit;
      }
    }
  }
}

TEST(SmallTokenizer, TextLimit) {
  TokenizerOptions options;
  options.max_text_bytes = 10;
  auto t = Tokenizer::load(own_data("tokenizers/byte_level"), options);
  ASSERT_TRUE(t.ok());
  EXPECT_TRUE((*t)->encode("0123456789", false).ok());
  const auto got = (*t)->encode("0123456789a", false);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace tern::content
