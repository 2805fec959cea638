// Keys, tickets, places, metrics and console lines by themselves.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cmath>

#include "serve/limits/admission.h"
#include "serve/limits/auth.h"
#include "serve/limits/engine_slots.h"
#include "serve/limits/memory_budget.h"
#include "serve/report/metrics.h"
#include "serve/router.h"
#include "serve/server.h"

namespace tern::serve {
namespace {

std::string hex(const Digest& d) {
  std::string out;
  for (uint8_t b : d) out += fmt::format("{:02x}", b);
  return out;
}

TEST(Sha256, PublishedVectors) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Auth, BearerKeys) {
  const Auth open({});
  EXPECT_FALSE(open.required());
  const Auth auth({"one", "two"});
  EXPECT_TRUE(auth.required() && auth.several());
  EXPECT_EQ(auth.check("Bearer one"), 0);
  EXPECT_EQ(auth.check("bearer  two"), 1);
  for (const char* bad : {"", "Bearer", "Bearer ", "one", "Basic one", "Bearer on", "Bearer onee", "Bearer one two",
                          "Bearer ONE", "Bearerone", "Token one"}) {
    EXPECT_EQ(auth.check(bad), std::nullopt) << bad;
  }
}

TEST(Auth, KeysComeAndGo) {
  Auth auth({"one", "two", "one"}, true);
  EXPECT_TRUE(auth.required() && auth.several() && auth.separate());
  auth.replace({"three", "two"});
  EXPECT_EQ(auth.check_key("one"), std::nullopt);
  EXPECT_EQ(auth.check_key("two"), 1) << "it keeps its number";
  EXPECT_EQ(auth.check_key("three"), 2) << "no number means another key";
  EXPECT_TRUE(auth.holds(1) && auth.holds(2) && !auth.holds(0));
  auth.replace({"one"});
  EXPECT_EQ(auth.check_key("one"), 3) << "what its first number left behind may be anybody's guess by now";
  EXPECT_TRUE(!auth.several() && auth.separate());
  EXPECT_FALSE(Auth({"one"}).separate());
}

TEST(Admission, TicketsAndPlaces) {
  std::atomic<int> count{0};
  {
    Ticket a = Ticket::take(count, 2), b = Ticket::take(count, 2), c = Ticket::take(count, 2);
    EXPECT_TRUE(a && b);
    EXPECT_FALSE(c);
    Ticket moved = std::move(a);
    moved.release();
    EXPECT_EQ(count, 1);
  }
  EXPECT_EQ(count, 0);

  EngineSlots slots(1);
  const EngineSlots::Waiter first{0, 1};
  EXPECT_TRUE(slots.acquire(first));
  EXPECT_FALSE(slots.acquire({0, 2}));
  EXPECT_FALSE(slots.acquire({1, 3}));
  EXPECT_EQ(slots.waiting(), 2);
  EXPECT_TRUE(slots.cancel({0, 2}));
  EXPECT_FALSE(slots.cancel({0, 2}));
  const auto next = slots.release(first);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->key, 3u);
  EXPECT_FALSE(slots.cancel({1, 3})) << "handed over already";
  EXPECT_FALSE(slots.release(*next).has_value());
  EXPECT_TRUE(slots.acquire({0, 4}));

  ActiveIds ids;
  EXPECT_TRUE(ids.insert("a"));
  EXPECT_FALSE(ids.insert("a"));
  ids.erase("a");
  EXPECT_TRUE(ids.insert("a"));
}

// Many samples of one owner do not keep out another, wherever they wait.
TEST(EngineSlots, AreGivenFairly) {
  EngineSlots slots(2);
  const EngineSlots::Waiter many{0, 1, 7, 128}, other{0, 2, 7, 128};
  EXPECT_TRUE(slots.acquire(many));
  EXPECT_TRUE(slots.acquire(other));
  for (uint64_t key = 10; key < 40; ++key) EXPECT_FALSE(slots.acquire({0, key, 7, 128}));
  EXPECT_FALSE(slots.acquire({1, 50, 8, 1}));
  EXPECT_FALSE(slots.acquire({1, 51, 8, 1}));
  EXPECT_FALSE(slots.acquire({1, 52, 9, 1}));
  auto next = slots.release(many);
  EXPECT_EQ(next->key, 50u) << "its owner has nothing inside, the first has 128";
  next = slots.release(*next);
  EXPECT_EQ(next->key, 51u) << "of equal owners the oldest";
  next = slots.release(*next);
  EXPECT_EQ(next->key, 52u);
  next = slots.release(*next);
  EXPECT_EQ(next->key, 10u) << "the first owner goes on where it was";
}

TEST(MemoryBudget, IsCountedBeforeItIsSpent) {
  constexpr size_t kMb = 1u << 20;
  MemoryBudget budget(16 * kMb);
  MemoryBudget::Lease a(budget, 0), b(budget, 0), c(budget, 0), small(budget, 0);
  EXPECT_TRUE(a.cover(10 * kMb));
  EXPECT_FALSE(b.cover(5 * kMb)) << "the last eighth is for small ones";
  EXPECT_EQ(b.bytes(), 0u);
  EXPECT_TRUE(b.cover(4 * kMb));
  EXPECT_FALSE(c.cover(2 * kMb));
  EXPECT_TRUE(small.cover(kMb));
  EXPECT_TRUE(small.cover(kMb / 2));
  EXPECT_EQ(budget.used(), 15 * kMb);
  a.release();
  EXPECT_TRUE(c.cover(2 * kMb));
  EXPECT_TRUE(c.resize(kMb));
  { MemoryBudget::Lease moved = std::move(c); }
  b.release(), small.release();
  EXPECT_EQ(budget.used(), 0u);
}

TEST(MemoryBudget, AnOwnerHasHalf) {
  constexpr size_t kMb = 1u << 20;
  MemoryBudget budget(16 * kMb);
  MemoryBudget::Lease one(budget, 5), two(budget, 5), other(budget, 6);
  EXPECT_TRUE(one.cover(6 * kMb));
  EXPECT_FALSE(two.cover(3 * kMb));
  EXPECT_TRUE(two.cover(2 * kMb));
  EXPECT_TRUE(other.cover(3 * kMb));
  one.release(), two.release(), other.release();
  EXPECT_EQ(budget.used(), 0u);
}

net::Peer peer(const char* text, const std::vector<net::Network>& trusted = {}) {
  sockaddr_storage address{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
  if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
    address.ss_family = AF_INET;
  else if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1)
    address.ss_family = AF_INET6;
  return net::peer_of(address, trusted, HashKey{1, 2});
}

TEST(Peers, LimitsSpareLoopbackUnixSocketsAndProxies) {
  const std::vector<net::Network> trusted = {*net::parse_network("10.1.0.0/16"), *net::parse_network("192.0.2.7"),
                                             *net::parse_network("2001:db8:1::/48")};
  for (const char* free : {"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "10.1.2.3", "::ffff:10.1.2.3",
                           "192.0.2.7", "2001:db8:1:2::3"}) {
    EXPECT_FALSE(peer(free, trusted).limited) << free;
  }
  for (const char* limited : {"128.0.0.1", "10.2.0.1", "192.0.2.8", "2001:db8:2::1", "::2"}) {
    EXPECT_TRUE(peer(limited, trusted).limited) << limited;
  }
  sockaddr_storage local{};
  local.ss_family = AF_UNIX;
  EXPECT_FALSE(net::peer_of(local, {}, HashKey{1, 2}).limited);
  EXPECT_EQ(peer("192.0.2.1").owner, peer("::ffff:192.0.2.1").owner);
  EXPECT_NE(peer("192.0.2.1").owner, peer("192.0.2.2").owner);
  EXPECT_EQ(peer("2001:db8::1").owner, peer("2001:db8::ffff:2").owner) << "one /64";
  EXPECT_NE(peer("2001:db8::1").owner, peer("2001:db8:0:1::1").owner);
  for (const char* wrong : {"", "x", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "::/129", "10.0.0.0/8x"}) {
    EXPECT_FALSE(net::parse_network(wrong).ok()) << wrong;
  }
}

TEST(AddressCounts, LimitOneAddress) {
  AddressCounts counts;
  auto a = counts.enter(1, 2), b = counts.enter(1, 2), c = counts.enter(1, 2), d = counts.enter(2, 2);
  EXPECT_TRUE(a && b && d);
  EXPECT_FALSE(c);
  a = {};
  EXPECT_TRUE(counts.enter(1, 2));
}

TEST(Metrics, NumbersAsPythonsClientPrintsThem) {
  const std::pair<double, const char*> cases[] = {{0, "0.0"},
                                                  {1, "1.0"},
                                                  {2.5, "2.5"},
                                                  {0.001, "0.001"},
                                                  {100000, "100000.0"},
                                                  {1000000, "1e+06"},
                                                  {1234567, "1.234567e+06"},
                                                  {33792, "33792.0"},
                                                  {1700000000.25, "1.70000000025e+09"},
                                                  {HUGE_VAL, "+Inf"},
                                                  {0.1 + 0.2, "0.30000000000000004"},
                                                  {-3, "-3.0"}};
  for (const auto& [value, text] : cases) {
    std::string out;
    append_sample(out, value);
    EXPECT_EQ(out, text);
  }
}

TEST(Metrics, ExpositionText) {
  Metrics metrics(2, {{"block_size", "64"}, {"path", "a\"b\\c"}});
  metrics.shard(0).add(Count::kGenerationTokens, 3);
  metrics.shard(1).add(Count::kGenerationTokens, 4);
  metrics.shard(0).observe(Hist::kTimeToFirst, 0.0009765625);
  metrics.shard(1).observe(Hist::kTimeToFirst, 0.03125);
  metrics.shard(1).observe(Hist::kTimeToFirst, 5);
  metrics.shard(1).http("GET", "/health", 200, 0.002);
  metrics.shard(1).set_first_token(0.5), metrics.shard(0).set_first_token(0.25);
  metrics.shard(0).set_infer(0.25), metrics.shard(1).set_infer(0.5);
  engine::EngineStats stats;
  stats.running = 2;
  stats.total_blocks = 100;
  stats.usable_blocks = 75;  // 30 hold nothing, 45 only cached tokens
  stats.free_blocks = 30;
  stats.preemptions = 9;
  stats.steps = 40, stats.graph_steps = 39, stats.late_allocations = 3;
  const std::string text = metrics.text(stats, 5);
  for (const char* line :
       {"# TYPE fastdeploy:generation_tokens_total counter\nfastdeploy:generation_tokens_total 7.0\n",
        "# TYPE fastdeploy:generation_tokens_created gauge\nfastdeploy:generation_tokens_created ",
        "fastdeploy:num_requests_running 2.0\n",
        "fastdeploy:num_requests_enqueued 5.0\n",
        "fastdeploy:first_token_latency 0.25\n",
        "fastdeploy:infer_latency 0.5\n",
        "fastdeploy:gpu_cache_usage_perc 0.25\n",
        "fastdeploy:available_gpu_block_num 75.0\n",
        "fastdeploy:available_gpu_resource 0.75\n",
        "fastdeploy:free_gpu_block_num 30.0\n",
        "fastdeploy:max_gpu_block_num 100.0\n",
        "fastdeploy:request_preempted_total 9.0\n",
        "tern:steps_total 40.0\n",
        "tern:graph_steps_total 39.0\n",
        "tern:late_allocations_total 3.0\n",
        "# TYPE fastdeploy:time_to_first_token_seconds histogram\n",
        "fastdeploy:time_to_first_token_seconds_bucket{le=\"0.001\"} 1.0\n",
        "fastdeploy:time_to_first_token_seconds_bucket{le=\"0.02\"} 1.0\n",
        "fastdeploy:time_to_first_token_seconds_bucket{le=\"0.04\"} 2.0\n",
        "fastdeploy:time_to_first_token_seconds_bucket{le=\"+Inf\"} 3.0\n",
        "fastdeploy:time_to_first_token_seconds_count 3.0\n",
        "fastdeploy:time_to_first_token_seconds_sum 5.0322265625\n",
        "fastdeploy:request_prompt_tokens_bucket{le=\"20000.0\"} 0.0\n"
        "fastdeploy:request_prompt_tokens_bucket{le=\"+Inf\"} 0.0\n",
        "fastdeploy:cache_config_info{block_size=\"64\",path=\"a\\\"b\\\\c\"} 1.0\n",
        "http_requests_total{method=\"GET\",path=\"/health\",status_code=\"200\"} 1.0\n",
        "http_request_duration_seconds_bucket{method=\"GET\",path=\"/health\",le=\"0.01\"} 1.0\n",
        "http_request_duration_seconds_count{method=\"GET\",path=\"/health\"} 1.0\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(text.find("tern:engine_"), std::string::npos) << "there is one engine";
}

TEST(Metrics, EnginesHaveALabel) {
  const Metrics metrics(1, {});
  std::vector<engine::EngineStats> engines(2);
  engines[0].running = 2, engines[1].running = 1;
  engines[1].waiting = 3, engines[1].preempted_waiting = 4;
  engines[0].prefix_hit_tokens = 640;
  const std::string text = metrics.text({}, 0, nullptr, engines);
  for (const char* line : {"# TYPE tern:engine_requests_running gauge\ntern:engine_requests_running{engine=\"0\"} 2.0\n"
                           "tern:engine_requests_running{engine=\"1\"} 1.0\n",
                           "tern:engine_requests_waiting{engine=\"1\"} 7.0\n",
                           "tern:engine_prefix_cache_token_num_total{engine=\"0\"} 640.0\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
}

TEST(Console, Lines) {
  ServeConfig config;
  EXPECT_EQ(startup_lines(config, 8188, 0),
            "Launching metrics service at http://0.0.0.0:8188/metrics\n"
            "Launching chat completion service at http://0.0.0.0:8188/v1/chat/completions\n"
            "Launching completion service at http://0.0.0.0:8188/v1/completions\n"
            "INFO:     Uvicorn running on http://0.0.0.0:8188 (Press CTRL+C to quit)");
  EXPECT_NE(startup_lines(config, 8188, 8181).find("metrics service at http://0.0.0.0:8181/metrics"),
            std::string::npos);
  EXPECT_TRUE(open_to_everyone(config));
  config.host = "127.0.0.1";
  EXPECT_FALSE(open_to_everyone(config));
  engine::EngineStats before, now;
  EXPECT_EQ(scheduler_line(before, now, 5), "");
  now.prompt_tokens = 100;
  now.generated_tokens = 50;
  now.running = 3;
  now.total_blocks = 10;
  now.usable_blocks = 5;  // two of them hold cached tokens
  now.free_blocks = 3;
  EXPECT_EQ(scheduler_line(before, now, 5),
            "Scheduler: running 3, waiting 0, preempted 0, prefill 20.0 tokens/s (0 cached), decode 10.0 tokens/s, "
            "token usage 0.50");
  now.steps = 8, now.graph_steps = 6;
  EXPECT_TRUE(scheduler_line(before, now, 5).ends_with(", token usage 0.50, graphs 75.0 %"));
}

TEST(Router, EveryRouteIsFoundWhereItBelongs) {
  const auto found = [](const Route& route, PortKind port, bool metrics_on_main) {
    http::Head head;
    head.path = head.raw_path = route.path;
    std::string rest;
    return match_route(head, port, metrics_on_main, rest) == &route;
  };
  for (const Route& route : routes()) {
    EXPECT_EQ(found(route, PortKind::kMain, true), (route.ports & (kMainPort | kMetricsPort)) != 0) << route.path;
    EXPECT_EQ(found(route, PortKind::kMain, false), (route.ports & kMainPort) != 0) << route.path;
    EXPECT_EQ(found(route, PortKind::kMetrics, false), (route.ports & kMetricsPort) != 0) << route.path;
    EXPECT_EQ(found(route, PortKind::kController, false), (route.ports & kControllerPort) != 0) << route.path;
    EXPECT_EQ(found(route, PortKind::kPaddleNlp, false), (route.ports & kPaddleNlpPort) != 0) << route.path;
    EXPECT_EQ(found(route, PortKind::kPaddleNlpMetrics, false), (route.ports & kPaddleNlpMetricsPort) != 0);
    const bool is_public = route.path == "/health" || route.path == "/ping" || route.path == "/";
    EXPECT_EQ(route.key == KeyRule::kPublic, is_public) << route.path;
  }
  EXPECT_NE(load_json().find("{\"path\":\"/v1/chat/completions\",\"methods\":[\"POST\"],\"tags\":[]}"),
            std::string::npos);
}

}  // namespace
}  // namespace tern::serve
