#include "base/line_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>

namespace tern {
namespace {

std::string read_all(int fd) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string text;
  std::array<char, 65536> buffer;
  for (ssize_t n; (n = ::read(fd, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(n));
  return text;
}

TEST(LineWriter, WritesInOrder) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  {
    LineWriter writer(pipe[1], 1 << 20, "test");
    for (int i = 0; i < 100; ++i) writer.write(std::to_string(i) + "\n");
    EXPECT_TRUE(writer.flush(10));
    EXPECT_EQ(writer.dropped(), 0u);
  }
  std::string wanted;
  for (int i = 0; i < 100; ++i) wanted += std::to_string(i) + "\n";
  EXPECT_EQ(read_all(pipe[0]), wanted);
  ::close(pipe[0]), ::close(pipe[1]);
}

// Nobody reads the pipe: writers go on at once, what is too much is counted, and later a line says so.
TEST(LineWriter, NeverWaitsForAReader) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  {
    LineWriter writer(pipe[1], 64 << 10, "test");
    const std::string line(100, 'x');
    for (int i = 0; i < 5000; ++i) writer.write(line + "\n");  // half a megabyte; pipe and queue take 128 KiB
    EXPECT_GT(writer.dropped(), 3000u);
    EXPECT_FALSE(writer.flush(0.01));
    std::string text;
    for (int i = 0; i < 1000 && text.find("lines were dropped") == std::string::npos; ++i) {
      text += read_all(pipe[0]);
      if (i == 0) writer.write("later\n");
      writer.flush(0.01);
    }
    EXPECT_NE(text.find("lines were dropped"), std::string::npos);
  }
  ::close(pipe[0]), ::close(pipe[1]);
}

TEST(LineWriter, EndsThoughNobodyReads) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  {
    LineWriter writer(pipe[1], 1 << 20, "test");
    for (int i = 0; i < 5000; ++i) writer.write(std::string(100, 'x') + "\n");
  }
  ::close(pipe[0]), ::close(pipe[1]);
}

}  // namespace
}  // namespace tern
