// Sessions over a pair of sockets; certificates are made by the openssl command.
#include "tls/session.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tern::tls {
namespace {

using Outcome = Session::Outcome;

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A folder with cert.pem and key.pem for 127.0.0.1.
class Sessions : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tern-tls-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    const std::string command = fmt::format(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=t -addext "
        "subjectAltName=IP:127.0.0.1 -keyout {0}/key.pem -out {0}/cert.pem >{0}/log 2>&1",
        folder_);
    if (std::system(command.c_str()) != 0) GTEST_SKIP() << "no openssl to make a certificate with";
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends_), 0);
    ServerPems pems = {.certificate_name = "cert.pem", .certificate = text_of(folder_ + "/cert.pem")};
    pems.key_name = "key.pem";
    pems.key = text_of(folder_ + "/key.pem");
    std::string warning;
    auto made = Context::server(pems, warning);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(warning, "");
    server_context_ = *made;
    made = Context::client(folder_ + "/cert.pem");
    ASSERT_TRUE(made.ok()) << made.error().message;
    client_context_ = *made;
  }
  void TearDown() override {
    server_.reset();
    client_.reset();
    for (const int end : ends_) ::close(end);
    std::filesystem::remove_all(folder_);
  }

  // Both sides in turns; false: one of them has failed.
  bool shake_hands(const std::string& host) {
    server_ = Session::accept(*server_context_, ends_[0]);
    client_ = Session::connect(*client_context_, ends_[1], host);
    while (!server_->established() || !client_->established()) {
      for (Session* side : {client_.get(), server_.get()}) {
        if (!side->established() && side->shake_hands() == Outcome::kFailed) return false;
      }
    }
    return true;
  }

  std::string folder_;
  int ends_[2] = {-1, -1};
  std::shared_ptr<const Context> server_context_, client_context_;
  std::unique_ptr<Session> server_, client_;
};

TEST_F(Sessions, BytesGoBothWaysAndTheEndIsSaid) {
  ASSERT_TRUE(shake_hands("127.0.0.1"));
  char buffer[1 << 16];
  EXPECT_EQ(client_->write("hello").bytes, 5u);
  auto got = server_->read(buffer, sizeof buffer);
  EXPECT_EQ(std::string(buffer, got.bytes), "hello");
  EXPECT_EQ(server_->read(buffer, sizeof buffer).outcome, Outcome::kNeedsRead);
  EXPECT_EQ(server_->write("world").bytes, 5u);
  do got = client_->read(buffer, sizeof buffer);
  while (got.outcome == Outcome::kMoved && got.bytes == 0);  // the ticket comes first
  EXPECT_EQ(std::string(buffer, got.bytes), "world");
  client_->say_end();
  EXPECT_EQ(server_->read(buffer, sizeof buffer).outcome, Outcome::kEnd);
  EXPECT_EQ(server_->write("still").bytes, 5u);  // only one side has ended
}

TEST_F(Sessions, WhatAFullSocketDoesNotTakeGoesOnLaterFromAnotherPlace) {
  ASSERT_TRUE(shake_hands("127.0.0.1"));
  std::string out;
  for (size_t i = 0; out.size() < (4u << 20); ++i) out += std::to_string(i) + ' ';
  std::string in, buffer(1 << 16, '\0');
  size_t sent = 0, waits = 0;
  while (in.size() < out.size()) {
    while (sent < out.size()) {
      const std::string moved = out.substr(sent);  // other memory at each try
      const auto put = server_->write(moved);
      if (put.outcome == Outcome::kNeedsRoom) {
        ++waits;
        break;
      }
      ASSERT_EQ(put.outcome, Outcome::kMoved);
      sent += put.bytes;
    }
    while (true) {
      const auto got = client_->read(buffer.data(), buffer.size());
      if (got.outcome == Outcome::kNeedsRead) break;
      ASSERT_EQ(got.outcome, Outcome::kMoved);
      in.append(buffer, 0, got.bytes);
    }
  }
  EXPECT_GT(waits, 0u);
  EXPECT_EQ(in, out);
}

TEST_F(Sessions, AConnectionThatIsCutHasNoEnd) {
  ASSERT_TRUE(shake_hands("127.0.0.1"));
  ::shutdown(ends_[1], SHUT_WR);
  char buffer[1 << 16];
  EXPECT_EQ(server_->read(buffer, sizeof buffer).outcome, Outcome::kFailed);
  EXPECT_EQ(server_->read(buffer, sizeof buffer).outcome, Outcome::kFailed);
  EXPECT_EQ(server_->write("x").outcome, Outcome::kFailed);
  server_->say_end();  // says nothing, and does no harm
}

TEST_F(Sessions, TheNameOfTheOtherSideIsChecked) {
  EXPECT_FALSE(shake_hands("localhost"));
  EXPECT_NE(client_->why().find("verify failed"), std::string::npos) << client_->why();
}

TEST_F(Sessions, HttpWithoutTlsIsKnown) {
  server_ = Session::accept(*server_context_, ends_[0]);
  ASSERT_GT(::send(ends_[1], "GET / HTTP/1.1\r\n\r\n", 18, 0), 0);
  EXPECT_EQ(server_->shake_hands(), Outcome::kFailed);
  EXPECT_TRUE(server_->plain_http());
}

}  // namespace
}  // namespace tern::tls
