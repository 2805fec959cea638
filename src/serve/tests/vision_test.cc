// Requests with pictures and videos: what is read from them, what the template sees, what reaches the engine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>

#include "serve/tests/vision_support.h"

namespace tern::serve::testing {
namespace {

using namespace std::chrono_literals;
using content::MediaKind;
using engine::FinishReason;

std::string message_of(const Reply& reply) {
  const auto body = reply.json();
  return std::string(body.at("error").at("message").get_string());
}
std::string param_of(const Reply& reply) {
  const auto body = reply.json();
  const auto& param = body.at("error").at("param");
  return param.is_null() ? "" : std::string(param.get_string());
}
std::string parts(std::initializer_list<std::string> list) {
  std::string out;
  for (const auto& part : list) out += (out.empty() ? "[" : ",") + part;
  return out + "]";
}
std::string text_part(std::string_view text) { return fmt::format(R"({{"type":"text","text":"{}"}})", text); }
std::vector<int32_t> ids_of(std::string_view text) { return *vision_text().tokenizer->encode(text, false); }

// The text of a prompt, special tokens shown; runs of placeholders as "<n>".
std::string shown(const engine::Request& r) {
  std::string out;
  for (size_t i = 0; i < r.prompt.size();) {
    const int32_t id = r.prompt[i];
    size_t run = 1;
    while ((id == kImageId || id == kVideoId) && i + run < r.prompt.size() && r.prompt[i + run] == id) ++run;
    if (id == kImageId || id == kVideoId)
      out += fmt::format("<{}>", run);
    else
      out += vision_text().tokenizer->decode(std::span(&id, 1), false);
    i += run;
  }
  return out;
}

struct Fault {
  std::string content, message, param;
};

TEST(VisionParts, FaultsHaveFixedTexts) {
  VisionRig rig;
  const std::string url = url_part("http://h/a.png");
  const std::string at0 = "messages[0].content[0]", at1 = "messages[0].content[1]";
  const Fault faults[] = {
      {R"([{"type":"image_url"}])", "Both image_url and uuid are missing", at0},
      {R"([{"type":"image_url","image_url":null}])", "Both image_url and uuid are missing", at0},
      {R"([{"type":"image_url","image_url":{}}])", "Both image_url and uuid are missing", at0},
      {R"([{"type":"image_url","image_url":{"url":""}}])", "Both image_url and uuid are missing", at0},
      {R"([{"type":"text","text":"x"},{"type":"video_url","video_url":{}}])", "Both video_url and uuid are missing",
       at1},
      {R"([{"type":"audio_url","audio_url":{"url":"x"}}])", "Unknown content part type: audio_url", at0},
      {R"([{"type":"image","image":"x"}])", "Unknown content part type: image", at0},
      {R"([{"text":"x"}])", "Unknown content part type: ", at0},
      {R"([7])", "Input should be a valid dictionary", at0},
      {R"([{"type":"image_url","image_url":7}])", "Input should be a valid string", at0},
      {R"([{"type":"image_url","image_url":{"url":[]}}])", "Input should be a valid string", at0},
      {R"([{"type":"image_url","image_url":{"url":"x"},"uuid":7}])", "Input should be a valid string", at0},
      {parts({url, url, url, url}), "Too many image items in prompt, got 4 but limit is 3", "messages"},
      {R"([{"type":"video_url","video_url":"a"},{"type":"video_url","video_url":"b"},{"type":"video_url","video_url":"c"}])",
       "Too many video items in prompt, got 3 but limit is 2", "messages"},
  };
  for (const auto& fault : faults) {
    const Reply reply = rig.chat(fault.content);
    EXPECT_EQ(reply.status, 400) << fault.content;
    EXPECT_EQ(message_of(reply), fault.message);
    EXPECT_EQ(param_of(reply), fault.param) << fault.content;
  }
  EXPECT_EQ(rig.media.calls(), 0u) << "nothing is fetched for a request that is refused";
}

TEST(VisionParts, LimitsCountOverAllMessages) {
  VisionRig rig;
  const std::string two = parts({url_part("a"), url_part("b")});
  const Reply reply =
      rig.ask("/v1/chat/completions",
              fmt::format(R"({{"messages":[{{"role":"user","content":{0}}},{{"role":"user","content":{0}}}]}})", two))
          ->receive();
  EXPECT_EQ(message_of(reply), "Too many image items in prompt, got 4 but limit is 3");
}

TEST(VisionParts, AModelOfPicturesOnlyRefusesVideos) {
  VisionRig rig(VisionRig::vision_config(), false, false);
  const Reply reply = rig.chat(R"([{"type":"video_url","video_url":"x"}])");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(param_of(reply), "messages[0].content[0]");
}

TEST(VisionParts, EverythingOfAPartReachesTheService) {
  VisionRig rig(VisionRig::vision_config(), true);
  auto c = rig.ask("/v1/chat/completions",
                   R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[
{"type":"image_url","image_url":"data:x","uuid":"u-1","max_pixels":5000},
{"type":"text","text":"and"},
{"type":"video_url","video_url":{"url":"http://h/v.mp4","fps":3}},
{"type":"image_url","uuid":"u-2"}]}],
"mm_processor_kwargs":{"video_fps":1,"video_max_frames":9,"min_pixels":100,"image_max_pixels":7000},
"mm_hashes":["ignored","too"]})");
  const auto& call = rig.media.wait_call(0);
  ASSERT_EQ(call.parts.size(), 3u);
  EXPECT_EQ(call.parts[0].url, "data:x");
  EXPECT_EQ(call.parts[0].uuid, "u-1");
  EXPECT_EQ(call.parts[0].where, "messages[1].content[0]");
  EXPECT_EQ(json::dump(call.parts[0].kwargs), R"({"min_pixels":100,"max_pixels":5000})");
  EXPECT_EQ(call.parts[1].kind, MediaKind::kVideo);
  EXPECT_EQ(call.parts[1].url, "http://h/v.mp4");
  EXPECT_EQ(call.parts[1].where, "messages[1].content[2]");
  EXPECT_EQ(json::dump(call.parts[1].kwargs), R"({"fps":3,"max_frames":9,"min_pixels":100})");
  EXPECT_EQ(call.parts[2].uuid, "u-2");
  EXPECT_EQ(call.parts[2].url, "");
  EXPECT_EQ(call.owner, 0u);
}

TEST(VisionPrompt, PicturesFirst) {
  VisionRig rig;
  auto c = rig.ask("/v1/chat/completions", fmt::format(R"({{"messages":[{{"role":"system","content":"be"}},
{{"role":"user","content":{}}},{{"role":"assistant","content":"ok"}},{{"role":"user","content":"hi"}}]}})",
                                                       parts({text_part("there"), url_part("a"), url_part("b")})));
  EXPECT_EQ(shown(rig.engine.wait_request(0)),
            "be\n<|user|><|IMAGE_START|><2><|IMAGE_END|><|IMAGE_START|><2><|IMAGE_END|>there\n<|assistant|>ok<|end|>"
            "<|user|>hi\n<|assistant|>");
}

TEST(VisionPrompt, CountersAndVideos) {
  VisionRig rig(VisionRig::vision_config(), true);
  auto c = rig.ask(
      "/v1/chat/completions",
      fmt::format(
          R"({{"messages":[{{"role":"system","content":[{}]}},{{"role":"user","content":{}}},{{"role":"assistant","content":"ok"}},
{{"role":"user","content":{}}}]}})",
          text_part("be"), parts({url_part("a"), text_part("hi")}),
          parts({R"({"type":"video_url","video_url":"v"})", url_part("b")})));
  const auto r = rig.engine.wait_request(0);
  EXPECT_EQ(shown(r),
            "be\n<|user|>Picture 1:<|IMAGE_START|><2><|IMAGE_END|>hi\n<|assistant|>ok<|end|><|user|>Video 1:"
            "<|VIDEO_START|><4><|VIDEO_END|>Picture 2:<|IMAGE_START|><2><|IMAGE_END|>\n<|assistant|>");
  ASSERT_EQ(r.media.size(), 4u) << "a picture, two pairs of frames, a picture";
  EXPECT_EQ(r.media[0].kind, engine::MediaKind::kImage);
  EXPECT_EQ(r.media[1].kind, engine::MediaKind::kVideo);
  EXPECT_EQ(r.media[1].end, r.media[2].begin);
  EXPECT_EQ(r.media[1].t, 2);
  EXPECT_EQ(r.media[2].offset, r.media[1].bytes);
  EXPECT_EQ(r.media[1].patches, r.media[2].patches) << "frames of one video lie in one buffer";
  for (const auto& item : r.media) {
    for (int32_t i = item.begin; i < item.end; ++i) {
      const int32_t id = r.prompt[static_cast<size_t>(i)];
      EXPECT_TRUE(id == kImageId || id == kVideoId);
    }
    EXPECT_NE(item.key[0], 0u);
  }
}

TEST(VisionPrompt, TextAloneGoesTheOldWay) {
  VisionRig rig;
  auto c = rig.ask("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi there"}]})");
  const auto r = rig.engine.wait_request(0);
  EXPECT_EQ(shown(r), "<|user|>hi there\n<|assistant|>");
  EXPECT_TRUE(r.media.empty() && r.positions.empty());
  EXPECT_EQ(rig.media.calls(), 0u);
}

TEST(VisionPrompt, PositionsGoWithTheRequest) {
  VisionRig rig;
  auto c = rig.ask("/v1/chat/completions",
                   fmt::format(R"({{"messages":[{{"role":"user","content":{}}}],"completion_token_ids":[5,6]}})",
                               parts({url_part("a")})));
  const auto r = rig.engine.wait_request(0);
  const size_t n = r.prompt.size();
  ASSERT_EQ(r.positions.size(), 3 * n);
  // <|user|> <|IMAGE_START|>, two tokens side by side at position 2: the text goes on at 4, as it would without.
  const size_t first = static_cast<size_t>(r.media[0].begin);
  EXPECT_EQ(r.positions[first + 1], 2);
  EXPECT_EQ(r.positions[n + first + 1], 2);
  EXPECT_EQ(r.positions[2 * n + first + 1], 3);
  EXPECT_EQ(r.prompt[n - 1], 6);
  for (size_t axis = 0; axis < 3; ++axis) {
    EXPECT_EQ(r.positions[axis * n + n - 1], static_cast<int32_t>(n - 1) + r.rope_delta);
    EXPECT_EQ(r.positions[axis * n + n - 1], r.positions[axis * n + n - 2] + 1);
  }
}

TEST(VisionPrompt, PlaceholdersInTextsAreRefused) {
  VisionRig rig;
  for (const char* spelling : {"<|IMAGE_PLACEHOLDER|>", "<|image@placeholder|>"}) {
    const Reply reply = rig.chat(parts({text_part(spelling), url_part("a")}));
    EXPECT_EQ(reply.status, 400) << spelling;
    EXPECT_EQ(param_of(reply), "messages");
  }
  EXPECT_EQ(rig.chat("\"<|IMAGE_PLACEHOLDER|>\"").status, 400) << "without any picture as well";
  Client client(rig.server->port());
  EXPECT_EQ(client.post("/v1/completions", fmt::format(R"({{"prompt":[5,{},6]}})", kImageId)).status, 400);
  EXPECT_EQ(client.post("/v1/completions", R"({"prompt":"a <|IMAGE_PLACEHOLDER|>"})").status, 400);
  EXPECT_EQ(rig.engine.requests().size(), 0u);
}

TEST(VisionPrompt, PromptTokenIdsWithMedia) {
  VisionRig rig;
  const auto body = [&](std::string_view ids) {
    return fmt::format(R"({{"messages":[{{"role":"user","content":{}}}],"prompt_token_ids":{}}})",
                       parts({url_part("a")}), ids);
  };
  auto c = rig.ask("/v1/chat/completions", body(fmt::format("[5,{},{},{},6]", kImageStart, kImageId, kImageEnd)));
  EXPECT_EQ(rig.engine.wait_request(0).prompt, (std::vector<int32_t>{5, 906, 907, 907, 908, 6}));
  EXPECT_EQ(rig.ask("/v1/chat/completions", body("[5,6]"))->receive().status, 400) << "a picture without a place";
  EXPECT_EQ(rig.ask("/v1/chat/completions", body("[907,5,907,6]"))->receive().status, 400) << "a place too many";
}

TEST(VisionRequest, SamplesShareTheirPatches) {
  VisionRig rig;
  auto c = rig.ask("/v1/chat/completions",
                   fmt::format(R"({{"messages":[{{"role":"user","content":{}}}],"n":3}})", parts({url_part("a")})));
  const auto a = rig.engine.wait_request(0), b = rig.engine.wait_request(2);
  EXPECT_EQ(a.media[0].patches, b.media[0].patches);
  EXPECT_EQ(a.positions, b.positions);
}

TEST(VisionRequest, PatchesAreTheEnginesAlone) {
  VisionRig rig;
  auto c = rig.ask("/v1/chat/completions",
                   fmt::format(R"({{"messages":[{{"role":"user","content":{}}}]}})", parts({url_part("a")})));
  std::weak_ptr<const RawBytes> patches = rig.engine.wait_request(0).media[0].patches;
  rig.engine.forget_media();
  EXPECT_TRUE(eventually([&] { return patches.expired(); })) << "serve holds pixels of a running request";
}

TEST(VisionRequest, UsageTellsPicturesApart) {
  VisionRig rig(VisionRig::vision_config(), true);
  auto c = rig.ask("/v1/chat/completions",
                   fmt::format(R"({{"messages":[{{"role":"user","content":{}}}],"n":2}})",
                               parts({url_part("a"), url_part("b"), R"({"type":"video_url","video_url":"v"})"})));
  for (size_t i = 0; i < 2; ++i) rig.engine.say(rig.engine.wait_request(i), {5, 6}, FinishReason::kLength);
  const auto usage = c->receive().json().at("usage");
  EXPECT_EQ(usage.at("prompt_tokens").get_int64(), static_cast<int64_t>(rig.engine.requests()[0].prompt.size()));
  EXPECT_EQ(usage.at("prompt_tokens_details").at("image_tokens").get_int64(), 4);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("video_tokens").get_int64(), 4);
  EXPECT_EQ(usage.at("completion_tokens").get_int64(), 4);
}

TEST(VisionRequest, StreamsCarryTheCountsToo) {
  VisionRig rig;
  auto c = rig.ask("/v1/chat/completions", fmt::format(R"({{"messages":[{{"role":"user","content":{}}}],"stream":true,
"stream_options":{{"include_usage":true}}}})",
                                                       parts({url_part("a")})));
  rig.engine.say(rig.engine.wait_request(0), {5}, FinishReason::kLength);
  const auto events = c->receive().events();
  ASSERT_GE(events.size(), 3u);
  EXPECT_NE(events[events.size() - 2].find("\"image_tokens\":2,\"video_tokens\":0"), std::string::npos);
}

TEST(VisionRequest, KeysOfSeveralApiKeysDiffer) {
  ServeConfig config = VisionRig::vision_config();
  config.api_keys = {"one", "two"};
  VisionRig rig(config);
  const std::string body = fmt::format(R"({{"messages":[{{"role":"user","content":{}}}]}})", parts({url_part("a")}));
  auto a = rig.ask("/v1/chat/completions", body, "Authorization: Bearer one\r\n");
  const auto first = rig.engine.wait_request(0);
  auto b = rig.ask("/v1/chat/completions", body, "Authorization: Bearer two\r\n");
  const auto second = rig.engine.wait_request(1);
  auto c = rig.ask("/v1/chat/completions", body, "Authorization: Bearer one\r\n");
  const auto third = rig.engine.wait_request(2);
  EXPECT_NE(first.media[0].key[0], second.media[0].key[0]) << "one key's pictures must not show in another's timing";
  EXPECT_EQ(first.media[0].key[0], third.media[0].key[0]);
  EXPECT_NE(rig.media.wait_call(0).owner, rig.media.wait_call(1).owner) << "uuids are each key's own";
  EXPECT_EQ(rig.media.wait_call(0).owner, rig.media.wait_call(2).owner);
}

TEST(VisionTokenize, CountsAfterExpansion) {
  VisionRig rig;
  const std::string messages =
      fmt::format(R"({{"messages":[{{"role":"user","content":{}}}]}})", parts({url_part("a")}));
  const auto body = rig.ask("/tokenize", messages)->receive().json();
  const auto whole =
      ids_of("<|user|><|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>\n<|assistant|>");
  EXPECT_EQ(body.at("count").get_int64(), static_cast<int64_t>(whole.size()));
  EXPECT_EQ(body.at("tokens").get_array().size(), whole.size());
  const auto text = rig.ask("/tokenize", R"({"messages":[{"role":"user","content":"hi"}]})")->receive().json();
  EXPECT_EQ(text.at("count").get_int64(), static_cast<int64_t>(ids_of("<|user|>hi\n<|assistant|>").size()));
}

TEST(VisionMetrics, ShowPicturesAndTheTower) {
  VisionRig rig;
  auto c = rig.ask("/v1/chat/completions", fmt::format(R"({{"messages":[{{"role":"user","content":{}}}]}})",
                                                       parts({url_part("a"), url_part("b")})));
  [[maybe_unused]] const auto r = rig.engine.wait_request(0);
  const int port = rig.server->port();
  EXPECT_EQ(metric(port, "tern:images_total"), 2);
  EXPECT_EQ(metric(port, "tern:media_preprocess_milliseconds_total"), 2.5);
  EXPECT_EQ(metric(port, "tern:processor_cache_lookups_total"), 7);
  EXPECT_EQ(metric(port, "tern:processor_cache_hits_total"), 3);
  EXPECT_EQ(metric(port, "tern:vision_tower_milliseconds_total"), 0);
  EXPECT_EQ(metric(port, "tern:encoder_cache_hits_total"), 0);
  TestServer text;
  EXPECT_EQ(metric(text.port(), "tern:images_total"), -1) << "a model of text has none of them";
}

}  // namespace
}  // namespace tern::serve::testing
