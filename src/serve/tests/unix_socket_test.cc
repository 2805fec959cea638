#include "serve/net/unix_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace tern::serve::net {
namespace {

namespace fs = std::filesystem;

class UnixSocket : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tern-socket-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    path_ = (folder_ / "s").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  static bool connects(const std::string& path) {
    const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(UnixSocket, IsForItsOwnerAloneAndLeavesNoFile) {
  {
    const auto made = listen_unix(path_);
    ASSERT_TRUE(made.ok()) << made.error().message;
    struct stat found {};
    ASSERT_EQ(::lstat(path_.c_str(), &found), 0);
    EXPECT_TRUE(S_ISSOCK(found.st_mode));
    EXPECT_EQ(found.st_mode & 0777, 0600);
    EXPECT_TRUE(connects(path_));
  }
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(UnixSocket, ReplacesOneThatNobodyListensOn) {
  {
    const Fd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ASSERT_TRUE(fs::exists(path_));
  EXPECT_TRUE(listen_unix(path_).ok());
}

TEST_F(UnixSocket, KeepsOffAnotherServersSocket) {
  const auto first = listen_unix(path_);
  ASSERT_TRUE(first.ok());
  const auto second = listen_unix(path_);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("another server listens there"), std::string::npos);
  EXPECT_TRUE(connects(path_));
}

TEST_F(UnixSocket, LeavesAFileThatTookItsPlace) {
  {
    const auto made = listen_unix(path_);
    ASSERT_TRUE(made.ok());
    fs::remove(path_);
    std::ofstream(path_) << "other";
  }
  EXPECT_TRUE(fs::exists(path_));
}

TEST_F(UnixSocket, NamesWhatIsWrong) {
  std::ofstream(path_) << "a file";
  EXPECT_NE(listen_unix(path_).error().message.find("no socket stands there"), std::string::npos);
  EXPECT_TRUE(fs::exists(path_));
  EXPECT_NE(listen_unix(std::string(108, 'a')).error().message.find("1 to 107 bytes"), std::string::npos);
  EXPECT_FALSE(listen_unix("").ok());
  EXPECT_NE(listen_unix((folder_ / "none" / "s").string()).error().message.find("No such file"), std::string::npos);
}

}  // namespace
}  // namespace tern::serve::net
