// Files that become shorter while they are mapped: an error, not SIGBUS.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <numeric>
#include <thread>

#include "model/files/checkpoint.h"
#include "model/tests/support.h"

namespace tern::model {
namespace {

using testing::TempFolder;

size_t sum_of(const MappedFile& file) {
  return std::accumulate(file.data(), file.data() + file.size(), size_t{0},
                         [](size_t a, char c) { return a + static_cast<unsigned char>(c); });
}

TEST(Truncation, AMappedFileThatWasCutReadsAsZerosAndIsAnError) {
  TempFolder folder;
  const std::string path = folder.file("x");
  // To nothing, to whole pages, into a page (whose rest the system fills with zeros, without a fault).
  for (const size_t left : {0u, 8192u, 20u, 40000u}) {
    testing::write_file(path, std::string(50000, '\1'));
    const auto file = MappedFile::open(path);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(file->check().ok());
    ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(left)), 0);
    EXPECT_EQ(sum_of(*file), left);
    ASSERT_FALSE(file->check().ok());
    EXPECT_NE(file->check().error().message.find("had 50000 bytes and has " + std::to_string(left) + " now"),
              std::string::npos)
        << file->check().error().message;
    // What was lost stays lost when the file grows again.
    if (left > 8192) continue;
    testing::write_file(path, std::string(50000, '\1'));
    EXPECT_EQ(file->check().error().code, ErrorCode::kIo);
  }
}

TEST(Truncation, AFileThatAnotherTookThePlaceOfIsWhole) {
  TempFolder folder;
  testing::write_file(folder.file("x"), std::string(50000, '\1'));
  const auto file = MappedFile::open(folder.file("x"));
  testing::write_file(folder.file("y"), "short");
  std::filesystem::rename(folder.file("y"), folder.file("x"));
  EXPECT_EQ(sum_of(*file), 50000u);
  EXPECT_TRUE(file->check().ok());
}

TEST(Truncation, OthersFaultsAreNotHidden) {
  TempFolder folder;
  testing::write_file(folder.file("x"), "text");
  const auto file = MappedFile::open(folder.file("x"));  // the handler is there
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  EXPECT_DEATH(raise(SIGBUS), "");  // the sanitizer's own handler reports it and ends the process
#else
  EXPECT_EXIT(raise(SIGBUS), ::testing::KilledBySignal(SIGBUS), "");
#endif
}

TEST(Truncation, GuardsAreTakenAndGivenBackByManyThreads) {
  TempFolder folder;
  std::vector<std::jthread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string path = folder.file(std::to_string(t));
      for (int i = 0; i < 50; ++i) {
        testing::write_file(path, std::string(10000, '\1'));
        const auto file = MappedFile::open(path);
        if (i % 2 == 1) ::truncate(path.c_str(), 0) == 0 || ++wrong;
        if (sum_of(*file) != (i % 2 == 1 ? 0u : 10000u) || file->lost() != (i % 2 == 1)) ++wrong;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong.load(), 0);
}

// Cuts the weights at the first sign of progress.
std::string error_of_cut(const std::string& name, size_t left) {
  TempFolder folder;
  testing::copy_config(testing::golden(name), folder.path());
  const std::string path = folder.file("model.safetensors");
  testing::write_file(path, testing::read_file(testing::golden(name) + "/model.safetensors"));
  LoadOptions o;
  o.path = folder.path();
  o.progress = [&](size_t, size_t) { (void)!::truncate(path.c_str(), static_cast<off_t>(left)); };
  const auto model = load_model(o, testing::cpu());
  return model.ok() ? "" : model.error().message;
}

TEST(Truncation, WeightsThatAreCutWhileLoadingAreAnError) {
  for (const char* name : {"llama3", "qwen3_moe", "deepseek_v3"})
    for (const size_t left : {0u, 4096u, 60000u})
      EXPECT_NE(error_of_cut(name, left).find("model.safetensors was changed while it was read"), std::string::npos)
          << name << " " << left << ": " << error_of_cut(name, left);
}

TEST(Truncation, ALoadedModelNeedsItsFilesNoMore) {
  TempFolder folder;
  testing::copy_config(testing::golden("llama3"), folder.path());
  const std::string path = folder.file("model.safetensors");
  testing::write_file(path, testing::read_file(testing::golden("llama3") + "/model.safetensors"));
  LoadOptions o;
  o.path = folder.path();
  const auto model = load_model(o, testing::cpu());
  ASSERT_TRUE(model.ok());
  const auto ids = testing::some_ids(20, 500);
  const auto want = testing::logits_of(**model, ids);
  ASSERT_EQ(::truncate(path.c_str(), 0), 0);
  EXPECT_EQ(testing::logits_of(**model, ids), want);
}

}  // namespace
}  // namespace tern::model
