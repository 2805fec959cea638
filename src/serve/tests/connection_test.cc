// What happens on connections: pipelining, HEAD and OPTIONS, slow and vanished clients, limits.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "serve/tests/support.h"
#include "serve/worker/connection.h"

namespace tern::serve::testing {
namespace {

using namespace std::chrono_literals;

constexpr const char* kEndless = R"({"prompt":[5,6,7],"max_tokens":500,"stream":true,"ignore_eos":true})";
constexpr const char* kShort = R"({"prompt":[5,6,7],"max_tokens":2})";

engine::EchoConfig slow_engine(int64_t step_ns = 20'000'000) {
  engine::EchoConfig config = test_engine_config();
  config.step_ns = step_ns;
  return config;
}

std::string post_bytes(std::string_view path, std::string_view body, std::string_view more = {}) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}",
                     path, body.size(), more, body);
}

TEST(Connection, PipelinedRequestsAreAnsweredInOrder) {
  TestServer server;
  Client c(server.port());
  std::string bytes;
  for (int i = 1; i <= 5; ++i) {
    bytes += post_bytes("/v1/completions", fmt::format(R"({{"prompt":[5,6,7],"max_tokens":{},"ignore_eos":true}})", i));
    bytes += "GET /version HTTP/1.1\r\nHost: t\r\n\r\n";
  }
  c.send(bytes);
  for (int i = 1; i <= 5; ++i) {
    const auto r = c.receive();
    EXPECT_EQ(r.status, 200);
    EXPECT_EQ(r.json().as_object().at("usage").at("completion_tokens").as_int64(), i);
    EXPECT_EQ(c.receive().json().as_object().contains("version"), true);
  }
}

TEST(Connection, HeadOptionsAndVersions) {
  TestServer server;
  Client c(server.port());
  const auto head = c.request("HEAD", "/v1/models");
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.header("content-length"), "0");
  const auto options = c.request("OPTIONS", "/v1/models");
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.header("allow"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(c.request("DELETE", "/v1/completions").header("allow"), "POST, OPTIONS");
  EXPECT_EQ(c.get("/health").status, 200);
  Client old(server.port());
  old.send("GET /version HTTP/1.0\r\n\r\n");
  const auto reply = old.receive();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.header("connection"), "close");
  EXPECT_TRUE(old.closed_by_peer(2));
}

TEST(Connection, StreamToAnOldClientEndsWithTheConnection) {
  TestServer server;
  Client c(server.port());
  const std::string body = R"({"prompt":[5,6,7],"stream":true,"max_tokens":2})";
  c.send(fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  const auto reply = c.receive();
  EXPECT_EQ(reply.header("transfer-encoding"), "");
  EXPECT_EQ(reply.events().back(), "[DONE]");
}

TEST(Connection, ChunkedBodyAndContinue) {
  TestServer server;
  Client c(server.port());
  c.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(c.receive().status, 100);
  c.send("c\r\n{\"prompt\":[5\r\n");
  std::this_thread::sleep_for(5ms);  // a packet of its own; the answer does not depend on it
  c.send("13\r\n,6],\"max_tokens\":1}\r\n0\r\n\r\n");
  EXPECT_EQ(c.receive().status, 200);
  EXPECT_EQ(c.get("/health").status, 200);
}

TEST(Connection, BadBytesGetAnAnswerAndTheEnd) {
  TestServer server;
  for (const char* bytes :
       {"NONSENSE\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"}) {
    Client c(server.port());
    c.send(bytes);
    c.send("GET /health HTTP/1.1\r\nHost: t\r\n\r\n");  // must not be taken for a second request
    const auto r = c.receive();
    EXPECT_EQ(r.status, 400) << bytes;
    EXPECT_EQ(r.header("connection"), "close");
    EXPECT_EQ(r.json().as_object().at("error").at("type").as_string(), "invalid_request_error");
    EXPECT_TRUE(c.closed_by_peer(3)) << bytes;
  }
}

TEST(Connection, ByteAtATime) {
  TestServer server;
  Client c(server.port());
  for (const char b : post_bytes("/v1/completions", kShort)) c.send({&b, 1});
  EXPECT_EQ(c.receive().status, 200);
}

TEST(Connection, LimitsOfHeadersAndBodies) {
  ServeConfig config = test_config();
  config.http.header_bytes = 2048;
  config.http.body_bytes = 10'000;
  TestServer server(config);
  Client a(server.port());
  a.send("GET /health HTTP/1.1\r\nHost: t\r\nX: " + std::string(4000, 'x'));
  EXPECT_EQ(a.receive().status, 431);
  Client b(server.port());
  b.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 10001\r\n\r\n");
  EXPECT_EQ(b.receive().status, 413) << "before a byte of the body";
  Client c(server.port());
  c.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
  bool sent = true;
  for (int i = 0; i < 11 && sent; ++i) sent = c.send("400\r\n" + std::string(1024, 'x') + "\r\n");
  EXPECT_EQ(c.receive().status, 413);
}

TEST(Connection, SlowSendersAreCutOff) {
  ServeConfig config = test_config();
  config.http.header_timeout = 0.3;
  config.http.body_timeout = 0.3;
  config.http.body_total_timeout = 0.8;
  config.http.idle_timeout = 0.3;
  TestServer server(config);
  Client silent(server.port()), half(server.port()), trickle(server.port()), body(server.port()), idle(server.port());
  half.send("GET /health HT");
  body.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n{");
  trickle.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\n");
  EXPECT_EQ(idle.get("/health").status, 200);
  std::jthread dripping([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && trickle.send(" ")) std::this_thread::sleep_for(50ms);  // slow is the point
  });
  EXPECT_TRUE(silent.closed_by_peer(2));
  EXPECT_EQ(half.receive().status, 408);
  EXPECT_EQ(body.receive().status, 408);
  EXPECT_EQ(trickle.receive().status, 408) << "progress does not help beyond the total";
  EXPECT_TRUE(idle.closed_by_peer(2));
}

TEST(Connection, DisconnectAbortsWithinAStep) {
  TestServer server(test_config(), slow_engine());
  for (const char* body : {kEndless, R"({"prompt":[5,6,7],"max_tokens":500,"ignore_eos":true})",
                           R"({"prompt":[5,6,7],"max_tokens":500,"ignore_eos":true,"n":4})"}) {
    Client c(server.port());
    c.send(post_bytes("/v1/completions", body));
    EXPECT_TRUE(server.wait_running(1));
    const auto begin = std::chrono::steady_clock::now();
    c.close();
    EXPECT_TRUE(server.wait_idle());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  }
}

TEST(Connection, DisconnectWhileWaitingForAPlace) {
  ServeConfig config = test_config();
  config.max_connections_to_engine = 1;
  TestServer server(config, slow_engine());
  Client first(server.port());
  first.send(post_bytes("/v1/completions", kEndless));
  EXPECT_FALSE(first.receive_some(64).empty());
  for (int i = 0; i < 10; ++i) {
    Client waiting(server.port());
    waiting.send(post_bytes("/v1/completions", kEndless));
    std::this_thread::sleep_for(10ms);  // some leave while they wait for a place, some before: both must give it back
  }
  first.close();
  EXPECT_TRUE(server.wait_idle());
  EXPECT_EQ(Client(server.port()).post("/v1/completions", kShort).status, 200) << "the place is free again";
}

TEST(Connection, ReaderThatStopsIsHeldThenCancelled) {
  ServeConfig config = test_config();
  config.max_model_len = 100'000;
  config.http.socket_send_buffer = 8192;
  config.http.write_buffer_bytes = 16'384;
  config.http.held_tokens = 2000;
  engine::EchoConfig echo = test_engine_config();
  echo.max_model_len = 100'000;
  echo.step_ns = 20'000;
  TestServer server(config, echo);
  Client stuck(server.port(), 4096);
  stuck.send(post_bytes("/v1/completions", R"({"prompt":[5,6,7],"max_tokens":90000,"stream":true,"ignore_eos":true})"));
  EXPECT_FALSE(stuck.receive_some(16).empty());
  EXPECT_EQ(Client(server.port()).post("/v1/completions", kShort).status, 200) << "others are served meanwhile";
  EXPECT_TRUE(server.wait_idle()) << "the request of a client that does not read is cancelled";
}

TEST(Connection, SlowReaderLosesNothing) {
  ServeConfig config = test_config();
  config.http.socket_send_buffer = 8192;
  config.http.write_buffer_bytes = 8'192;
  engine::EchoConfig echo = test_engine_config();
  TestServer server(config, echo);
  Client slow(server.port(), 4096);
  slow.send(post_bytes("/v1/completions", kEndless));
  // Everything is generated then; most of it waits in the server.
  EXPECT_TRUE(eventually([&] { return server.engine().stats().generated_tokens == 500; }));
  const auto reply = slow.receive();
  ASSERT_EQ(reply.events().size(), 501u);
  EXPECT_NE(reply.events()[499].find("\"finish_reason\":\"length\""), std::string::npos);
  EXPECT_EQ(slow.get("/health").status, 200);
}

TEST(Connection, StalledWriteTimesOut) {
  ServeConfig config = test_config();
  config.http.socket_send_buffer = 8192;
  config.http.write_buffer_bytes = 8'192;
  config.http.write_stall_timeout = 0.3;
  TestServer server(config, slow_engine(1'000'000));
  Client stuck(server.port(), 4096);
  stuck.send(
      post_bytes("/v1/completions", R"({"prompt":[5,6,7],"max_tokens":500,"stream":true,"ignore_eos":true,"n":8})"));
  EXPECT_FALSE(stuck.receive_some(16).empty());
  EXPECT_TRUE(server.wait_idle());
  EXPECT_TRUE(stuck.closed_by_peer(3));
}

TEST(Connection, FloodOfUnreadPipelinedRequestsIsBounded) {
  TestServer server;
  Client flood(server.port(), 4096);
  const timeval timeout{0, 200'000};
  setsockopt(flood.fd(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n";
  bool blocked = false;
  for (int i = 0; i < 1000 && !blocked; ++i) blocked = !flood.send(many);
  EXPECT_TRUE(blocked) << "the server must stop reading when its answers are not read";
  EXPECT_EQ(Client(server.port()).get("/health").status, 200);
}

TEST(Connection, FullHouseMakesRoomForNewcomers) {
  ServeConfig config = test_config();
  config.http.connections = 20;
  TestServer server(config, slow_engine());
  std::vector<std::unique_ptr<Client>> left;
  for (int i = 0; i < 60; ++i) left.push_back(std::make_unique<Client>(server.port()));
  EXPECT_EQ(Client(server.port()).get("/health").status, 200) << "connections that ask nothing give way";
}

TEST(Connection, FullHouseOfStreamsTurnsAway) {
  ServeConfig config = test_config();
  config.http.connections = 4;
  config.io_threads = 1;
  TestServer server(config, slow_engine());
  std::vector<std::unique_ptr<Client>> streams;
  for (int i = 0; i < 4; ++i) {
    streams.push_back(std::make_unique<Client>(server.port()));
    streams.back()->send(post_bytes("/v1/completions", kEndless));
    EXPECT_FALSE(streams.back()->receive_some(64).empty());
  }
  Client late(server.port());
  late.send("GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(late.receive().status, 503);
  streams.clear();
  EXPECT_TRUE(server.wait_idle());
  EXPECT_EQ(Client(server.port()).get("/health").status, 200);
}

// In a process of its own: its file limit is lowered until accept() itself fails.
TEST(Connection, OutOfFileDescriptors) {
  const pid_t choice = fork();
  if (choice == 0) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 96;
    setrlimit(RLIMIT_NOFILE, &limit);
    ServeConfig config = test_config();
    config.http.connections = 1000;  // beyond what the system gives: accept() runs into EMFILE
    config.http.header_timeout = 30;
    int pipes[2];
    if (pipe(pipes) != 0) _exit(10);
    const pid_t crowd = fork();
    if (crowd == 0) {
      int port = 0;
      if (read(pipes[0], &port, sizeof port) != sizeof port) _exit(11);
      std::vector<std::unique_ptr<Client>> left;
      for (int i = 0; i < 85; ++i) left.push_back(std::make_unique<Client>(port));
      std::this_thread::sleep_for(200ms);  // accept() fails meanwhile, of which nothing tells
      left.resize(40);
      for (int i = 0; i < 40; ++i) left.push_back(std::make_unique<Client>(port));
      std::this_thread::sleep_for(100ms);
      left.resize(20);
      _exit(Client(port).get("/health").status == 200 ? 0 : 12);
    }
    TestServer server(config);
    const int port = server.port();
    if (write(pipes[1], &port, sizeof port) != sizeof port) _exit(13);
    int status = 0;
    waitpid(crowd, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) _exit(WEXITSTATUS(status));
    std::this_thread::sleep_for(50ms);  // the server sees that the crowd has gone
    _exit(Client(port).post("/v1/completions", kShort).status == 200 ? 0 : 14);
  }
  int status = 0;
  waitpid(choice, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Connection, IdleOnesGiveTheirBuffersBack) {
  serve::Connection c(1, nullptr, net::plain_stream(net::Fd()), PortKind::kMain, net::Peer{}, http::ParserLimits{});
  c.in.assign(200'000, 'x');
  c.out.assign(200'000, 'x');
  c.drop_input(c.in.size());
  c.trim(0);
  EXPECT_LT(c.in.capacity(), 64u);
  EXPECT_GE(c.out.capacity(), 200'000u) << "not sent yet";
  c.out.clear();
  c.trim(16 << 10);
  EXPECT_LT(c.out.capacity(), 64u);
}

TEST(Connection, DisconnectStormLeavesNothing) {
  TestServer server(test_config(), slow_engine(1'000'000));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        Client c(server.port());
        c.send(post_bytes("/v1/completions", kEndless));
        if ((i + t) % 3 != 0) c.receive_some(100);
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_TRUE(server.wait_idle());
  EXPECT_EQ(Client(server.port()).post("/v1/completions", kShort).status, 200);
}

}  // namespace
}  // namespace tern::serve::testing
