// The page at /: what it is sent with, who gets it, and where it is not.
#include <gtest/gtest.h>

#include "base/sha256.h"
#include "serve/http/negotiate.h"
#include "serve/page/page.h"
#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

constexpr size_t kMostCompressed = 150u << 10;
constexpr const char* kKey = "Authorization: Bearer k\r\n";

ServeConfig with_key() {
  ServeConfig config = test_config();
  config.api_keys = {"k"};
  return config;
}

std::string base64(const Digest& digest) {
  constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < digest.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (i + k < digest.size() ? digest[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k) out += i + k <= digest.size() ? kLetters[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

// What stands in the only element of that name.
std::string inside(const std::string& html, const std::string& tag) {
  const size_t begin = html.find("<" + tag + ">") + tag.size() + 2, end = html.find("</" + tag + ">");
  EXPECT_EQ(html.find("<" + tag, begin), std::string::npos) << "one " << tag;
  return html.substr(begin, end - begin);
}

size_t occurrences(std::string_view text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Page, OneFileThatAsksForNothingElse) {
  TestServer server;
  const auto reply = Client(server.port()).get("/");
  ASSERT_EQ(reply.status, 200);
  EXPECT_EQ(reply.header("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(reply.header("content-encoding"), "");
  EXPECT_TRUE(reply.body.starts_with("<!doctype html>"));
  EXPECT_LE(page::file().gzip.size(), kMostCompressed);
  for (const char* outside : {"src=\"", "@import", "import(", "https://", "//cdn", "XMLHttpRequest", "WebSocket"})
    EXPECT_EQ(occurrences(reply.body, outside), 0u) << outside;
  EXPECT_EQ(inside(reply.body, "style").find("url("), std::string::npos);
  // Addresses in it: the namespace of SVG, which nobody asks for, and nothing more.
  EXPECT_EQ(occurrences(reply.body, "http://"), occurrences(reply.body, "http://www.w3.org/2000/svg"));
  // No text can become markup, and nothing runs that was a text.
  for (const char* sink : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(",
                           "srcdoc", "DOMParser", " style=\"", " onclick=\"", "javascript:"})
    EXPECT_EQ(occurrences(reply.body, sink), 0u) << sink;
}

TEST(Page, ThePolicyNamesWhatItHolds) {
  TestServer server;
  const auto reply = Client(server.port()).get("/");
  const std::string policy = reply.header("content-security-policy");
  for (const char* tag : {"script", "style"}) {
    const std::string hash = "'sha256-" + base64(sha256(inside(reply.body, tag))) + "'";
    EXPECT_NE(policy.find(std::string(tag) + "-src " + hash + ";"), std::string::npos) << policy;
  }
  EXPECT_TRUE(policy.starts_with("default-src 'none'; ")) << policy;
  for (const char* rule : {"connect-src 'self';", "img-src blob: data:;", "base-uri 'none';", "form-action 'none';",
                           "frame-ancestors 'none';", "require-trusted-types-for 'script';"})
    EXPECT_NE(policy.find(rule), std::string::npos) << rule;
  for (const char* hole : {"unsafe", "*", "http:", "https:"}) EXPECT_EQ(policy.find(hole), std::string::npos) << hole;
  EXPECT_EQ(reply.header("x-content-type-options"), "nosniff");
  EXPECT_EQ(reply.header("x-frame-options"), "DENY");
  EXPECT_EQ(reply.header("referrer-policy"), "no-referrer");
  EXPECT_EQ(reply.header("cross-origin-opener-policy"), "same-origin");
}

TEST(Page, CompressedAndNotSentTwice) {
  TestServer server;
  Client c(server.port());
  const auto plain = c.get("/"), zipped = c.get("/", "Accept-Encoding: gzip, deflate, br\r\n");
  EXPECT_EQ(zipped.header("content-encoding"), "gzip");
  EXPECT_EQ(zipped.body, page::file().gzip);
  EXPECT_EQ(zipped.body.substr(0, 2), "\x1f\x8b");
  EXPECT_EQ(plain.body, page::file().html);
  EXPECT_NE(plain.header("etag"), zipped.header("etag")) << "other bytes, another tag";
  for (const auto& reply : {plain, zipped}) {
    EXPECT_EQ(reply.header("vary"), "Accept-Encoding");
    EXPECT_EQ(reply.header("cache-control"), "no-cache");
  }
  const std::string tag = plain.header("etag");
  const auto again = c.get("/", "If-None-Match: \"x\", W/" + tag + "\r\n");
  EXPECT_EQ(again.status, 304);
  EXPECT_EQ(again.body, "");
  EXPECT_EQ(again.header("etag"), tag);
  EXPECT_EQ(c.get("/", "If-None-Match: \"x\"\r\n").status, 200);
  EXPECT_EQ(c.get("/", "Accept-Encoding: gzip\r\nIf-None-Match: " + tag + "\r\n").status, 200) << "the other's tag";
}

TEST(Page, HeadSaysWhatGetWould) {
  TestServer server;
  Client c(server.port());
  c.send("HEAD / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
  const auto head = c.receive(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(head.header("content-length"), std::to_string(page::file().gzip.size()));
  EXPECT_EQ(head.header("content-encoding"), "gzip");
}

TEST(Page, NeedsNoKeyAndHoldsNone) {
  TestServer server(with_key());
  Client c(server.port());
  const auto page = c.get("/");
  EXPECT_EQ(page.status, 200);
  TestServer open;
  EXPECT_EQ(page.body, Client(open.port()).get("/").body) << "the same for every server";
  EXPECT_EQ(c.get("/page/config").status, 401);
  for (const char* data : {"/v1/models", "/metrics", "/config-info"}) EXPECT_EQ(c.get(data).status, 401) << data;
  EXPECT_EQ(c.get("/page/config", kKey).status, 200);
  EXPECT_EQ(c.get("/?x=1").status, 200);
  EXPECT_EQ(c.get("/index.html").status, 401) << "/ alone";
  EXPECT_EQ(c.get("/index.html", kKey).status, 404);
}

TEST(Page, OtherMethodsFindNothing) {
  TestServer server;
  for (const char* path : {"/", "/page/config"}) {
    for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
      const auto reply = Client(server.port()).request(method, path);
      EXPECT_EQ(reply.status, 404) << method << path;
      EXPECT_EQ(reply.body, "{\"detail\":\"Not Found\"}") << method << path;
    }
  }
}

TEST(Page, NoPage) {
  ServeConfig config = test_config();
  config.page = false;
  TestServer server(config);
  for (const char* path : {"/", "/page/config", "/page/config/"}) {
    const auto reply = Client(server.port()).get(path);
    EXPECT_EQ(reply.status, 404) << path;
    EXPECT_EQ(reply.body, "{\"detail\":\"Not Found\"}");
    EXPECT_EQ(reply.header("content-security-policy"), "");
  }
  config.api_keys = {"k"};
  TestServer keyed(config);
  EXPECT_EQ(Client(keyed.port()).get("/").status, 401);
  EXPECT_EQ(Client(keyed.port()).get("/", kKey).status, 404);
}

TEST(Page, ConfigOfATextModel) {
  ServeConfig config = test_config();
  config.served_model_name = "a \"name\"";
  TestServer server(config);
  const auto reply = Client(server.port()).get("/page/config");
  ASSERT_EQ(reply.status, 200);
  const auto said = reply.json().as_object();
  EXPECT_EQ(said.at("model").as_string(), "a \"name\"");
  EXPECT_EQ(said.at("images").as_int64(), 0);
  EXPECT_EQ(said.at("architecture").as_string(), "");
  EXPECT_EQ(said.at("max_model_len").as_int64(), config.max_model_len);
  EXPECT_FALSE(said.at("reasoning").as_bool());
  EXPECT_FALSE(said.at("tools").as_bool());
  EXPECT_TRUE(said.at("metrics").as_bool());
}

TEST(Negotiation, Encodings) {
  using http::accepts_gzip;
  for (const char* yes : {"gzip", "GZIP", "x-gzip", "deflate, gzip", " gzip ;q=0.5", "gzip;q=1.0", "br;q=0,gzip",
                          "gzip;q=", "gzip;x=0", "identity, gzip;q=0.001"})
    EXPECT_TRUE(accepts_gzip(yes)) << yes;
  for (const char* no :
       {"", "*", "identity", "gzi", "gzipp", "gzip;q=0", "gzip; q=0.000", "GZIP;Q=0", ",,;", "deflate"})
    EXPECT_FALSE(accepts_gzip(no)) << no;
}

TEST(Negotiation, Tags) {
  using http::names_tag;
  for (const char* yes : {"\"a\"", "W/\"a\"", "*", " * ", "\"b\", \"a\"", "\"b\",W/\"a\",\"c\""})
    EXPECT_TRUE(names_tag(yes, "\"a\"")) << yes;
  for (const char* no : {"", "a", "\"ab\"", "W/a", "\"b\"", "w/\"a\"", "\"A\"", ", ,"})
    EXPECT_FALSE(names_tag(no, "\"a\"")) << no;
  EXPECT_FALSE(names_tag("", "")) << "no tag";
}

}  // namespace
}  // namespace tern::serve::testing
