// Packed weights kept beside a model: taken when they fit, made anew when not, and never in the way.
#include "model/weights/load_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "model/tests/support.h"

namespace tern::model {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;

class LoadCacheTest : public ::testing::Test {
 protected:
  LoadCacheTest() {
    testing::write_random_model(folder_.path(), testing::small_config("Qwen3MoeForCausalLM", 4, 2));
    options_.path = folder_.path();
    options_.load_cache = true;
    options_.quantization = *read_quantization("wint8", "Qwen3MoeForCausalLM");
  }

  // Logits, and what was said about the cache in note_.
  std::vector<float> load() {
    const auto model = load_model(options_, testing::cpu());
    EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
    if (!model.ok()) return {};
    note_.clear();
    for (const std::string& note : (*model)->info().notes) note_ += note + "\n";
    return testing::logits_of(**model, {1, 2, 3, 4, 5});
  }
  bool said(const char* what) const { return note_.find(what) != std::string::npos; }
  std::vector<std::string> files() const {
    std::vector<std::string> out;
    if (fs::exists(folder_.file("tern_load_cache")))
      for (const auto& e : fs::directory_iterator(folder_.file("tern_load_cache"))) out.push_back(e.path().string());
    std::sort(out.begin(), out.end());
    return out;
  }

  TempFolder folder_;
  LoadOptions options_;
  std::string note_;
};

TEST_F(LoadCacheTest, TheSecondStartTakesWhatTheFirstMade) {
  options_.load_cache = false;
  const std::vector<float> want = load();
  EXPECT_TRUE(files().empty());
  options_.load_cache = true;
  EXPECT_EQ(load(), want);
  EXPECT_TRUE(said("quantized weights are kept for the next start in ")) << note_;
  ASSERT_EQ(files().size(), 1u);
  size_t done = 0, all = 1;
  options_.progress = [&](size_t d, size_t a) { done = d, all = a; };
  EXPECT_EQ(load(), want);
  EXPECT_TRUE(said("quantized weights were taken from ")) << note_;
  EXPECT_EQ(done, all);
  // Nothing is kept where nothing is quantized.
  options_.quantization = {};
  (void)load();
  EXPECT_EQ(note_, "");
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(LoadCacheTest, EveryUseHasItsOwnFile) {
  size_t count = 0;
  const auto once = [&] {
    const std::vector<float> first = load();
    EXPECT_TRUE(said("are kept")) << note_;
    EXPECT_EQ(load(), first);
    EXPECT_TRUE(said("were taken from")) << note_;
    EXPECT_EQ(files().size(), ++count);
  };
  once();
  options_.quantization = *read_quantization("block_wise_fp8", "Qwen3MoeForCausalLM");
  once();
  options_.activation = DType::kF32;
  once();
  // The same places with other scales: another key in the same file.
  options_.quantization.pow2_scales = true;
  (void)load();
  EXPECT_TRUE(said("is not used: the model's files, its format or this program changed")) << note_;
  options_.shard = {1, 2, false};
  options_.quantization = *read_quantization("wint8", "Qwen3MoeForCausalLM");
  const auto second = load_model(options_, testing::cpu());
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(files().size(), ++count);
}

TEST_F(LoadCacheTest, AnotherModelOfTheSameShapeIsNotTaken) {
  (void)load();
  const fs::path weights = folder_.file("model.safetensors");
  const auto time = fs::last_write_time(weights);
  testing::write_random_model(folder_.path(), testing::small_config("Qwen3MoeForCausalLM", 4, 2), 2);
  fs::last_write_time(weights, time);
  options_.load_cache = false;
  const std::vector<float> want = load();
  options_.load_cache = true;
  EXPECT_EQ(load(), want);
  EXPECT_TRUE(said("is not used: the model's files")) << note_;
  EXPECT_EQ(load(), want);
  EXPECT_TRUE(said("were taken from")) << note_;
  options_.overrides = {{"rms_norm_eps", 0.5}};
  (void)load();
  EXPECT_TRUE(said("is not used: the model's files")) << note_;
}

TEST_F(LoadCacheTest, DamageIsSeenAndMended) {
  const std::vector<float> want = load();
  ASSERT_EQ(files().size(), 1u);
  const std::string path = files()[0], whole = testing::read_file(path);
  const auto spoiled = [&](size_t at) {
    std::string s = whole;
    s[at] = static_cast<char>(s[at] ^ 16);
    return s;
  };
  const std::pair<std::string, const char*> rows[] = {
      {spoiled(whole.size() - 1), "its weights have another sum"},
      {spoiled(whole.size() / 2), "its weights have another sum"},
      {spoiled(0), "it does not begin as such a file"},
      {spoiled(8), "another version wrote it"},
      {spoiled(20), "its length is another than it says"},
      {spoiled(23), "a length is too large"},
      {spoiled(15), "a length is too large"},
      {spoiled(40), "its head has another sum"},
      {whole.substr(0, whole.size() - 1), "its length is another than it says"},
      {whole + "x", "its length is another than it says"},
      {whole.substr(0, 5000), "its length is another than it says"},
      {whole.substr(0, 20), "it does not begin as such a file"},
      {"", "it does not begin as such a file"}};
  for (const auto& [bytes, message] : rows) {
    testing::write_file(path, bytes);
    EXPECT_EQ(load(), want);
    EXPECT_TRUE(said(message)) << message << "\n" << note_;
    EXPECT_EQ(testing::read_file(path), whole) << message;
  }
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(load(), want);
  EXPECT_TRUE(said("is not a regular file")) << note_;
}

TEST_F(LoadCacheTest, WhereItCannotBeKeptTheModelRuns) {
  options_.load_cache = false;
  const std::vector<float> want = load();
  options_.load_cache = true;
  // A file system that takes no more.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 5000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::vector<float> full = load();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(full, want);
  EXPECT_TRUE(said("quantized weights are not kept for the next start: ")) << note_;
  EXPECT_TRUE(files().empty());
  // Another process writes at the moment.
  EXPECT_EQ(load(), want);
  const std::string path = files()[0];
  fs::rename(path, path + ".partial");
  const int other = open((path + ".partial").c_str(), O_RDWR);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  EXPECT_EQ(load(), want);
  EXPECT_TRUE(said("another process writes them")) << note_;
  close(other);
  // One that was killed has left its part.
  EXPECT_EQ(load(), want);
  EXPECT_TRUE(said("are kept")) << note_;
  EXPECT_EQ(files(), std::vector<std::string>{path});
  // No place for the folder.
  fs::remove_all(folder_.file("tern_load_cache"));
  testing::write_file(folder_.file("tern_load_cache"), "");
  EXPECT_EQ(load(), want);
  EXPECT_TRUE(said("quantized weights are not kept for the next start: ")) << note_;
}

}  // namespace
}  // namespace tern::model
