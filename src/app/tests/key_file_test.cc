// The file of API keys: its lines, its limits, its mode.
#include "app/access/key_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tern::app {
namespace {

using Keys = std::vector<std::string>;

std::string refusal(std::string_view text) {
  const auto keys = parse_keys(text);
  return keys.ok() ? "" : keys.error().message;
}

TEST(KeyFile, LinesCommentsAndWhiteSpace) {
  const auto keys = parse_keys("# team\nsk-one\n\n  sk-two\t# second\r\n #sk-three\nsk#four");
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  EXPECT_EQ(*keys, (Keys{"sk-one", "sk-two", "sk#four"}));
}

TEST(KeyFile, WhatIsNoKeyIsNamedByItsLineAlone) {
  for (const char* text : {"", "\n\n", "# only this\n", " \t\r\n"}) EXPECT_EQ(refusal(text), "it holds no key");
  for (const std::string& text : {std::string("good\nsecret key\n"), std::string("good\nschl\xc3\xbcssel\n"),
                                  std::string("good\nse\0cret\n", 13)}) {
    EXPECT_EQ(refusal(text), "line 2: a key has printable ASCII characters alone, and no white space");
  }
}

TEST(KeyFile, Limits) {
  const std::string longest(kLongestKey, 'k');
  EXPECT_EQ(refusal(longest + "\n"), "");
  EXPECT_EQ(refusal("\n" + longest + "k"), "line 2: a key has at most 1024 bytes");
  std::string many;
  for (size_t i = 0; i < kMostKeys; ++i) many += fmt::format("key-{}\n", i);
  EXPECT_EQ(refusal(many), "");
  EXPECT_EQ(refusal(many + "one-more"), "line 4097: a file has at most 4096 keys");
}

class KeyFileOnDisk : public testing::Test {
 protected:
  KeyFileOnDisk() {
    std::filesystem::create_directories(folder_);
    std::ofstream(path_) << "key\n";
    ::chmod(path_.c_str(), 0600);
  }
  ~KeyFileOnDisk() override { std::filesystem::remove_all(folder_); }
  std::string refusal_of(const std::string& path) {
    const auto file = read_key_file(path);
    return file.ok() ? "" : file.error().message;
  }
  const std::string folder_ =
      fmt::format("{}/tern-keys-{}", std::filesystem::temp_directory_path().string(), ::getpid());
  const std::string path_ = folder_ + "/keys";
};

TEST_F(KeyFileOnDisk, ItsModeIsLookedAt) {
  auto file = read_key_file(path_);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->keys, Keys{"key"});
  EXPECT_EQ(file->warning, "");
  ::chmod(path_.c_str(), 0644);
  file = read_key_file(path_);
  ASSERT_TRUE(file.ok());
  EXPECT_NE(file->warning.find("(mode 0644)"), std::string::npos) << file->warning;
}

TEST_F(KeyFileOnDisk, WhatCannotBeReadIsNamedAndNeverWaitedFor) {
  EXPECT_EQ(refusal_of(folder_ + "/none"), "--api-key-file " + folder_ + "/none: No such file or directory");
  EXPECT_NE(refusal_of(folder_).find("it is no regular file"), std::string::npos);
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(refusal_of(pipe).find("it is no regular file"), std::string::npos);
  std::ofstream(path_) << std::string((size_t{1} << 20) + 1, '\n');
  EXPECT_NE(refusal_of(path_).find("it has more than a megabyte"), std::string::npos);
  std::ofstream(path_) << "two words\n";
  EXPECT_EQ(refusal_of(path_),
            "--api-key-file " + path_ + ": line 1: a key has printable ASCII characters alone, and no white space");
}

}  // namespace
}  // namespace tern::app
