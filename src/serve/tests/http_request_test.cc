// The HTTP parser alone: what it takes, what it refuses, and that the borders of reads do not matter.
#include "serve/http/request.h"

#include <gtest/gtest.h>

#include "serve/http/target.h"

namespace tern::serve::http {
namespace {

using Progress = RequestParser::Progress;

struct Outcome {
  int status = 0;  // 0: more bytes are needed; 200: a whole request
  Head head;
  std::string body, rest;
};

Outcome parse(const std::string& bytes, size_t step = SIZE_MAX, ParserLimits limits = {1024, 4096}) {
  RequestParser parser(limits);
  std::string buffer;
  Outcome out;
  for (size_t at = 0; at < bytes.size() || out.status == 0;) {
    if (at >= bytes.size()) break;
    const size_t n = std::min(step, bytes.size() - at);
    buffer.append(bytes, at, n);
    at += n;
    while (out.status == 0) {
      size_t used = 0;
      const Progress p = parser.advance(buffer, used);
      buffer.erase(0, used);
      if (p == Progress::kMore) break;
      if (p == Progress::kError) out.status = parser.error_status();
      if (p == Progress::kDone) out.status = 200;
    }
    if (out.status != 0) {
      out.rest = buffer + bytes.substr(at);
      break;
    }
  }
  out.head = parser.head();
  out.body = parser.body();
  return out;
}

TEST(HttpRequest, TakesPlainRequests) {
  const auto get = parse("GET /v1/models?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(get.status, 200);
  EXPECT_EQ(get.head.path, "/v1/models");
  EXPECT_EQ(get.head.query, "x=1");
  EXPECT_TRUE(get.head.keep_alive);
  const auto post =
      parse("POST / HTTP/1.1\r\nhOST: a\r\ncontent-LENGTH: 5\r\nAuthorization: \t Bearer k \r\n\r\nhelloGET");
  EXPECT_EQ(post.status, 200);
  EXPECT_EQ(post.body, "hello");
  EXPECT_EQ(post.head.authorization, "Bearer k");
  EXPECT_EQ(post.rest, "GET");
  const auto old = parse("GET / HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.status, 200);
  EXPECT_FALSE(old.head.keep_alive);
  EXPECT_TRUE(parse("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").head.keep_alive);
  EXPECT_FALSE(parse("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n").head.keep_alive);
  for (const size_t step : {size_t{1}, size_t{2}, size_t{3}, SIZE_MAX}) {
    EXPECT_EQ(parse("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", step).status, 200) << step;
    EXPECT_EQ(parse("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", step).status, 400) << "one empty line only";
    EXPECT_EQ(parse("\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", step).status, 400) << "a CR alone";
    EXPECT_EQ(parse("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", step).status, 400) << "an LF alone";
  }
}

TEST(HttpRequest, TakesChunkedBodies) {
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n";
  const auto r = parse(head + "5\r\nhello\r\n00B;name=x\r\n 0123456 89\r\n0\r\nTrailer: x\r\n\r\nrest");
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.body, "hello 0123456 89");
  EXPECT_EQ(r.rest, "rest");
  for (const char* bad : {"x\r\n", "\r\n", "-5\r\nhello\r\n", "5 \r\nhello\r\n", "0x5\r\nhello\r\n", "5\nhello\n",
                          "5\r\nhelloo\r\n", "ffffffffffffffff\r\n", "10000000000000000\r\n", "+5\r\nhello\r\n"}) {
    EXPECT_EQ(parse(head + bad).status, 400) << bad;
  }
  EXPECT_EQ(parse(head + "1001\r\n").status, 413);
  EXPECT_EQ(parse(head + "fff\r\n" + std::string(0xfff, 'x') + "\r\n2\r\n").status, 413);
  EXPECT_EQ(parse(head + "5;" + std::string(300, 'x') + "\r\n").status, 400);
  EXPECT_EQ(parse(head + "0\r\n" + std::string(2000, 'x')).status, 400);
  std::string trailers = head + "0\r\n";
  for (int i = 0; i < 200; ++i) trailers += "a: bbbbbbbb\r\n";
  EXPECT_EQ(parse(trailers).status, 431);
}

TEST(HttpRequest, RefusesWhatCouldBeReadTwoWays) {
  const std::string line = "POST / HTTP/1.1\r\nHost: a\r\n";
  const struct {
    const char* what;
    std::string bytes;
    int status;
  } cases[] = {
      {"length and chunked", line + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"chunked and length", line + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400},
      {"two lengths", line + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400},
      {"two equal lengths", line + "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400},
      {"length list", line + "Content-Length: 5, 5\r\n\r\n", 400},
      {"signed length", line + "Content-Length: +5\r\n\r\n", 400},
      {"negative length", line + "Content-Length: -1\r\n\r\n", 400},
      {"hex length", line + "Content-Length: 0x5\r\n\r\n", 400},
      {"empty length", line + "Content-Length: \r\n\r\n", 400},
      {"length beyond 64 bits", line + "Content-Length: 99999999999999999999999\r\n\r\n", 400},
      {"two encodings", line + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"unknown encoding", line + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
      {"disguised encoding", line + "Transfer-Encoding: xchunked\r\n\r\n", 501},
      {"space before colon", line + "Content-Length : 5\r\n\r\n", 400},
      {"folded line", line + "X: a\r\n b\r\n\r\n", 400},
      {"bare line feed", "POST / HTTP/1.1\nHost: a\r\n\r\n", 400},
      {"line feed in a value", line + "X: a\nContent-Length: 5\r\n\r\n", 400},
      {"carriage return in a value", line + "X: a\rb\r\n\r\n", 400},
      {"zero byte in a value", line + std::string("X: a\0b\r\n\r\n", 10), 400},
      {"no colon", line + "Content-Length\r\n\r\n", 400},
      {"empty name", line + ": x\r\n\r\n", 400},
      {"two hosts", line + "Host: b\r\n\r\n", 400},
      {"no host", "GET / HTTP/1.1\r\n\r\n", 400},
      {"two keys", line + "Authorization: a\r\nAuthorization: b\r\n\r\n", 400},
      {"chunked in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"HTTP/2", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
      {"HTTP/0.9", "GET /\r\n\r\n", 400},
      {"two spaces", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"space in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"tab in the target", "GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"bad method", "G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"compressed body", line + "Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\n", 415},
      {"other expectation", line + "Expect: 200-ok\r\nContent-Length: 5\r\n\r\n", 417},
      {"long body", line + "Content-Length: 4097\r\n\r\n", 413},
      {"long header", line + "X: " + std::string(1100, 'a'), 431},
      {"long finished header", line + "X: " + std::string(1100, 'a') + "\r\n\r\n", 431},
      {"long request line", "GET /" + std::string(1100, 'a'), 431},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(parse(c.bytes).status, c.status) << c.what;
    EXPECT_EQ(parse(c.bytes, 1).status, c.status) << c.what << ", byte by byte";
  }
}

TEST(HttpRequest, BordersOfReadsDoNotMatter) {
  const std::string request =
      "POST /v1/%63hat HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n4;x\r\ndefg\r\n0\r\nT: 1\r\n\r\n";
  for (size_t step = 1; step < request.size(); ++step) {
    const auto r = parse(request, step);
    ASSERT_EQ(r.status, 200) << step;
    ASSERT_EQ(r.body, "abcdefg") << step;
    ASSERT_EQ(r.head.path, "/v1/chat") << step;
    ASSERT_TRUE(r.head.expect_continue);
  }
}

TEST(HttpRequest, TakesTheAbsoluteForm) {
  const auto line = [](std::string_view target) {
    return parse("GET " + std::string(target) + " HTTP/1.1\r\nHost: a\r\n\r\n");
  };
  const auto plain = line("http://t:8000/v1/%6dodels?x=1");
  EXPECT_EQ(plain.status, 200);
  EXPECT_EQ(plain.head.path, "/v1/models");
  EXPECT_EQ(plain.head.query, "x=1");
  EXPECT_EQ(plain.head.host, "t:8000") << "the target's host, not the header's";
  EXPECT_EQ(line("/v1/models").head.host, "a");
  EXPECT_EQ(line("HTTPS://t/health").head.path, "/health");
  EXPECT_EQ(line("http://[::1]:80/health").head.path, "/health");
  EXPECT_EQ(line("http://t").head.path, "/");
  EXPECT_EQ(line("http://t?x").head.path, "/");
  EXPECT_EQ(line("http://t?x").head.query, "x");
  for (const char* odd : {"http://", "http:///v1/models", "http://a@b/v1/models", "http://a%2fb/v1/models",
                          "http:/v1/models", "ftp://t/v1/models", "http://t/v1/../v1/models", "http://t//v1/models",
                          "http://t#/v1/models", "http://:80/v1/models", "http://t/http://t/v1//models", "t:80", "*"}) {
    EXPECT_EQ(line(odd).head.path, "") << odd;
  }
  EXPECT_EQ(parse("GET http://t/ HTTP/1.1\r\n\r\n").status, 400) << "a Host is needed all the same";
  EXPECT_EQ(parse("GET http://t/ HTTP/1.1\r\nHost: a\r\nHost: t\r\n\r\n").status, 400);
}

TEST(HttpTarget, NamesAreDecodedOnce) {
  std::string name;
  EXPECT_TRUE(decode_name("org%2Fname%20x/%2e%2e%252f%c3%a9", name));
  EXPECT_EQ(name, "org/name x/..%2f\xc3\xa9");
  for (const char* odd : {"%", "%4", "%zz", "a%00", "a%0d%0a", "%7f"}) EXPECT_FALSE(decode_name(odd, name)) << odd;
}

TEST(HttpTarget, OnePathForRouterAndKeyCheck) {
  std::string path, query;
  EXPECT_TRUE(parse_target("/", path, query));
  EXPECT_TRUE(parse_target("/v1/%6dodels?a=%2f", path, query));
  EXPECT_EQ(path, "/v1/models");
  EXPECT_EQ(query, "a=%2f");
  EXPECT_TRUE(parse_target("/v1/models/", path, query));
  for (const char* odd : {"",
                          "v1/models",
                          "//v1/models",
                          "/v1//models",
                          "/./v1/models",
                          "/v1/../v1/models",
                          "/v1/..",
                          "/.",
                          "/v1/%2e%2e/x",
                          "/%2e/x",
                          "/v1%2fmodels",
                          "/v1%2Fmodels",
                          "/v1%5cmodels",
                          "/v1\\models",
                          "/v1/%00",
                          "/v1/%0a",
                          "/v1/%7f",
                          "/v1/%",
                          "/v1/%6",
                          "/v1/%zz",
                          "/v1/%256d",
                          "/v1/#x",
                          "http://host/v1/models",
                          "*",
                          "/v1/\xc3\xa9",
                          "/%c3%a9"}) {
    EXPECT_FALSE(parse_target(odd, path, query)) << odd;
    EXPECT_EQ(path, "") << odd;
  }
}

}  // namespace
}  // namespace tern::serve::http
