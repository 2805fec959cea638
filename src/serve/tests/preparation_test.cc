// Requests while their media are prepared: they hold nobody up, and whoever leaves takes his work along.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>

#include "serve/tests/vision_support.h"

namespace tern::serve::testing {
namespace {

using namespace std::chrono_literals;
using engine::FinishReason;

const std::string kPicture =
    fmt::format(R"({{"messages":[{{"role":"user","content":[{}]}}]}})", url_part("http://h/a.png"));
const std::string kText = R"({"messages":[{"role":"user","content":"hi"}]})";

std::vector<content::PreparedMediaPtr> one_picture() { return {prepared(content::MediaKind::kImage, 2, 4, 1)}; }

TEST(Preparation, TextRequestsGoPastIt) {
  ServeConfig config = VisionRig::vision_config();
  config.cpu_threads = 1;
  config.io_threads = 1;
  VisionRig rig(config);
  rig.media.automatic = false;
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 32; ++i) slow.push_back(rig.ask("/v1/chat/completions", kPicture));
  auto& last = rig.media.wait_call(31);
  auto quick = rig.ask("/v1/chat/completions", kText);
  rig.engine.say(rig.engine.wait_request(0), {5}, FinishReason::kLength);
  EXPECT_EQ(quick->receive().status, 200) << "32 requests wait for pictures, one for nothing";
  last.done(one_picture());
  EXPECT_EQ(rig.engine.wait_request(1).media.size(), 1u);
  for (size_t i = 0; i < 31; ++i) rig.media.wait_call(i).done(one_picture());
  rig.engine.wait_request(32);
}

TEST(Preparation, ErrorsNameThePart) {
  VisionRig rig;
  rig.media.automatic = false;
  const struct {
    ErrorCode code;
    int status;
  } cases[] = {{ErrorCode::kInvalidArgument, 400},
               {ErrorCode::kUnavailable, 400},  // somebody else's host: trying again by itself helps nobody
               {ErrorCode::kTooLarge, 400},
               {ErrorCode::kResourceExhausted, 429},
               {ErrorCode::kInternal, 500}};
  size_t number = 0;
  for (const auto& c : cases) {
    auto client = rig.ask("/v1/chat/completions", kPicture);
    rig.media.wait_call(number++).done(make_error(c.code, "the picture is damaged", "messages[0].content[0]"));
    const Reply reply = client->receive();
    EXPECT_EQ(reply.status, c.status);
    const auto body = reply.json();
    EXPECT_EQ(body.at("error").at("message").get_string(), "the picture is damaged");
    EXPECT_EQ(body.at("error").at("param").get_string(), "messages[0].content[0]");
    EXPECT_EQ(client->get("/health").status, 200) << "the connection goes on";
  }
  EXPECT_TRUE(eventually([&] { return rig.server->open_requests() == 0; }));
}

TEST(Preparation, WhatTheServiceRefusesIsAnsweredAtOnce) {
  VisionRig rig;
  rig.media.refuse = make_error(ErrorCode::kResourceExhausted, "too many requests wait for their media", {});
  EXPECT_EQ(rig.ask("/v1/chat/completions", kPicture)->receive().status, 429);
  rig.media.refuse = make_error(ErrorCode::kInvalidArgument,
                                "Missing items cannot be retrieved without processor cache.", "messages[0].content[0]");
  const Reply reply = rig.ask("/v1/chat/completions", kPicture)->receive();
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.body.find("Missing items cannot be retrieved without processor cache."), std::string::npos);
  EXPECT_TRUE(eventually([&] { return rig.server->open_requests() == 0; }));
}

TEST(Preparation, MistakesComeBeforeAnyWork) {
  VisionRig rig;
  for (const char* more : {R"("stop":["a b c d e f g h i j k l m n o p"])", R"("chat_template_kwargs":{"messages":1})",
                           R"("temperature":-1)"}) {
    const Reply reply =
        rig.ask("/v1/chat/completions", kPicture.substr(0, kPicture.size() - 1) + "," + more + "}")->receive();
    EXPECT_EQ(reply.status, 400) << more;
  }
  EXPECT_EQ(rig.media.calls(), 0u);
}

TEST(Preparation, AClientThatLeavesIsForgotten) {
  VisionRig rig;
  rig.media.automatic = false;
  auto client = rig.ask("/v1/chat/completions", kPicture);
  auto& call = rig.media.wait_call(0);
  ASSERT_TRUE(call.cancelled);
  EXPECT_FALSE(call.cancelled->load());
  client->close();
  EXPECT_TRUE(eventually([&] { return call.cancelled->load(); })) << "the service is told to stop";
  call.done(one_picture());
  EXPECT_TRUE(eventually([&] { return rig.server->open_requests() == 0; }));
  EXPECT_TRUE(rig.engine.requests().empty()) << "nothing of it reaches the engine";
}

TEST(Preparation, LateMediaAreTimedOut) {
  ServeConfig config = VisionRig::vision_config();
  config.media.timeout = 0.2;
  VisionRig rig(config);
  rig.media.automatic = false;
  auto client = rig.ask("/v1/chat/completions", kPicture);
  const Reply reply = client->receive();
  EXPECT_EQ(reply.status, 408);
  auto& call = rig.media.wait_call(0);
  EXPECT_TRUE(call.cancelled->load());
  call.done(one_picture());  // too late: dropped
  EXPECT_EQ(rig.server->open_requests(), 0);
  EXPECT_EQ(client->get("/health").status, 200);
}

TEST(Preparation, AbortByIdAndAll) {
  VisionRig rig;
  rig.media.automatic = false;
  const std::string named = kPicture.substr(0, kPicture.size() - 1) + R"(,"request_id":"mine","n":2})";
  auto client = rig.ask("/v1/chat/completions", named);
  auto& call = rig.media.wait_call(0);
  auto other = rig.ask("/v1/chat/completions", named);
  const Reply taken = other->receive();
  EXPECT_EQ(taken.status, 400) << "one id, one request, also while pictures are prepared";
  const Reply sweep =
      Client(rig.server->port()).post("/v1/abort_requests", R"({"req_ids":["chatcmpl-mine","chatcmpl-other"]})");
  const auto result = sweep.json().at("result");
  ASSERT_EQ(result.at("aborted").get_array().size(), 2u) << sweep.body;
  EXPECT_EQ(result.at("aborted").at(0).at("request_id").get_string(), "chatcmpl-mine_0");
  EXPECT_EQ(json::dump(result.at("not_found")), R"(["chatcmpl-other"])");
  EXPECT_EQ(client->receive().status, 503);
  EXPECT_TRUE(call.cancelled->load());
  call.done(one_picture());
  auto again = rig.ask("/v1/chat/completions", named);
  rig.media.wait_call(1).done(one_picture());
  EXPECT_EQ(rig.engine.wait_request(1).external_id, "chatcmpl-mine_1") << "the id is free again";
  EXPECT_EQ(rig.engine.requests().size(), 2u);
}

TEST(Preparation, StoppingEndsItAndLateAnswersAreHarmless) {
  content::MediaService::Done late;
  {
    VisionRig rig;
    rig.media.automatic = false;
    auto client = rig.ask("/v1/chat/completions", kPicture);
    late = rig.media.wait_call(0).done;
    rig.server->stop(0);
    EXPECT_EQ(client->receive().status, 503);
  }
  late(one_picture());  // the server is gone: nothing may touch it
}

TEST(Preparation, TheOpenRequestCountsWhileItWaits) {
  ServeConfig config = VisionRig::vision_config();
  config.max_concurrency = 1;
  VisionRig rig(config);
  rig.media.automatic = false;
  auto client = rig.ask("/v1/chat/completions", kPicture);
  auto& call = rig.media.wait_call(0);
  EXPECT_EQ(rig.ask("/v1/chat/completions", kText)->receive().status, 429);
  call.done(one_picture());
  rig.engine.say(rig.engine.wait_request(0), {5}, FinishReason::kLength);
  EXPECT_EQ(client->receive().status, 200);
}

}  // namespace
}  // namespace tern::serve::testing
