#include "fetch/url.h"

#include <gtest/gtest.h>

#include "fetch/address.h"

namespace tern::fetch {
namespace {

struct Row {
  const char* url;
  const char* host;  // nullptr: refused
  int port = 0;
};

void expect_rows(const std::vector<Row>& rows, const FetchPolicy& policy) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.url);
    const auto target = check_url(row.url, policy);
    EXPECT_EQ(target.ok(), row.host != nullptr) << (target.ok() ? target->host : target.error().message);
    if (!target.ok() || row.host == nullptr) continue;
    EXPECT_EQ(target->host, row.host);
    EXPECT_EQ(target->port, row.port);
  }
}

const std::vector<Row> kForms = {
    // Plain ones.
    {"http://example.org/a.png", "example.org", 80},
    {"https://example.org", "example.org", 443},
    {"HTTPS://EXAMPLE.org/A", "example.org", 443},
    {"https://example.org:443/x?y=http://127.0.0.1/", "example.org", 443},
    {"http://example.org:/x", "example.org", 80},
    {"http://example.org./x", "example.org", 80},
    {"https://a_b.example.org/", "a_b.example.org", 443},
    {"https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443},
    {"http://8.8.8.8/", "8.8.8.8", 80},
    {"http://[2606:4700::1111]/", "2606:4700::1111", 80},
    {"https://example.org/\xE5\x9B\xBE \xE7\x89\x87.png", "example.org", 443},
    {"https://example.org?x=@127.0.0.1", "example.org", 443},
    {"https://example.org#@127.0.0.1/", "example.org", 443},
    {"https://example.org/@127.0.0.1\\..", "example.org", 443},
    // Addresses that are not public, in all spellings.
    {"http://127.0.0.1/", nullptr},
    {"http://127.1/", nullptr},
    {"http://127.0.1/", nullptr},
    {"http://2130706433/", nullptr},
    {"http://017700000001/", nullptr},
    {"http://0177.0.0.1/", nullptr},
    {"http://0x7f000001/", nullptr},
    {"http://0x7f.0x0.0x0.0x1/", nullptr},
    {"http://0X7F.1/", nullptr},
    {"http://127.0.0.1./", nullptr},
    {"http://127.0.0.01/", nullptr},
    {"http://0/", nullptr},
    {"http://0.0.0.0/", nullptr},
    {"http://10.1.2.3/", nullptr},
    {"http://172.16.0.1/", nullptr},
    {"http://172.31.255.255/", nullptr},
    {"http://192.168.1.1/", nullptr},
    {"http://169.254.169.254/latest/meta-data/", nullptr},
    {"http://100.64.0.1/", nullptr},
    {"http://100.100.100.200/", nullptr},
    {"http://168.63.129.16/", nullptr},
    {"http://192.0.0.192/", nullptr},
    {"http://198.18.0.1/", nullptr},
    {"http://198.51.100.7/", nullptr},
    {"http://203.0.113.9/", nullptr},
    {"http://224.0.0.1/", nullptr},
    {"http://255.255.255.255/", nullptr},
    {"http://256.1.1.1/", nullptr},
    {"http://1.2.3.4.5/", nullptr},
    {"http://4294967296/", nullptr},
    {"http://0x08080808/", nullptr},  // public, but not how anyone writes it
    {"http://[::1]/", nullptr},
    {"http://[::]/", nullptr},
    {"http://[::ffff:127.0.0.1]/", nullptr},
    {"http://[::ffff:7f00:1]/", nullptr},
    {"http://[0:0:0:0:0:ffff:a9fe:a9fe]/", nullptr},
    {"http://[::127.0.0.1]/", nullptr},
    {"http://[64:ff9b::10.0.0.1]/", nullptr},
    {"http://[64:ff9b:1::1]/", nullptr},
    {"http://[2002:7f00:1::]/", nullptr},
    {"http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/", nullptr},
    {"http://[fe80::1]/", nullptr},
    {"http://[fe80::1%25eth0]/", nullptr},
    {"http://[fe80::1%eth0]/", nullptr},
    {"http://[2606:4700::1111%25lo]/", nullptr},
    {"http://[fc00::1]/", nullptr},
    {"http://[fd12:3456::1]/", nullptr},
    {"http://[fec0::1]/", nullptr},
    {"http://[ff02::1]/", nullptr},
    {"http://[2001:db8::1]/", nullptr},
    {"http://[3fff::1]/", nullptr},
    {"http://[v1.fe80]/", nullptr},
    {"http://[127.0.0.1]/", nullptr},
    {"http://[::1/", nullptr},
    {"http://::1/", nullptr},
    // User names and what readers disagree on.
    {"http://user@example.org/", nullptr},
    {"http://user:pass@example.org/", nullptr},
    {"http://example.org@127.0.0.1/", nullptr},
    {"http://127.0.0.1@example.org/", nullptr},
    {"http://example.org:80@127.0.0.1/", nullptr},
    {"http://@127.0.0.1/", nullptr},
    {"http://example.org\\@127.0.0.1/", nullptr},
    {"http://127.0.0.1\\@example.org/", nullptr},
    {"http://example.org\\.evil.test/", nullptr},
    {"http:\\\\127.0.0.1\\", nullptr},
    {"http:/\\127.0.0.1/", nullptr},
    {"http:///127.0.0.1/", nullptr},
    {"http:////127.0.0.1/", nullptr},
    {"http:/127.0.0.1/", nullptr},
    {"http:127.0.0.1/", nullptr},
    {"http:///", nullptr},
    {"http://", nullptr},
    {"http://:80/", nullptr},
    {"http://./", nullptr},
    {"http://a..b/", nullptr},
    {"http://.example.org/", nullptr},
    {"http://127.0.0.1%00.example.org/", nullptr},
    {"http://%31%32%37.0.0.1/", nullptr},
    {"http://example%2eorg/", nullptr},
    {"http://exam\tple.org/", nullptr},
    {"http://exam\nple.org/", nullptr},
    {"\thttp://example.org/", nullptr},
    {" http://example.org/", nullptr},
    {"http://example.org/\r\nHost: inside", nullptr},
    {"http:// example.org/", nullptr},
    {"http://example.org /", nullptr},
    {"http://\xE2\x91\xA0\xE2\x91\xA1\xE2\x91\xA6.0.0.1/", nullptr},  // circled digits
    {"http://\xEF\xBC\x91\xEF\xBC\x92\xEF\xBC\x97.0.0.1/", nullptr},  // full-width digits
    {"http://example\xE3\x80\x82org/", nullptr},                      // ideographic full stop
    {"http://b\xC3\xBC\x63her.example/", nullptr},
    {"http://exa,mple.org/", nullptr},
    {"http://exa<mple.org/", nullptr},
    // Ports.
    {"http://example.org:8080/", nullptr},
    {"http://example.org:22/", nullptr},
    {"http://example.org:0/", nullptr},
    {"http://example.org:65536/", nullptr},
    {"http://example.org:99999999999/", nullptr},
    {"http://example.org:-1/", nullptr},
    {"http://example.org:80:80/", nullptr},
    {"http://example.org:0x50/", nullptr},
    // Schemes.
    {"ftp://example.org/", nullptr},
    {"gopher://example.org/", nullptr},
    {"dict://example.org:11211/", nullptr},
    {"file:///etc/passwd", nullptr},
    {"file://example.org/etc/passwd", nullptr},
    {"jar:http://example.org/!/", nullptr},
    {"//example.org/", nullptr},
    {"example.org", nullptr},
    {"javascript:alert(1)", nullptr},
    {"httpx://example.org/", nullptr},
    {"", nullptr},
    {":", nullptr},
};

TEST(Url, TableOfForms) {
  ASSERT_GE(kForms.size(), 100u);
  expect_rows(kForms, {});
}

TEST(Url, ListedHosts) {
  FetchPolicy policy;
  policy.allowed_domains = {"Pictures.example.org", ".cdn.test", "inside:8080", "[fd00::5]:81", "10.0.0.7"};
  expect_rows(
      {
          {"https://pictures.example.org/", "pictures.example.org", 443},
          {"https://pictures.example.org./", "pictures.example.org", 443},
          {"https://cdn.test/", "cdn.test", 443},
          {"https://a.b.cdn.test/", "a.b.cdn.test", 443},
          {"http://inside:8080/", "inside", 8080},
          {"http://[fd00::5]:81/", "fd00::5", 81},
          {"http://10.0.0.7/", "10.0.0.7", 80},
          {"https://x.pictures.example.org/", nullptr},
          {"https://pictures.example.org.evil.test/", nullptr},
          {"https://evilcdn.test/", nullptr},
          {"https://pictures.example.org:8443/", nullptr},
          {"http://inside/", nullptr},
          {"http://inside:8081/", nullptr},
          {"http://[fd00::5]/", nullptr},
          {"http://10.0.0.8/", nullptr},
          {"http://example.org/", nullptr},
          {"http://8.8.8.8/", nullptr},
      },
      policy);
}

TEST(Url, Flags) {
  FetchPolicy open;
  open.allow_private = true;
  expect_rows({{"http://127.0.0.1:9000/", "127.0.0.1", 9000},
               {"http://[::1]:9000/", "::1", 9000},
               {"http://127.1/", nullptr},
               {"http://a@127.0.0.1/", nullptr}},
              open);
  FetchPolicy secure;
  secure.allow_http = false;
  expect_rows({{"http://example.org/", nullptr}, {"https://example.org/", "example.org", 443}}, secure);
  const auto overlong = check_url("http://example.org/" + std::string(kMaxUrlBytes, 'a'), {});
  ASSERT_FALSE(overlong.ok());
  EXPECT_EQ(overlong.error().code, ErrorCode::kTooLarge);
}

TEST(Url, RefusalsSayTheSame) {
  // Nobody learns from the text whether a name exists inside.
  const auto literal = check_url("http://10.0.0.1/", {});
  ASSERT_FALSE(literal.ok());
  EXPECT_EQ(literal.error().message, refused_host().message);
  EXPECT_EQ(literal.error().message.find("10."), std::string::npos);
}

TEST(Address, Borders) {
  for (const char* text : {"9.255.255.255",    "11.0.0.0",        "100.63.255.255",  "100.128.0.0",   "126.255.255.255",
                           "128.0.0.1",        "169.253.255.255", "172.15.255.255",  "172.32.0.0",    "192.167.255.255",
                           "198.17.255.255",   "198.20.0.0",      "223.255.255.255", "168.63.129.15", "::ffff:8.8.8.8",
                           "64:ff9b::808:808", "2001:200::1",     "2003::1",         "2600::",        "2a00:1450::1"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_TRUE(is_public(*address)) << text;
    EXPECT_EQ(parse_address(address_text(*address)), address) << text;
  }
  for (const char* text :
       {"0.0.0.0", "10.255.255.255", "100.127.255.255", "127.255.255.254", "192.88.99.1", "239.1.1.1", "240.0.0.1",
        "2001:1ff::1", "2001:2::1", "2002:808:808::1", "::8.8.8.8", "4000::1", "1::1", "64:ff9b::7f00:1",
        "::ffff:10.0.0.1", "febf::1", "fe80::1", "fdff::1", "ffff::1"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_FALSE(is_public(*address)) << text;
  }
  for (const char* text : {"", "1", "1.2", "1.2.3", "01.2.3.4", "1.2.3.4 ", "0x1.2.3.4", "1.2.3.4.5", "[::1]",
                           "fe80::1%lo", "::1::", "12345::"}) {
    EXPECT_FALSE(parse_address(text)) << text;
  }
}

}  // namespace
}  // namespace tern::fetch
