// The pieces of tern ocr.
#include "cli/ocr.h"

#include <gtest/gtest.h>

#include "fetch/base64.h"

namespace tern::cli {
namespace {

TEST(Ocr, Base64OfEveryLength) {
  EXPECT_EQ(encode_base64(""), "");
  EXPECT_EQ(encode_base64("f"), "Zg==");
  EXPECT_EQ(encode_base64("fo"), "Zm8=");
  EXPECT_EQ(encode_base64("foobar"), "Zm9vYmFy");
  std::string bytes;
  for (int i = 0; i < 257; ++i) {
    const auto back = fetch::decode_base64(encode_base64(bytes));
    ASSERT_TRUE(back);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(back->data()), back->size()), bytes);
    bytes += static_cast<char>(255 - i % 256);
  }
}

TEST(Ocr, TheBodyIsAGreedyChatRequest) {
  const auto body = json::parse(ocr_body("\x89PNG\r\n\x1a\n....", "Read \"this\":", "default", 7));
  ASSERT_TRUE(body.ok()) << body.error().message;
  EXPECT_EQ(body->at("temperature").to_number<double>(), 0);
  EXPECT_EQ(body->at("max_tokens").to_number<int>(), 7);
  const auto& parts = body->at("messages").at(0).at("content");
  EXPECT_TRUE(parts.at(0).at("image_url").at("url").get_string().starts_with("data:image/png;base64,iVBOR"));
  EXPECT_EQ(parts.at(1).at("text").get_string(), "Read \"this\":");
}

TEST(Ocr, AnswersAndRefusals) {
  const auto good = parse_ocr_answer(200, R"({"choices":[{"message":{"content":"TOTAL 3.50"},"finish_reason":"stop"}],
"usage":{"prompt_tokens":40,"completion_tokens":5,"prompt_tokens_details":{"image_tokens":15}}})");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good->text, "TOTAL 3.50");
  EXPECT_EQ(good->finish_reason, "stop");
  EXPECT_EQ(good->image_tokens, 15);
  EXPECT_EQ(parse_ocr_answer(400, R"({"error":{"message":"the picture is damaged"}})").error().message,
            "status 400: the picture is damaged");
  EXPECT_EQ(parse_ocr_answer(404, R"({"detail":"Not Found"})").error().message, "status 404: Not Found");
  EXPECT_EQ(parse_ocr_answer(502, "<html>").error().message, "status 502: <html>");
  EXPECT_FALSE(parse_ocr_answer(200, R"({"choices":[]})").ok());
}

}  // namespace
}  // namespace tern::cli
