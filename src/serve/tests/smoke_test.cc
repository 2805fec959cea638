#include <gtest/gtest.h>

#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

TEST(Smoke, Chat) {
  TestServer server;
  Client c(server.port());
  const auto r = c.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi there"}],"stream":true,"stream_options":{"include_usage":true}})");
  std::cout << r.status << " " << r.body << "\n";
  const auto r2 = c.post("/v1/completions", R"({"prompt":"hi there","max_tokens":4,"n":2,"echo":true})");
  std::cout << r2.status << " " << r2.body << "\n";
  std::cout << c.get("/metrics").body << "\n";
  EXPECT_EQ(r.status, 200);
}

}  // namespace
}  // namespace tern::serve::testing
