#include "app/start/log_files.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

#include "app/ranks/progress.h"

namespace tern::app {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class LogFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("tern_log_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    settings_.folder = folder_ / "deep";
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
  LogSettings settings_;
};

TEST_F(LogFilesTest, LinesGoToTheFileOfTheirChannel) {
  {
    LogFiles log(settings_);
    TERN_INFO("Reset block num, the total_block_num:{}, prefill_kvcache_block_num:{}", 7, 5);
    TERN_LOG(LogChannel::kWorker, LogLevel::kError, "two\nlines");
    TERN_DEBUG("not at this level");
    log.flush();
    EXPECT_EQ(log.dropped(), 0u);
    const fs::path link = fs::path(settings_.folder) / "fastdeploy.log";
    ASSERT_TRUE(fs::is_symlink(link));
    EXPECT_TRUE(std::regex_match(fs::read_symlink(link).string(), std::regex(R"(fastdeploy\.log\.\d{4}-\d\d-\d\d)")));
    const std::regex shape(
        R"(INFO +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \d+ +log_files_test\.cc\[line:\d+\] Reset block num, the total_block_num:7, prefill_kvcache_block_num:5\n)");
    EXPECT_TRUE(std::regex_match(contents(link), shape)) << contents(link);
  }
  const std::string worker = contents(fs::path(settings_.folder) / "workerlog.0");
  EXPECT_TRUE(worker.starts_with("ERROR "));
  EXPECT_NE(worker.find("two lines\n"), std::string::npos);
}

TEST_F(LogFilesTest, FilesTurnAtMidnightAndOldOnesGo) {
  fs::create_directories(folder_);
  std::tm day{};
  day.tm_year = 124, day.tm_mon = 1, day.tm_mday = 28, day.tm_hour = 12, day.tm_isdst = -1;
  const std::time_t noon = std::mktime(&day);
  constexpr std::time_t kDay = 86400;
  std::ofstream(folder_ / "x.log.notes") << "kept";
  std::ofstream(folder_ / "xx.log.2020-01-01") << "kept";
  DailyFile file(folder_, "x.log", 2);
  for (int i = 0; i < 5; ++i) file.write(std::to_string(i) + "\n", noon + i * kDay);
  EXPECT_EQ(file.failed(), 0u);
  EXPECT_FALSE(fs::exists(folder_ / "x.log.2024-02-28"));
  EXPECT_FALSE(fs::exists(folder_ / "x.log.2024-02-29"));
  for (const char* name :
       {"x.log.2024-03-01", "x.log.2024-03-02", "x.log.2024-03-03", "x.log.notes", "xx.log.2020-01-01"}) {
    EXPECT_TRUE(fs::exists(folder_ / name)) << name;
  }
  EXPECT_EQ(fs::read_symlink(folder_ / "x.log"), "x.log.2024-03-03");
  EXPECT_EQ(contents(folder_ / "x.log"), "4\n");
}

TEST_F(LogFilesTest, AFullDiskDropsLinesAndNothingElse) {
  // A file size limit is a disk that is full for this process.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  {
    LogFiles log(settings_);
    for (int i = 0; i < 500; ++i) TERN_INFO("a line of some length, number {}", i);
    log.flush();
    EXPECT_GT(log.dropped(), 300u);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    TERN_INFO("room again");
    log.flush();
    const std::string text = contents(fs::path(settings_.folder) / "fastdeploy.log");
    EXPECT_TRUE(std::regex_search(text, std::regex("\n[0-9]+ lines are missing here: [^\n]*\n[^\n]*room again\n$")))
        << text.substr(text.size() > 400 ? text.size() - 400 : 0);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_TRUE(std::regex_search(line, std::regex("number [0-9]+$|room again$|lines are missing here"))) << line;
    }
  }
  signal(SIGXFSZ, SIG_DFL);
}

TEST_F(LogFilesTest, AFolderThatCannotBeMadeIsAWarning) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "deep") << "a file";
  LogFiles log(settings_);
  TERN_INFO("nowhere to go");
  log.flush();
  EXPECT_EQ(log.dropped(), 0u);
}

TEST_F(LogFilesTest, ManyThreadsMayLog) {
  {
    LogFiles log(settings_);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < 500; ++i) TERN_INFO("thread {} line {}", t, i);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const std::string text = contents(fs::path(settings_.folder) / "fastdeploy.log");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2000);
}

TEST(LogLine, LongMessagesAreCutAndControlCharactersReplaced) {
  const std::string line = log_line(LogLevel::kWarning, {0, 5'000'000}, 42, "src/a/b.cc", 9, "abc\x1b[31mdef", 5);
  EXPECT_TRUE(line.ends_with(",005 42    b.cc[line:9] abc [...\n")) << line;
  EXPECT_TRUE(line.starts_with("WARNING  "));
}

TEST(Progress, IsSilentForTwoSeconds) {
  Progress lines(false);
  constexpr int64_t kSecond = 1'000'000'000;
  EXPECT_EQ(lines.step(1, 10, kSecond), "");
  EXPECT_EQ(lines.step(5'000'000'000, 10'000'000'000, 3 * kSecond), "Loading weights: 50 %, 5.0 of 10.0 GB, 3 s\n");
  EXPECT_EQ(lines.step(6'000'000'000, 10'000'000'000, 4 * kSecond), "");
  EXPECT_EQ(lines.step(10'000'000'000, 10'000'000'000, 5 * kSecond), "Loading weights: 100 %, 10.0 of 10.0 GB, 5 s\n");
  EXPECT_EQ(progress_bar(1, 4, 8), "[##......]  25 %  0.0 / 0.0 GB");
  Progress bar(true);
  EXPECT_EQ(bar.step(1, 4, 3 * kSecond).substr(0, 20), "\rLoading weights [##");
}

}  // namespace
}  // namespace tern::app
