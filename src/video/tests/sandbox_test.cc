// What the real decoder has given up by the time it has looked at a file.
#include <gtest/gtest.h>

#include "video/child.h"
#include "video/protocol.h"
#include "video/tests/support.h"

namespace tern::video {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The words of the line that begins with `name`.
std::vector<std::string> line_of(const std::string& text, const std::string& name) {
  const size_t at = text.find("\n" + name);
  if (at == std::string::npos) return {};
  std::istringstream words(text.substr(at + 1 + name.size(), text.find('\n', at + 1) - at - 1 - name.size()));
  return {std::istream_iterator<std::string>(words), {}};
}

TEST(Sandbox, IsOnBeforeTheFirstAnswer) {
  const auto file = read_file(data_dir() / "h264.mp4");
  auto child = Child::start(TERN_VIDEO_DECODER, file, Child::Clock::now() + std::chrono::seconds(30));
  ASSERT_TRUE(child.ok()) << child.error().message;
  video::Setup setup;
  setup.cpu_seconds = 7;
  setup.max_pixels = 1 << 20;
  setup.max_packets = 1000;
  setup.memory_bytes = size_t{1} << 30;
  ASSERT_TRUE(child->send(&setup, sizeof setup).ok());
  Facts facts;
  ASSERT_TRUE(child->receive(&facts, sizeof facts).ok());
  ASSERT_EQ(facts.verdict, Verdict::kGood);

  const std::string folder = "/proc/" + std::to_string(child->pid());
  const std::string status = text_of(folder + "/status"), limits = text_of(folder + "/limits");
  EXPECT_EQ(line_of(status, "Seccomp:"), std::vector<std::string>{"2"});
  EXPECT_EQ(line_of(status, "NoNewPrivs:"), std::vector<std::string>{"1"});
  EXPECT_EQ(line_of(status, "Threads:"), std::vector<std::string>{"1"});
  EXPECT_EQ(line_of(limits, "Max cpu time"), (std::vector<std::string>{"7", "8", "seconds"}));
  EXPECT_EQ(line_of(limits, "Max address space"), (std::vector<std::string>{"1073741824", "1073741824", "bytes"}));
  EXPECT_EQ(line_of(limits, "Max open files"), (std::vector<std::string>{"0", "0", "files"}));
  EXPECT_EQ(line_of(limits, "Max file size"), (std::vector<std::string>{"0", "0", "bytes"}));
  EXPECT_EQ(line_of(limits, "Max processes"), (std::vector<std::string>{"0", "0", "processes"}));
  EXPECT_EQ(line_of(limits, "Max core file size"), (std::vector<std::string>{"0", "0", "bytes"}));
}

}  // namespace
}  // namespace tern::video
