#include "client/http_client.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <thread>

#include "client/load_client.h"

namespace tern::client {
namespace {

using boost::asio::ip::tcp;

// Answers every connection's first requests with a fixed text and closes, as many times as told.
class FakeServer {
 public:
  FakeServer(std::string answer, int connections)
      : acceptor_(context_, tcp::endpoint(tcp::v4(), 0)), answer_(std::move(answer)) {
    thread_ = std::thread([this, connections] {
      for (int i = 0; i < connections; ++i) {
        tcp::socket socket(context_);
        acceptor_.accept(socket);
        boost::asio::streambuf request;
        boost::system::error_code error;
        boost::asio::read_until(socket, request, "\r\n\r\n", error);
        head_ = std::string(boost::asio::buffers_begin(request.data()), boost::asio::buffers_end(request.data()));
        boost::asio::write(socket, boost::asio::buffer(answer_), error);
        socket.shutdown(tcp::socket::shutdown_both, error);
      }
    });
  }
  ~FakeServer() { thread_.join(); }
  std::string url() const { return fmt::format("http://127.0.0.1:{}/v1", acceptor_.local_endpoint().port()); }
  const std::string& head() const { return head_; }

 private:
  boost::asio::io_context context_;
  tcp::acceptor acceptor_;
  std::string answer_, head_;
  std::thread thread_;
};

TEST(Url, PartsAndMistakes) {
  const auto url = parse_url("http://example.org:8180/v1/");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->host, "example.org");
  EXPECT_EQ(url->port, "8180");
  EXPECT_EQ(url->path, "/v1");
  EXPECT_EQ(parse_url("http://[::1]:80")->host, "::1");
  EXPECT_EQ(parse_url("http://[::1]")->port, "80");
  EXPECT_EQ(parse_url("http://h")->path, "");
  EXPECT_FALSE(url->tls);
  EXPECT_TRUE(parse_url("https://h/v1")->tls);
  EXPECT_EQ(parse_url("https://h/v1")->port, "443");
  EXPECT_EQ(parse_url("https://h:8443")->port, "8443");
  for (const char* bad : {"ftp://h", "https://", "h:80", "http://", "http://:80", "http://h:x", "http://h:70000",
                          "http://h:0", "http://[::1"}) {
    EXPECT_FALSE(parse_url(bad).ok()) << bad;
  }
}

TEST(EventParser, TakesBytesInAnyPieces) {
  const std::string stream = "data: {\"a\":1}\r\n\r\n: comment\nevent: x\ndata:two\n\ndata: [DONE]\n\n";
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    EventParser parser;
    std::vector<std::string> events;
    for (size_t at = 0; at < stream.size(); at += piece) {
      ASSERT_TRUE(parser
                      .feed(std::string_view(stream).substr(at, piece),
                            [&](std::string_view data) { events.emplace_back(data); })
                      .ok());
    }
    EXPECT_EQ(events, (std::vector<std::string>{"{\"a\":1}", "two", "[DONE]"})) << piece;
  }
  EventParser parser;
  EXPECT_FALSE(parser.feed(std::string((1 << 20) + 1, 'x'), [](std::string_view) {}).ok());
}

TEST(HttpCallTest, SendsTheKeyAndReadsChunks) {
  std::string body;
  std::string head;
  {
    FakeServer server("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n", 1);
    const auto status =
        http_call(*parse_url(server.url()), {.path = "/x", .body = "{}", .api_key = "k"}, [&](std::string_view piece) {
          body += piece;
          return true;
        });
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(*status, 200);
    head = server.head();
  }
  EXPECT_EQ(body, "abcdefg");
  EXPECT_TRUE(head.starts_with("POST /v1/x HTTP/1.1\r\n"));
  EXPECT_NE(head.find("Authorization: Bearer k\r\n"), std::string::npos);
  EXPECT_NE(head.find("Content-Length: 2\r\n"), std::string::npos);
}

TEST(HttpCallTest, AnAnswerCutShortIsAnError) {
  FakeServer server("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", 1);
  const auto status = http_call(*parse_url(server.url()), {.body = "{}"}, [](std::string_view) { return true; });
  EXPECT_FALSE(status.ok());
}

TEST(HttpCallTest, TheCallerMayEndIt) {
  FakeServer server("HTTP/1.1 503 Busy\r\nContent-Length: 3\r\n\r\nabc", 1);
  std::atomic<int> socket{-1};
  int seen = -1;
  const auto refuse = [&](std::string_view) {
    seen = socket.load();
    return false;
  };
  const auto status = http_call(*parse_url(server.url()), {.body = "{}"}, refuse, &socket);
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(*status, 503);
  EXPECT_GE(seen, 0) << "the connection's descriptor while the call runs";
  EXPECT_EQ(socket, -1);
}

TEST(HttpCallTest, NobodyThereIsAnError) {
  boost::asio::io_context context;
  tcp::acceptor acceptor(context, tcp::endpoint(tcp::v4(), 0));
  const auto port = acceptor.local_endpoint().port();
  acceptor.close();
  const auto status =
      http_call(*parse_url(fmt::format("http://127.0.0.1:{}", port)), {}, [](std::string_view) { return true; });
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("no answer from 127.0.0.1"), std::string::npos);
}

TEST(Load, CountsWhatTheServerStreams) {
  const std::string answer =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
      "data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n"
      "data: {\"choices\":[{\"index\":0,\"text\":\"b\"}]}\n\n"
      "data: "
      "{\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_"
      "tokens\":4}}}\n\n"
      "data: [DONE]\n\n";
  FakeServer server(answer, 3);
  LoadPlan plan;
  plan.url = server.url();
  plan.endpoint = "/completions";
  plan.requests = 3;
  plan.concurrency = 2;
  plan.body = [](int index) { return fmt::format("{{\"i\":{}}}", index); };
  const auto report = run_load(plan);
  ASSERT_TRUE(report.ok());
  for (const LoadResult& r : report->results) {
    EXPECT_TRUE(r.ok) << r.error;
    EXPECT_EQ(r.chunks, 2);
    EXPECT_EQ(r.gaps.size(), 1u);
    EXPECT_GE(r.total, r.first);
  }
  const json::Object s = summarize(*report);
  EXPECT_EQ(s.at("failed").as_int64(), 0);
  EXPECT_EQ(s.at("output_tokens").as_int64(), 6);
  EXPECT_GT(s.at("client_cpu_seconds").as_double(), 0);
  EXPECT_LE(s.at("client_cpu_seconds").as_double(), 10 * s.at("seconds").as_double() + 1);
  EXPECT_EQ(s.at("cached_tokens").as_int64(), 12);
  EXPECT_NE(summary_text(s).find("requests 3, failed 0"), std::string::npos);
}

TEST(Load, FailuresAreCountedAndNamed) {
  FakeServer server("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy", 1);
  LoadPlan plan;
  plan.url = server.url();
  plan.requests = 1;
  plan.body = [](int) { return std::string("{}"); };
  const auto report = run_load(plan);
  ASSERT_TRUE(report.ok());
  EXPECT_FALSE(report->results[0].ok);
  EXPECT_EQ(report->results[0].error, "status 429: busy");
  const json::Object s = summarize(*report);
  EXPECT_EQ(s.at("failed").as_int64(), 1);
  EXPECT_NE(summary_text(s).find("status 429"), std::string::npos);
}

TEST(Load, QuantilesInterpolate) {
  std::vector<double> values = {4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 4);
  std::vector<double> none;
  EXPECT_DOUBLE_EQ(quantile(none, 0.5), 0);
}

}  // namespace
}  // namespace tern::client
