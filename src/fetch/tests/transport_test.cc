#include "fetch/transport.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "fetch/tests/loopback.h"
#include "fetch/url.h"

namespace tern::fetch {
namespace {

using Answers = std::vector<std::vector<const char*>>;  // one list of addresses for each look-up, the last one for more

// Names are answered from a table; 127.0.0.1 counts as public when `loopback_is_public`, no other private address does.
struct World {
  std::map<std::string, Answers> names;
  bool loopback_is_public = false;
  std::map<std::string, int> asked;
  std::vector<double> slept;

  Seams seams() {
    Seams out;
    out.look_up = [this](const std::string& host, Clock::time_point) -> Expected<std::vector<Address>> {
      const auto it = names.find(host);
      if (it == names.end()) return refused_host();
      const size_t turn = std::min<size_t>(asked[host]++, it->second.size() - 1);
      std::vector<Address> addresses;
      for (const char* text : it->second[turn]) addresses.push_back(*parse_address(text));
      return addresses;
    };
    out.is_public = [this](const Address& address) {
      return is_public(address) || (loopback_is_public && address == *parse_address("127.0.0.1"));
    };
    out.sleep = [this](std::chrono::duration<double> time) { slept.push_back(time.count()); };
    return out;
  }
};

std::string at(const char* host, const Loopback& server, const char* path = "/") {
  return std::string("http://") + host + ":" + std::to_string(server.port()) + path;
}

FetchPolicy listing(const char* host, const Loopback& server) {
  FetchPolicy policy;
  policy.allowed_domains = {std::string(host) + ":" + std::to_string(server.port())};
  policy.total_timeout = 5;
  return policy;
}

std::string outcome(const Expected<std::vector<std::byte>>& result) {
  if (result.ok()) return {reinterpret_cast<const char*>(result->data()), result->size()};
  switch (result.error().code) {
    case ErrorCode::kInvalidArgument:
      return "<refused>";
    case ErrorCode::kTooLarge:
      return "<large>";
    case ErrorCode::kUnavailable:
      return "<unavailable>";
    default:
      return "<other>";
  }
}

TEST(Http, FetchesWithoutOurSecrets) {
  setenv("http_proxy", "http://127.0.0.1:1/", 1);
  setenv("ALL_PROXY", "http://127.0.0.1:1/", 1);
  std::string head;
  Loopback server([&](int fd, const std::string& request) {
    head = request;
    Loopback::send_body(fd, "200 OK", "picture", "Set-Cookie: a=b\r\n");
  });
  World world{{{"pictures.test", {{"127.0.0.1"}}}}};
  const auto policy = listing("pictures.test", server);
  EXPECT_EQ(outcome(fetch_http(at("Pictures.test", server, "/a b.png?x=1#y"), policy, world.seams())), "picture");
  unsetenv("http_proxy");
  unsetenv("ALL_PROXY");
  EXPECT_TRUE(head.starts_with("GET /a%20b.png?x=1 HTTP/1.1\r\n")) << head;
  EXPECT_NE(head.find("Accept-Encoding: identity\r\n"), std::string::npos);
  EXPECT_EQ(head.find("Cookie"), std::string::npos);
  EXPECT_EQ(head.find("Authorization"), std::string::npos);
  EXPECT_EQ(world.asked["pictures.test"], 1);
}

TEST(Http, NothingPrivateIsConnected) {
  Loopback server([](int fd, const std::string&) { Loopback::send_body(fd, "200 OK", "secret"); });
  World world;
  world.names = {{"inside.test", {{"127.0.0.1"}}},
                 {"mixed.test", {{"8.8.8.8", "127.0.0.1"}}},
                 {"mapped.test", {{"::ffff:127.0.0.1"}}},
                 {"six.test", {{"::1"}}},
                 {"metadata.test", {{"169.254.169.254"}}}};
  FetchPolicy policy;
  for (const char* host : {"inside.test", "mixed.test", "mapped.test", "six.test", "metadata.test", "nowhere.test"}) {
    const auto result = fetch_http(std::string("http://") + host + "/", policy, world.seams());
    EXPECT_EQ(outcome(result), "<refused>") << host;
    EXPECT_EQ(result.error().message, refused_host().message) << host;
  }
  EXPECT_EQ(outcome(fetch_http(at("127.0.0.1", server), policy, world.seams())), "<refused>");
  EXPECT_EQ(server.connections(), 0);
  EXPECT_TRUE(world.slept.empty());  // a refusal is not tried again

  policy.allow_private = true;
  policy.total_timeout = 5;
  EXPECT_EQ(outcome(fetch_http(at("127.0.0.1", server), policy, world.seams())), "secret");
  EXPECT_EQ(outcome(fetch_http(at("inside.test", server), policy, world.seams())), "secret");
}

TEST(Http, TheSystemsResolverIsCheckedToo) {
  FetchPolicy policy;
  const auto result = fetch("http://localhost/", policy);
  EXPECT_EQ(outcome(result), "<refused>");
}

// What a name resolves to the second time does not matter for the first connection, and is checked for the second.
TEST(Http, RebindingNames) {
  Loopback server([&](int fd, const std::string& head) {
    if (head.starts_with("GET /end ")) {
      Loopback::send_body(fd, "200 OK", "picture");
    } else {
      Loopback::send_body(fd, "302 Found", "", "Location: /end\r\n");
    }
  });
  World world;
  world.loopback_is_public = true;
  world.names = {{"steady.test", {{"127.0.0.1"}}},
                 {"changing.test", {{"127.0.0.1"}, {"10.0.0.1"}}},
                 {"widening.test", {{"127.0.0.1"}, {"127.0.0.1", "10.0.0.1"}}}};
  FetchPolicy policy;
  policy.ports = {server.port()};
  EXPECT_EQ(outcome(fetch_http(at("steady.test", server), policy, world.seams())), "picture");
  EXPECT_EQ(world.asked["steady.test"], 2);  // once for each connection
  for (const char* host : {"changing.test", "widening.test"}) {
    const int before = server.connections();
    EXPECT_EQ(outcome(fetch_http(at(host, server), policy, world.seams())), "<refused>");
    EXPECT_EQ(world.asked[host], 2);
    EXPECT_EQ(server.connections(), before + 1);
    world.asked[host] = 0;
    EXPECT_EQ(outcome(fetch_http(at(host, server, "/end"), policy, world.seams())), "picture");
    EXPECT_EQ(world.asked[host], 1);
  }
}

TEST(Http, RedirectsAreCheckedOneByOne) {
  Loopback inside([](int fd, const std::string&) { Loopback::send_body(fd, "200 OK", "secret"); });
  std::string location;
  Loopback server([&](int fd, const std::string& head) {
    if (head.starts_with("GET /end ")) {
      Loopback::send_body(fd, "200 OK", "picture");
    } else {
      Loopback::send_body(fd, "302 Found", "ignored", "Location: " + location + "\r\n");
    }
  });
  World world;
  world.names = {{"pictures.test", {{"127.0.0.1"}}}, {"inside.test", {{"127.0.0.1"}}}};
  const auto policy = listing("pictures.test", server);
  const auto go = [&](const std::string& to) {
    location = to;
    return outcome(fetch_http(at("pictures.test", server), policy, world.seams()));
  };
  EXPECT_EQ(go("/end"), "picture");
  EXPECT_EQ(go("end"), "picture");
  EXPECT_EQ(go(at("pictures.test", server, "/end")), "picture");
  EXPECT_EQ(go("//pictures.test:" + std::to_string(server.port()) + "/end"), "picture");
  const int before = server.connections();
  for (const std::string& to :
       {at("127.0.0.1", inside), at("inside.test", inside), at("pictures.test", inside), at("0x7f.1", inside),
        at("2130706433", inside), at("[::ffff:127.0.0.1]", inside),
        "http://a@pictures.test:" + std::to_string(inside.port()) + "/",
        "//127.0.0.1:" + std::to_string(inside.port()) + "/", std::string("file:///etc/passwd"),
        std::string("ftp://pictures.test/"), std::string("gopher://127.0.0.1:70/_x"), std::string("data:,secret")}) {
    const std::string got = go(to);
    EXPECT_TRUE(got == "<refused>" || got == "<unavailable>") << to << " " << got;
  }
  EXPECT_EQ(server.connections(), before + 12);
  EXPECT_EQ(inside.connections(), 0);
}

TEST(Http, RedirectLoopsEnd) {
  Loopback server(
      [](int fd, const std::string&) { Loopback::send_body(fd, "307 Temporary Redirect", "", "Location: /\r\n"); });
  World world{{{"pictures.test", {{"127.0.0.1"}}}}};
  auto policy = listing("pictures.test", server);
  policy.max_redirects = 3;
  EXPECT_EQ(outcome(fetch_http(at("pictures.test", server), policy, world.seams())), "<refused>");
  EXPECT_EQ(server.connections(), 4);
}

TEST(Http, Limits) {
  std::string kind;
  Loopback server([&](int fd, const std::string&) {
    if (kind == "honest") {
      Loopback::send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1000001\r\n\r\n");
      while (Loopback::send_text(fd, std::string(4096, 'x'))) continue;
    } else if (kind == "endless") {
      Loopback::send_text(fd, "HTTP/1.1 200 OK\r\n\r\n");
      while (Loopback::send_text(fd, std::string(4096, 'x'))) continue;
    } else if (kind == "chunks") {
      Loopback::send_text(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      while (Loopback::send_text(fd, "1000\r\n" + std::string(4096, 'x') + "\r\n")) continue;
    } else if (kind == "short") {  // promises more than it sends
      Loopback::send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
    } else if (kind == "long") {  // sends more than it promises
      Loopback::send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef");
    } else if (kind == "headers") {
      Loopback::send_text(fd, "HTTP/1.1 200 OK\r\n");
      while (Loopback::send_text(fd, "X-A: " + std::string(1000, 'x') + "\r\n")) continue;
    } else if (kind == "ancient") {
      Loopback::send_text(fd, "just bytes");
    }
  });
  World world{{{"pictures.test", {{"127.0.0.1"}}}}};
  auto policy = listing("pictures.test", server);
  policy.max_bytes = 1000000;
  const auto go = [&](const char* what) {
    kind = what;
    return outcome(fetch_http(at("pictures.test", server), policy, world.seams()));
  };
  EXPECT_EQ(go("honest"), "<large>");
  EXPECT_EQ(go("endless"), "<large>");
  EXPECT_EQ(go("chunks"), "<large>");
  EXPECT_EQ(server.connections(), 3);
  EXPECT_EQ(go("short"), "<unavailable>");
  EXPECT_EQ(server.connections(), 6);  // three tries
  EXPECT_EQ(go("long"), "abc");
  EXPECT_EQ(go("headers"), "<unavailable>");
  EXPECT_EQ(go("ancient"), "<unavailable>");
}

TEST(Http, SlowBodiesMeetTheDeadline) {
  Loopback* self = nullptr;
  Loopback server([&](int fd, const std::string&) {
    Loopback::send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
    for (int i = 0; i < 100 && !self->stopping() && Loopback::send_text(fd, "x"); ++i) usleep(20000);
  });
  self = &server;
  World world{{{"pictures.test", {{"127.0.0.1"}}}}};
  auto policy = listing("pictures.test", server);
  policy.total_timeout = 0.3;
  const auto start = Clock::now();
  EXPECT_EQ(outcome(fetch_http(at("pictures.test", server), policy, world.seams())), "<unavailable>");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(server.connections(), 1);
}

TEST(Http, CancelledWhileReadingAndBetweenTries) {
  Loopback* self = nullptr;
  Loopback server([&](int fd, const std::string&) {
    Loopback::send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
    for (int i = 0; i < 1000 && !self->stopping() && Loopback::send_text(fd, "x"); ++i) usleep(20000);
  });
  self = &server;
  World world{{{"pictures.test", {{"127.0.0.1"}}}}};
  auto policy = listing("pictures.test", server);
  policy.total_timeout = 60;
  policy.cancelled = [&] { return server.connections() > 0; };
  auto got = fetch_http(at("pictures.test", server), policy, world.seams());
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(server.connections(), 1);

  Loopback broken([](int, const std::string&) {});
  World again{{{"pictures.test", {{"127.0.0.1"}}}}};
  auto retry = listing("pictures.test", broken);
  retry.total_timeout = 60;
  retry.cancelled = [&] { return !again.slept.empty(); };
  got = fetch_http(at("pictures.test", broken), retry, again.seams());
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(broken.connections(), 1);
}

// Bytes are told of before they are kept; those of a try that failed are taken back, and a no ends the fetch.
TEST(Http, BytesAreCounted) {
  int answers = 0;
  Loopback server([&](int fd, const std::string&) {
    Loopback::send_body(fd, ++answers == 1 ? "503 Busy" : "200 OK", std::string(5000, 'x'));
  });
  World world{{{"pictures.test", {{"127.0.0.1"}}}}};
  auto policy = listing("pictures.test", server);
  policy.total_timeout = 30;
  int64_t sum = 0, most = 0;
  policy.count = [&](int64_t bytes) {
    sum += bytes;
    most = std::max(most, sum);
    return true;
  };
  auto got = fetch_http(at("pictures.test", server), policy, world.seams());
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(sum, 5000);
  EXPECT_EQ(most, 5000) << "the first try's bytes went before the second's came";
  sum = 0;
  policy.count = [&](int64_t bytes) {
    if (sum + bytes > 3000) return false;
    sum += bytes;
    return true;
  };
  got = fetch_http(at("pictures.test", server), policy, world.seams());
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(sum, 0) << "what was kept of it is taken back";
}

TEST(Http, ThreeTries) {
  std::vector<std::string> statuses;
  Loopback server([&](int fd, const std::string&) {
    if (statuses.empty()) return;
    const std::string status = statuses.front();
    statuses.erase(statuses.begin());
    if (status != "break") Loopback::send_body(fd, status, "body");
  });
  World world{{{"pictures.test", {{"127.0.0.1"}}}}};
  auto policy = listing("pictures.test", server);
  policy.total_timeout = 30;
  int before = 0;
  const auto go = [&](std::vector<std::string> answers) {
    statuses = std::move(answers);
    world.slept.clear();
    before = server.connections();
    return outcome(fetch_http(at("pictures.test", server), policy, world.seams()));
  };
  EXPECT_EQ(go({"503 Busy", "429 Slower", "200 OK"}), "body");
  EXPECT_EQ(world.slept, (std::vector<double>{1, 2}));
  EXPECT_EQ(go({"500 No", "502 No", "503 No", "200 OK"}), "<unavailable>");
  EXPECT_EQ(server.connections() - before, 3);
  EXPECT_EQ(go({"break", "200 OK"}), "body");
  for (const char* status : {"404 Not Found", "403 No", "401 Who", "400 Bad", "304 Not Modified", "300 Choices"}) {
    EXPECT_EQ(go({status, "200 OK"}), "<unavailable>") << status;
    EXPECT_EQ(server.connections() - before, 1) << status;
    EXPECT_TRUE(world.slept.empty());
  }
}

TEST(Http, NobodyThere) {
  int port = 0;
  {
    port = Loopback([](int, const std::string&) {}).port();
  }
  World world{{{"pictures.test", {{"127.0.0.1"}}}}};
  FetchPolicy policy;
  policy.allowed_domains = {"pictures.test:" + std::to_string(port)};
  const auto result = fetch_http("http://pictures.test:" + std::to_string(port) + "/", policy, world.seams());
  EXPECT_EQ(outcome(result), "<unavailable>");
  EXPECT_EQ(world.slept.size(), 2u);
}

}  // namespace
}  // namespace tern::fetch
