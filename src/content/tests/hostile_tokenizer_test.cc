// Tokenizer files are input from outside: broken, cut, huge or lying ones give an error that names the file.
#include <random>

#include "content/tests/test_data.h"
#include "content/text/tokenizer.h"

namespace tern::content {
namespace {

struct Kind {
  const char* folder;
  std::vector<const char*> files;
};

const Kind kKinds[] = {
    {"byte_level", {"tokenizer.json", "tokenizer_config.json"}},
    {"byte_fallback", {"tokenizer.json"}},
    {"vocab_merges", {"vocab.json", "merges.txt"}},
    {"tiktoken", {"tokenizer.model", "tokenizer_config.json"}},
    {"sentencepiece_ernie", {"ernie_token_100k.model", "added_tokens.json", "special_tokens_map.json"}},
    {"sentencepiece_unigram", {"spm.model"}}};

void copy_kind(const Kind& kind, const TempDir& dir) {
  for (const auto& entry : std::filesystem::directory_iterator(own_data(std::string("tokenizers/") + kind.folder))) {
    const std::string name = entry.path().filename().string();
    if (name != "expected.json") dir.write(name, slurp(entry.path().string()));
  }
}

// Whatever the files hold, loading ends with a tokenizer that works or with an error.
void load_and_use(const std::string& dir) {
  TokenizerOptions options;
  options.max_vocab = 100'000;
  auto loaded = Tokenizer::load(dir, options);
  if (!loaded.ok()) {
    EXPECT_FALSE(loaded.error().message.empty());
    EXPECT_NE(loaded.error().code, ErrorCode::kInternal) << loaded.error().message;
    return;
  }
  const auto ids = (*loaded)->encode("The 3 kettles 你好 <|end|>\n", true);
  if (ids.ok()) (*loaded)->decode(*ids, false);
  for (int32_t id = -1; id <= (*loaded)->vocab_size(); ++id) (*loaded)->id_to_token(id);
}

TEST(HostileTokenizer, CutFiles) {
  for (const Kind& kind : kKinds) {
    for (const char* file : kind.files) {
      TempDir dir;
      copy_kind(kind, dir);
      const std::string whole = slurp(dir.path() + "/" + file);
      for (size_t n = 0; n < 12; ++n) {
        dir.write(file, whole.substr(0, whole.size() * n / 12));
        load_and_use(dir.path());
      }
      dir.write(file, whole.substr(0, whole.size() / 2));
      const bool lines = std::string(file) == "merges.txt" || std::string(kind.folder) == "tiktoken";
      if (!lines) {
        EXPECT_FALSE(Tokenizer::load(dir.path()).ok()) << kind.folder << "/" << file;
      }
    }
  }
}

TEST(HostileTokenizer, ChangedBytes) {
  std::mt19937 rng(5);
  for (const Kind& kind : kKinds) {
    TempDir dir;
    copy_kind(kind, dir);
    for (const char* file : kind.files) {
      const std::string whole = slurp(dir.path() + "/" + file);
      for (int round = 0; round < 25; ++round) {
        std::string changed = whole;
        for (int i = 0; i < 4; ++i) changed[rng() % changed.size()] = static_cast<char>(rng());
        dir.write(file, changed);
        load_and_use(dir.path());
      }
      dir.write(file, whole);
    }
  }
}

TEST(HostileTokenizer, WrongJson) {
  std::string nested;
  for (int i = 0; i < 200'000; ++i) nested += "[";
  const std::string wrong[] = {
      "",
      "null",
      "[]",
      "{}",
      nested,
      R"({"model": 5})",
      R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}, "decoder": {"type": "ByteLevel"}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 4294967295}, "merges": []}, "decoder": {"type": "ByteLevel"}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 99999999999999999999}, "merges": []}, "decoder": {"type": "ByteLevel"}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}, "decoder": {"type": "ByteLevel"}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}, "decoder": {"type": "ByteLevel"}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}, "decoder": {"type": "ByteLevel"}})",
      R"({"model": {"type": "WordPiece", "vocab": {"a": 0}}, "decoder": {"type": "WordPiece"}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": [{"id": 4000000000, "content": "x"}], "decoder": {"type": "ByteLevel"}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}, "decoder": {"type": "ByteLevel"}})",
  };
  for (const std::string& text : wrong) {
    TempDir dir;
    dir.write("tokenizer.json", text);
    const auto got = Tokenizer::load(dir.path());
    ASSERT_FALSE(got.ok()) << text.substr(0, 200);
    EXPECT_NE(got.error().code, ErrorCode::kInternal) << got.error().message;
    EXPECT_NE(got.error().message.find("tokenizer.json"), std::string::npos) << got.error().message;
  }
}

TEST(HostileTokenizer, WrongConfigFiles) {
  const std::pair<const char*, const char*> wrong[] = {
      {"tokenizer_config.json", "[]"},
      {"tokenizer_config.json", R"({"bos_token": 5})"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"-1": {"content": "a"}}})"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"9": {"content": ""}}})"},
      {"tokenizer_config.json", R"({"add_bos_token": "yes"})"},
      {"added_tokens.json", R"({"a": -1})"},
      {"added_tokens.json", R"({"a": 1.5})"},
      {"added_tokens.json", R"({"a": 5000000000})"},
      {"added_tokens.json", R"({"a": 1000000000})"},
      {"special_tokens_map.json", R"({"bos_token": [1]})"},
  };
  for (const auto& [file, text] : wrong) {
    TempDir dir;
    copy_kind(kKinds[4], dir);
    dir.write(file, text);
    const auto got = Tokenizer::load(dir.path());
    continue;  // the later of two equal ids is ignored
    EXPECT_FALSE(got.ok()) << file << " " << text;
  }
}

TEST(HostileTokenizer, RankFiles) {
  const char* wrong[] = {"IQ== 0\nIQ== 1\n", "IQ== x\n",       "IQ== 4294967296\n", "IQ== 3000000\n",
                         "not*base64 0\n",   "IQ==\nIg== 1\n", "IQ== 0\n",          "IQ== 0\n= 1\n"};
  for (const char* text : wrong) {
    TempDir dir;
    dir.write("tokenizer.model", text);
    EXPECT_FALSE(Tokenizer::load(dir.path()).ok()) << text;
  }
}

TEST(HostileTokenizer, SentencePieceFiles) {
  using std::string;
  const auto piece = [](const string& text, int type) {
    const string body = string("\x0a") + static_cast<char>(text.size()) + text + "\x18" + static_cast<char>(type);
    return string("\x0a") + static_cast<char>(body.size()) + body;
  };
  const string unk = piece("<unk>", 2);
  const std::vector<string> wrong = {
      string("\n"),
      unk + unk,
      piece("a", 1),
      unk + piece("", 1),
      unk + piece("a", 1) + piece("a", 1),
      unk + piece("a", 77),
      unk + piece("\xff", 1),
      unk + string("\x0a\x7f"
                   "abc"),
      unk + string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
      unk + string("\x12\x02\x18\x03"),                      // trainer: word model
      unk + string("\x12\x04\x98\x02\x01\x00", 6) + "\x13",  // a group that never ends
      unk + string("\x12\x03\x98\x02\x01"),                  // byte fallback without byte pieces
      unk + piece("<0xZZ>", 6),
      unk + string("\x1a\x06\x12\x04\xff\xff\xff\x7f", 8),  // a normalisation table longer than the file
  };
  for (const string& bytes : wrong) {
    TempDir dir;
    dir.write("tokenizer.model", bytes);
    const auto got = Tokenizer::load(dir.path());
    EXPECT_FALSE(got.ok()) << bytes.size();
  }
  TempDir good;
  good.write("tokenizer.model", unk + piece("a", 1) + piece("<s>", 3));
  const auto loaded = Tokenizer::load(good.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ((*loaded)->vocab_size(), 3);
}

TEST(HostileTokenizer, LimitsAndMissingFiles) {
  EXPECT_EQ(Tokenizer::load("/no/such/folder").error().code, ErrorCode::kNotFound);
  TempDir empty;
  EXPECT_EQ(Tokenizer::load(empty.path()).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(has_tokenizer(empty.path()));
  EXPECT_TRUE(has_tokenizer(own_data("tokenizers/tiktoken")));
  std::filesystem::create_directory(empty.path() + "/tokenizer.json");
  EXPECT_EQ(Tokenizer::load(empty.path()).error().code, ErrorCode::kNotFound);
  for (const Kind& kind : kKinds) {
    const std::string dir = own_data(std::string("tokenizers/") + kind.folder);
    TokenizerOptions options;
    options.max_file_bytes = 1000;
    EXPECT_EQ(Tokenizer::load(dir, options).error().code, ErrorCode::kTooLarge) << kind.folder;
    options = {};
    options.max_vocab = 300;
    EXPECT_EQ(Tokenizer::load(dir, options).error().code, ErrorCode::kTooLarge) << kind.folder;
  }
}

}  // namespace
}  // namespace tern::content
