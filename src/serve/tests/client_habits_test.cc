// What clients, proxies and frameworks do around a request, within what the parser lets pass: slashes, absolute
// targets, byte order marks, half-closed connections, both families of localhost.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "serve/net/fd.h"
#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

using namespace std::chrono_literals;

constexpr const char* kShort = R"({"prompt":[5,6,7],"max_tokens":2})";
constexpr const char* kLong = R"({"prompt":[5,6,7],"max_tokens":500,"ignore_eos":true})";

std::string post_bytes(std::string_view body, std::string_view version = "1.1") {
  return fmt::format("POST /v1/completions HTTP/{}\r\nHost: t\r\nContent-Length: {}\r\n\r\n{}", version, body.size(),
                     body);
}

TEST(Habits, ATrailingSlashIsRedirected) {
  ServeConfig config = test_config();
  config.api_keys = {"k"};
  TestServer server(config);
  const char* key = "Authorization: Bearer k\r\n";
  const auto location = [&](std::string_view target, std::string_view headers) {
    Client c(server.port());
    c.send(fmt::format("GET {} HTTP/1.1\r\n{}{}\r\n", target, key, headers));
    const auto reply = c.receive();
    return reply.status == 307 ? reply.header("location") : std::to_string(reply.status);
  };
  EXPECT_EQ(location("/v1/models/", "Host: a.example:8000\r\n"), "http://a.example:8000/v1/models");
  EXPECT_EQ(location("/v1/%6dodels/?x=1&y=%2f", "Host: [::1]\r\n"), "http://[::1]/v1/models?x=1&y=%2f");
  EXPECT_EQ(location("http://b/metrics/", "Host: a\r\n"), "http://b/metrics");
  EXPECT_EQ(location("/health/", "Host: a\r\nX-Forwarded-Proto: https\r\n"), "https://a/health");
  EXPECT_EQ(location("/health/", "Host: a/b@c\r\n"), "/health") << "no host that could change the URL";
  for (const char* odd : {"/nothing/", "/v1/", "/v1/models//", "//v1/models/", "/v1/../v1/models/", "/v1/models%2f"})
    EXPECT_EQ(location(odd, "Host: a\r\n"), "404") << odd;
  EXPECT_EQ(location("/", "Host: a\r\n"), "200") << "the page";

  const auto post = Client(server.port()).post("/v1/completions/", kShort, key);
  EXPECT_EQ(post.status, 307) << "which keeps the method and the body";
  EXPECT_EQ(post.header("location"), "http://test/v1/completions");
  EXPECT_EQ(post.body, "");
  EXPECT_EQ(Client(server.port()).get("/v1/models/").status, 401) << "the key comes first";
}

TEST(Habits, TheAbsoluteFormIsTheSameResource) {
  ServeConfig config = test_config();
  config.api_keys = {"k"};
  TestServer server(config);
  const char* key = "Authorization: Bearer k\r\n";
  EXPECT_EQ(Client(server.port()).get("http://t/health").status, 200);
  EXPECT_EQ(Client(server.port()).get("http://t/v1/models").status, 401);
  EXPECT_EQ(Client(server.port()).get("http://t/v1/models", key).status, 200);
  EXPECT_EQ(Client(server.port()).post("HTTP://t:1/v1/completions", kShort, key).status, 200);
  EXPECT_EQ(Client(server.port()).get("http://t/health/../v1/models").status, 401);
  EXPECT_EQ(Client(server.port()).get("http://t/health/../v1/models", key).status, 404);
}

TEST(Habits, AByteOrderMarkBeforeJson) {
  TestServer server;
  Client c(server.port());
  EXPECT_EQ(c.post("/v1/completions", std::string("\xef\xbb\xbf") + kShort).status, 200);
  EXPECT_EQ(c.post("/tokenize", "\xef\xbb\xbf{\"prompt\":\"a\"}").status, 200);
  EXPECT_EQ(c.post("/v1/completions", std::string("\xef\xbb\xbf\xef\xbb\xbf") + kShort).status, 400) << "one";
  EXPECT_EQ(c.post("/v1/completions", std::string(" \xef\xbb\xbf") + kShort).status, 400) << "at the very front";
  EXPECT_EQ(c.post("/v1/completions", "\xef\xbb\xbf").status, 400);
}

TEST(Habits, AnEmptyLineInTwoPackets) {
  TestServer server;
  Client c(server.port());
  for (int i = 0; i < 3; ++i) {
    for (const char* piece : {"\r", "\n", "GET /version HTTP/1.1\r\nHost: t\r", "\n\r", "\n"}) {
      c.send(piece);
      std::this_thread::sleep_for(2ms);  // a packet of its own; the answer does not depend on it
    }
    EXPECT_EQ(c.receive().status, 200);
  }
}

TEST(HalfClosed, GetsItsAnswer) {
  engine::EchoConfig slow = test_engine_config();
  slow.step_ns = 20'000'000;
  TestServer server(test_config(), slow);
  const char* body = R"({"prompt":[5,6,7],"max_tokens":10,"ignore_eos":true})";
  {
    Client c(server.port());
    c.send(post_bytes(body));
    c.shut_write();
    auto reply = c.receive();
    while (reply.status == 100) reply = c.receive();  // interim responses, which clients of HTTP/1.1 skip
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.json().as_object().at("usage").at("completion_tokens").as_int64(), 10);
    EXPECT_EQ(reply.header("connection"), "close");
    EXPECT_TRUE(c.closed_by_peer(3));
  }
  {
    Client c(server.port());
    c.send(post_bytes(body, "1.0"));
    c.shut_write();
    EXPECT_EQ(c.receive().status, 200) << "and an old client nothing else";
  }
  {
    Client c(server.port());
    c.send(post_bytes(R"({"prompt":[5,6,7],"max_tokens":10,"ignore_eos":true,"stream":true})"));
    c.shut_write();
    auto reply = c.receive();
    while (reply.status == 100) reply = c.receive();
    EXPECT_EQ(reply.events().back(), "[DONE]");
  }
  {
    Client c(server.port());  // several requests one after the other, the last one cut off
    c.send(post_bytes(body) + post_bytes(kShort) + "GET /version HT");
    c.shut_write();
    for (int i = 0; i < 2; ++i) {
      auto reply = c.receive();
      while (reply.status == 100) reply = c.receive();
      EXPECT_EQ(reply.status, 200) << i;
    }
    EXPECT_TRUE(c.closed_by_peer(3));
  }
  Client cut(server.port());
  cut.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n{");
  cut.shut_write();
  EXPECT_TRUE(cut.closed_by_peer(3)) << "half a request has no answer";
  EXPECT_TRUE(server.wait_idle());
}

TEST(HalfClosed, AClientThatHasLeftIsStillNoticed) {
  engine::EchoConfig slow = test_engine_config();
  slow.step_ns = 20'000'000;
  TestServer server(test_config(), slow);
  for (const bool stream : {false, true}) {
    Client c(server.port());
    std::string body = kLong;  // ten seconds
    if (stream) body.insert(1, "\"stream\":true,");
    c.send(post_bytes(body));
    EXPECT_TRUE(server.wait_running(1));
    c.close();
    EXPECT_TRUE(server.wait_idle()) << "its request is aborted long before its end";
  }
  Client late(server.port());  // first half-closed, then gone
  late.send(post_bytes(kLong));
  late.shut_write();
  EXPECT_TRUE(server.wait_running(1));
  EXPECT_EQ(late.receive().status, 100);
  late.close();
  EXPECT_TRUE(server.wait_idle());
}

bool connects(int family, int port) {
  const net::Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (family == AF_INET) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(static_cast<uint16_t>(port));
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return ::connect(fd.get(), reinterpret_cast<sockaddr*>(&a), sizeof a) == 0;
  }
  sockaddr_in6 a{};
  a.sin6_family = AF_INET6;
  a.sin6_port = htons(static_cast<uint16_t>(port));
  a.sin6_addr = in6addr_loopback;
  return ::connect(fd.get(), reinterpret_cast<sockaddr*>(&a), sizeof a) == 0;
}

TEST(Listen, LocalhostIsBothFamilies) {
  const bool has_v6 = net::listen_on("::1", 0).ok();
  const auto listeners = net::listen_on("localhost", 0);
  ASSERT_TRUE(listeners.ok()) << listeners.error().message;
  EXPECT_EQ(listeners->size(), has_v6 ? 2u : 1u);
  const int port = listeners->front().port;
  for (const auto& listener : *listeners) EXPECT_EQ(listener.port, port);
  EXPECT_TRUE(connects(AF_INET, port));
  EXPECT_EQ(connects(AF_INET6, port), has_v6);
  const auto again = net::listen_on("localhost", port);
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find("already in use"), std::string::npos);
  if (!has_v6) GTEST_SKIP() << "no IPv6 on this machine";
  {  // taken in one family only is taken
    const auto one = net::listen_on("::1", 0);
    EXPECT_FALSE(net::listen_on("localhost", one->front().port).ok());
  }
  ServeConfig config = test_config();
  config.host = "localhost";
  TestServer server(config);
  EXPECT_EQ(Client(server.port()).get("/health").status, 200);
  EXPECT_TRUE(connects(AF_INET6, server.port()));
}

TEST(Listen, OneAddressIsOneListener) {
  EXPECT_EQ(net::listen_on("127.0.0.1", 0)->size(), 1u);
  EXPECT_EQ(net::listen_on("0.0.0.0", 0)->size(), 1u);
  EXPECT_FALSE(net::listen_on("192.0.2.1", 0).ok()) << "not an address of this machine";
}

}  // namespace
}  // namespace tern::serve::testing
