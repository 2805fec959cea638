#include "fetch/local_file.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fetch/fetch.h"

namespace tern::fetch {
namespace {

namespace fs = std::filesystem;

class LocalFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tern_fetch_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    top_ = pattern;
    fs::create_directories(top_ / "root/sub");
    fs::create_directories(top_ / "rootother");
    write(top_ / "root/a.png", "inside");
    write(top_ / "root/sub/b c%.png", "deeper");
    write(top_ / "rootother/s.txt", "secret");
    write(top_ / "secret.txt", "secret");
    fs::create_symlink("a.png", top_ / "root/link_in");
    fs::create_symlink("../secret.txt", top_ / "root/link_out");
    fs::create_symlink(top_ / "secret.txt", top_ / "root/link_absolute");
    fs::create_directory_symlink(top_, top_ / "root/folder_out");
    fs::create_directory_symlink("/proc/self/root", top_ / "root/magic");
    fs::create_directory_symlink("root", top_ / "alias");
    ASSERT_EQ(mkfifo((top_ / "root/fifo").c_str(), 0600), 0);
  }
  void TearDown() override { fs::remove_all(top_); }

  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

  std::string read(const std::string& rest, size_t limit = 100, const std::string& root = "root") {
    const auto out = read_local_file("file://" + rest, (top_ / root).string(), limit);
    if (!out.ok()) return out.error().code == ErrorCode::kTooLarge ? "<large>" : "<" + out.error().message + ">";
    return {reinterpret_cast<const char*>(out->data()), out->size()};
  }

  fs::path top_;
  const std::string hidden_ = "<The file is not one that media may be read from.>";
  const std::string malformed_ = "<The URL is malformed.>";
};

TEST_F(LocalFile, BelowTheRootOnly) {
  const std::string top = top_.string();
  EXPECT_EQ(read(top + "/root/a.png"), "inside");
  EXPECT_EQ(read("localhost" + top + "/root/a.png"), "inside");
  EXPECT_EQ(read(top + "/root//sub/./b%20c%25.png"), "deeper");
  EXPECT_EQ(read(top + "/root/sub/b c%25.png"), "deeper");
  EXPECT_EQ(read(top + "/root/sub/../a.png"), "inside");
  EXPECT_EQ(read(top + "/root/link_in"), "inside");
  EXPECT_EQ(read(top + "/alias/a.png", 100, "alias"), "inside");
  EXPECT_EQ(read(top + "/root/a.png", 100, "alias"), "inside");
  for (const char* path :
       {"/secret.txt", "/root/../secret.txt", "/root/%2e%2e/secret.txt", "/root/sub/../../secret.txt", "/root/link_out",
        "/root/link_absolute", "/root/folder_out/secret.txt", "/root/magic/etc/passwd", "/root/missing",
        "/root/a.png/x", "/root/sub", "/root/", "/root", "/rootother/s.txt", "/root/fifo"}) {
    EXPECT_EQ(read(top + path), hidden_) << path;
  }
  EXPECT_EQ(read("/etc/passwd"), hidden_);
  EXPECT_EQ(read("/dev/zero"), hidden_);
  const auto device = read_local_file("file:///dev/zero", "/dev", 100);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(LocalFile, Malformed) {
  const std::string top = top_.string();
  for (const std::string& rest :
       {"otherhost" + top + "/root/a.png", std::string("root/a.png"), std::string(), top + "/root/a.png%00.txt",
        top + "/root/a.png%4", "127.0.0.1" + top + "/root/a.png", "localhost" + std::string()}) {
    EXPECT_EQ(read(rest), malformed_) << rest;
  }
  for (const std::string& url : {"file:" + top + "/root/a.png", "file:/" + top + "/root/a.png"}) {
    EXPECT_FALSE(read_local_file(url, (top_ / "root").string(), 100).ok()) << url;
  }
}

TEST_F(LocalFile, SizesAndPolicy) {
  const std::string url = "FILE://" + top_.string() + "/root/a.png";
  EXPECT_EQ(read(top_.string() + "/root/a.png", 6), "inside");
  EXPECT_EQ(read(top_.string() + "/root/a.png", 5), "<large>");
  FetchPolicy policy;
  EXPECT_FALSE(fetch(url, policy).ok());  // off unless a folder is named
  policy.local_root = (top_ / "root").string() + "/";
  const auto out = fetch(url, policy);
  ASSERT_TRUE(out.ok()) << out.error().message;
  EXPECT_EQ(out->size(), 6u);
  EXPECT_EQ(read("/proc/self/root" + top_.string() + "/root/a.png"), hidden_);
  // A file that says 0 bytes and gives more (as those of /proc) is still held to the limit.
  const auto endless = read_local_file("file:///proc/self/maps", "/proc/self", 100);
  ASSERT_FALSE(endless.ok());
}

}  // namespace
}  // namespace tern::fetch
