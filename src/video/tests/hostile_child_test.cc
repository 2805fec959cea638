// A decoder that crashes, hangs or lies costs one call, and leaves nothing behind.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "video/tests/support.h"

namespace tern::video {
namespace {

std::string outcome(const std::string& how, double wall_seconds = 10) {
  auto options = plain_options();
  options.helper = TERN_FAKE_VIDEO_DECODER;
  options.limits.wall_seconds = wall_seconds;
  std::vector<std::byte> file;
  for (const char c : how) file.push_back(static_cast<std::byte>(c));
  const auto video = read_video(file, options);
  if (video.ok()) return "ok " + std::to_string(video->frames.size());
  return video.error().code == ErrorCode::kCorrupt    ? "corrupt"
         : video.error().code == ErrorCode::kTooLarge ? "large"
                                                      : "other " + video.error().message;
}

int64_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

class HostileChild : public testing::Test {
 protected:
  void SetUp() override { before_ = open_descriptors(); }
  void TearDown() override {
    EXPECT_EQ(open_descriptors(), before_);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
    EXPECT_EQ(errno, ECHILD);
  }
  int64_t before_ = 0;
};

TEST_F(HostileChild, HonestForComparison) { EXPECT_EQ(outcome("honest"), "ok 16"); }

TEST_F(HostileChild, InheritsNothing) {
  EXPECT_EQ(outcome("inherit"), "ok 16");
  EXPECT_EQ(outcome("write"), "ok 16");
}

TEST_F(HostileChild, DiesEarlyOrLate) {
  for (const char* how : {"crash", "leave", "cut", "part"}) EXPECT_EQ(outcome(how), "corrupt") << how;
}

TEST_F(HostileChild, Hangs) {
  for (const char* how : {"hang", "stop", "trickle"}) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(outcome(how, 0.4), "large") << how;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << how;
  }
  EXPECT_EQ(outcome("spin", 60), "large");
  EXPECT_EQ(outcome("linger"), "ok 16");  // said all it had to say
}

TEST_F(HostileChild, LiesAboutTheVideo) {
  for (const char* how : {"magic", "verdict", "width", "negative", "none", "many", "nan", "infinite", "rotation"}) {
    EXPECT_EQ(outcome(how), "corrupt") << how;
  }
  for (const char* how : {"pixels", "slow"}) EXPECT_EQ(outcome(how), "large") << how;
}

TEST_F(HostileChild, LiesAboutFrames) {
  for (const char* how : {"entry", "twice", "index", "below", "bytes", "head", "missing", "skip", "endless"}) {
    EXPECT_EQ(outcome(how), "corrupt") << how;
  }
}

}  // namespace
}  // namespace tern::video
