// Web pages of other origins, request ids, and what the server says of itself: /v1/models/{model}, /openapi.json.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "serve/http/cors.h"
#include "serve/router.h"
#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

constexpr const char* kShort = R"({"prompt":[5,6,7],"max_tokens":2})";
constexpr const char* kStream = R"({"prompt":[5,6,7],"max_tokens":2,"stream":true})";
constexpr const char* kPage = "Origin: https://app.example\r\n";

ServeConfig open_to(std::vector<std::string> origins) {
  ServeConfig config = test_config();
  config.cors.origins = std::move(origins);
  return config;
}

std::string preflight(std::string_view origin, std::string_view method, std::string_view headers = {}) {
  return fmt::format("Origin: {}\r\nAccess-Control-Request-Method: {}\r\n{}", origin, method, headers);
}

TEST(Cors, OffByDefault) {
  TestServer server;
  Client c(server.port());
  for (const auto& reply : {c.get("/v1/models", kPage), c.post("/v1/completions", kShort, kPage)}) {
    EXPECT_EQ(reply.status, 200);
    for (const auto& [name, value] : reply.headers) EXPECT_FALSE(name.starts_with("access-control")) << name;
    EXPECT_EQ(reply.header("vary"), "");
  }
  const auto asked = c.request("OPTIONS", "/v1/completions", {}, preflight("https://app.example", "POST"));
  EXPECT_EQ(asked.status, 204) << "the plain answer to OPTIONS";
  EXPECT_EQ(asked.header("access-control-allow-origin"), "");
}

TEST(Cors, HeadersOnEveryAnswer) {
  ServeConfig config = open_to({"https://app.example", "http://localhost:3000"});
  config.cors.credentials = true;
  config.api_keys = {"k"};
  TestServer server(config);
  const std::string key = "Authorization: Bearer k\r\n";
  const auto reply = [&](std::string_view method, std::string_view path, std::string_view body,
                         const std::string& more) { return Client(server.port()).request(method, path, body, more); };
  const Reply answers[] = {reply("POST", "/v1/completions", kShort, key + kPage),
                           reply("POST", "/v1/completions", kStream, key + kPage),
                           reply("POST", "/v1/completions", "{", key + kPage),
                           reply("GET", "/nothing", {}, key + kPage),
                           reply("GET", "/v1/models/", {}, key + kPage),
                           reply("PUT", "/v1/models", {}, key + kPage),
                           reply("GET", "/v1/models", {}, kPage),
                           reply("GET", "/health", {}, kPage)};
  const int status[] = {200, 200, 400, 404, 307, 405, 401, 200};
  for (size_t i = 0; i < std::size(status); ++i) {
    EXPECT_EQ(answers[i].status, status[i]) << i;
    EXPECT_EQ(answers[i].header("access-control-allow-origin"), "https://app.example") << i;
    EXPECT_EQ(answers[i].header("access-control-allow-credentials"), "true") << i;
    EXPECT_EQ(answers[i].header("access-control-expose-headers"), "x-request-id") << i;
    EXPECT_EQ(answers[i].header("vary"), "Origin") << i;
  }
  for (const char* other : {"", "Origin: https://evil.example\r\n", "Origin: https://app.example.evil\r\n",
                            "Origin: null\r\n", "Origin: https://app.example\r\nOrigin: https://app.example\r\n"}) {
    const auto r = reply("GET", "/v1/models", {}, key + other);
    EXPECT_EQ(r.status, 200);
    EXPECT_EQ(r.header("access-control-allow-origin"), "") << other;
    EXPECT_EQ(r.header("vary"), "Origin") << "a cache must not mix them";
  }
}

TEST(Cors, PreflightComesBeforeTheKey) {
  ServeConfig config = open_to({"https://app.example"});
  config.api_keys = {"k"};
  config.cors.methods = {"POST"};
  config.cors.headers = {"X-Thing"};
  TestServer server(config);
  const auto ask = [&](const std::string& headers) {
    return Client(server.port()).request("OPTIONS", "/v1/chat/completions", {}, headers);
  };
  const auto good =
      ask(preflight("https://app.example", "POST", "Access-Control-Request-Headers: content-type, X-THING\r\n"));
  EXPECT_EQ(good.status, 200);
  EXPECT_EQ(good.header("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(good.header("access-control-allow-methods"), "POST");
  EXPECT_EQ(good.header("access-control-allow-headers"), "content-type, x-thing");
  EXPECT_EQ(good.header("access-control-max-age"), "600");
  EXPECT_EQ(good.header("access-control-allow-credentials"), "");
  EXPECT_NE(good.header("x-request-id"), "");
  const auto bad = ask(preflight("https://evil.example", "PUT", "Access-Control-Request-Headers: x-other\r\n"));
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(bad.body, "Disallowed CORS origin, method, headers");
  EXPECT_EQ(bad.header("access-control-allow-origin"), "");
  EXPECT_EQ(ask(preflight("https://app.example", "POST", "Access-Control-Request-Headers: authorization\r\n")).status,
            400);
  EXPECT_EQ(Client(server.port()).post("/v1/chat/completions", "{}", kPage).status, 401)
      << "the request itself has one";

  TestServer all(open_to({"*"}));
  const auto any = Client(all.port())
                       .request("OPTIONS", "/v1/models", {},
                                preflight("https://x", "DELETE", "Access-Control-Request-Headers: Authorization\r\n"));
  EXPECT_EQ(any.status, 200);
  EXPECT_EQ(any.header("access-control-allow-origin"), "*");
  EXPECT_EQ(any.header("access-control-allow-headers"), "authorization");
  EXPECT_EQ(any.header("access-control-allow-methods"), "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT");
  EXPECT_EQ(Client(all.port()).get("/v1/models", kPage).header("access-control-allow-origin"), "*");
}

TEST(Cors, TheControllerIsForNoPage) {
  ServeConfig config = open_to({"*"});
  config.controller_port = 0;
  TestServer server(config);
  Client c(server.server().controller_port());
  EXPECT_EQ(c.post("/controller/scheduler", "{}", kPage).header("access-control-allow-origin"), "");
  EXPECT_EQ(c.request("OPTIONS", "/controller/scheduler", {}, preflight("https://x", "POST")).status, 204);
}

TEST(Cors, RulesThatAreRefused) {
  const auto param = [](http::CorsRules rules) {
    const Status status = http::check(rules);
    return status.ok() ? std::string() : status.error().param;
  };
  EXPECT_EQ(param({}), "");
  EXPECT_EQ(param({{"*"}, {"*"}, {"*"}, false}), "");
  EXPECT_EQ(param({{"https://a.example:8443", "null"}, {"GET", "POST"}, {"Authorization"}, true}), "");
  EXPECT_EQ(param({{"*"}, {"*"}, {"*"}, true}), "allowed-origins");
  EXPECT_EQ(param({{"https://a", "*"}, {"*"}, {"*"}, true}), "allowed-origins");
  for (const char* odd :
       {"a.example", "https://a/", "https://a/b", "https://u@a", "://a", "https://", "https://a\r\nX: y"})
    EXPECT_EQ(param({{odd}, {"*"}, {"*"}, false}), "allowed-origins") << odd;
  EXPECT_EQ(param({{"*"}, {"get"}, {"*"}, false}), "allowed-methods");
  EXPECT_EQ(param({{"*"}, {"*"}, {"a b"}, false}), "allowed-headers");
  EXPECT_EQ(param({{}, {"*"}, {"*"}, true}), "allow-credentials");
  EXPECT_EQ(param({{}, {"GET"}, {"*"}, false}), "allowed-methods");
  EXPECT_EQ(param({{}, {"*"}, {"X"}, false}), "allowed-headers");
  RecordingEngine engine;
  ServeConfig config = open_to({"*"});
  config.cors.credentials = true;
  EXPECT_FALSE(Server::start(config, engine, {}).ok());
}

TEST(RequestId, TakenOrMadeAndSentBack) {
  TestServer server;
  Client c(server.port());
  const auto id_of = [&](const std::string& headers) { return c.get("/version", headers).header("x-request-id"); };
  for (const char* good : {"a", "8f14e45f-ceea-467e-bd4b-1b1d7f4c1f5d", "Root=1-67891233-abc", "105445aa/1;o=1"})
    EXPECT_EQ(id_of(fmt::format("X-Request-Id: {}\r\n", good)), good);
  std::set<std::string> made;
  const std::string longest(128, 'x');
  EXPECT_EQ(id_of("x-request-ID: " + longest + "\r\n"), longest);
  for (const std::string& odd : {std::string(), std::string("X-Request-Id: \r\n"), std::string("X-Request-Id: a b\r\n"),
                                 "X-Request-Id: x" + longest + "\r\n", std::string("X-Request-Id: a\"b\r\n"),
                                 std::string("X-Request-Id: <b>\r\n"), std::string("X-Request-Id: \xc3\xa9\r\n"),
                                 std::string("X-Request-Id: one\r\nX-Request-Id: two\r\n")}) {
    const std::string id = id_of(odd);
    EXPECT_EQ(id.size(), 32u) << odd;
    EXPECT_TRUE(made.insert(id).second) << "made once";
  }
}

TEST(RequestId, OnEveryAnswer) {
  ServeConfig config = test_config();
  config.api_keys = {"k"};
  config.max_concurrency = 1;
  TestServer server(config);
  const std::string id = "X-Request-Id: mine\r\n", key = "Authorization: Bearer k\r\n";
  const auto sent_back = [&](std::string_view method, std::string_view path, std::string_view body,
                             const std::string& more) {
    return Client(server.port()).request(method, path, body, id + more).header("x-request-id");
  };
  EXPECT_EQ(sent_back("POST", "/v1/completions", kShort, key), "mine");
  EXPECT_EQ(sent_back("POST", "/v1/completions", kStream, key), "mine");
  EXPECT_EQ(sent_back("POST", "/v1/completions", "{", key), "mine");
  EXPECT_EQ(sent_back("POST", "/v1/completions", kShort, ""), "mine");
  EXPECT_EQ(sent_back("GET", "/nothing", {}, key), "mine");
  EXPECT_EQ(sent_back("GET", "/v1/models/", {}, key), "mine");
  EXPECT_EQ(sent_back("PUT", "/v1/models", {}, key), "mine");
  EXPECT_EQ(sent_back("OPTIONS", "/v1/models", {}, ""), "mine");
  Client c(server.port());
  c.send("GET /health HTTP/1.1\r\nHost: a\r\nX-Request-Id: first\r\n\r\nNONSENSE\r\n\r\n");
  EXPECT_EQ(c.receive().header("x-request-id"), "first");
  const auto refused = c.receive();
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.header("x-request-id").size(), 32u) << "not the one of the request before";
}

TEST(Models, OneByItsName) {
  ServeConfig config = test_config();
  config.served_model_name = "org/na me.v1";
  config.api_keys = {"k"};
  TestServer server(config);
  const char* key = "Authorization: Bearer k\r\n";
  Client c(server.port());
  const auto list = c.get("/v1/models", key).json().as_object().at("data").at(0).as_object();
  for (const char* path : {"/v1/models/org/na%20me.v1", "/v1/models/org%2Fna%20me%2ev1",
                           "/v1/models/%6frg/na%20me.v1?x=1", "http://t/v1/models/org/na%20me.v1"}) {
    const auto reply = c.get(path, key);
    ASSERT_EQ(reply.status, 200) << path;
    const auto model = reply.json().as_object();
    EXPECT_EQ(model.at("id").as_string(), "org/na me.v1");
    EXPECT_EQ(model.size(), list.size());
    for (const char* same : {"object", "owned_by", "root", "parent", "max_model_len"})
      EXPECT_EQ(model.at(same), list.at(same));
  }
  for (const char* path :
       {"/v1/models/other", "/v1/models/org", "/v1/models/org/na%2520me.v1", "/v1/models/org/na%20me.v1/",
        "/v1/models/../models/x", "/v1/models/%22%3Cscript%3E", "/v1/models/{model}"}) {
    const auto reply = c.get(path, key);
    EXPECT_EQ(reply.status, 404) << path;
    const auto error = reply.json().as_object().at("error").as_object();
    EXPECT_EQ(error.at("type").as_string(), "invalid_request_error");
    EXPECT_EQ(error.at("param").as_string(), "model");
    EXPECT_EQ(error.at("code").as_string(), "model_not_found");
  }
  EXPECT_NE(c.get("/v1/models/other", key).body.find("The model `other` does not exist."), std::string::npos);
  for (const char* path :
       {"/v1/models/%00", "/v1/models/%0d%0aX:%20y", "/v1/models/%zz", "/v1/%6dodels/org/na%20me.v1"})
    EXPECT_EQ(c.get(path, key).body, "{\"detail\":\"Not Found\"}") << path;
  EXPECT_EQ(c.get("/v1/models/org/na%20me.v1").status, 401);
  EXPECT_EQ(Client(server.port()).post("/v1/models/org/na%20me.v1", "{}", key).status, 405);
}

TEST(OpenApi, DescribesTheRoutesThatExist) {
  TestServer server;
  Client c(server.port());
  const auto document = c.get("/openapi.json").json().as_object();
  EXPECT_EQ(document.at("openapi").as_string(), "3.1.0");
  const auto& paths = document.at("paths").as_object();
  std::set<std::string> described, ids;
  for (const auto& [path, item] : paths) {
    for (const auto& [method, operation] : item.as_object()) {
      described.insert(std::string(method) + " " + std::string(path));
      EXPECT_TRUE(ids.insert(std::string(operation.at("operationId").as_string())).second) << path;
      EXPECT_FALSE(operation.at("summary").as_string().empty());
      // What is described answers something other than 404 for the path or 405 for the method.
      std::string target(path), upper(method == "get" ? "GET" : "POST");
      const auto reply = Client(server.port()).request(upper, target, upper == "POST" ? "{}" : "");
      EXPECT_NE(reply.status, 405) << method << path;
      EXPECT_NE(reply.body, "{\"detail\":\"Not Found\"}") << method << path;
    }
  }
  std::set<std::string> existing;
  for (const Route& route : routes()) {
    if (route.page || !serves(route, PortKind::kMain, true)) continue;
    if ((route.methods & kGetBit) != 0) existing.insert("get " + std::string(route.path));
    if ((route.methods & kPostBit) != 0) existing.insert("post " + std::string(route.path));
  }
  EXPECT_EQ(described, existing);
  EXPECT_TRUE(existing.contains("post /v1/chat/completions") && existing.contains("get /v1/models/{model}"));
  EXPECT_FALSE(existing.contains("post /controller/scheduler"));
  const auto& chat = paths.at("/v1/chat/completions").at("post");
  const auto name = chat.at("requestBody").at("content").at("application/json").at("schema").at("$ref").as_string();
  EXPECT_EQ(name, "#/components/schemas/ChatCompletionRequest");
  EXPECT_TRUE(document.at("components").at("schemas").as_object().contains("ChatCompletionRequest"));
  EXPECT_EQ(paths.at("/v1/models/{model}").at("get").at("parameters").at(0).at("in").as_string(), "path");
  EXPECT_FALSE(document.at("components").as_object().contains("securitySchemes"));

  ServeConfig config = test_config();
  config.api_keys = {"k"};
  TestServer keyed(config);
  EXPECT_EQ(Client(keyed.port()).get("/openapi.json").status, 401);
  const auto with_keys = Client(keyed.port()).get("/openapi.json", "Authorization: Bearer k\r\n").json().as_object();
  EXPECT_EQ(with_keys.at("paths").at("/v1/models").at("get").at("security").as_array().size(), 1u);
  EXPECT_TRUE(with_keys.at("paths").at("/health").at("get").at("security").as_array().empty());
}

}  // namespace
}  // namespace tern::serve::testing
