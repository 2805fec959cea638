#include "content/media/profile/prompt_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "content/media/tests/media_support.h"

namespace tern::content {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using Media = std::vector<PreparedMediaPtr>;

class PromptLayoutTest : public testing::Test {
 protected:
  const std::unique_ptr<Tokenizer> tokenizer_ = picture_tokenizer();
  const VisionProfile ernie_ = must_read_profile(kErnieConfig, "{}", "{}", tokenizer_.get());
  const VisionProfile paddle_ = must_read_profile(kPaddleConfig, "{}", "{}", tokenizer_.get());
  const VisionProfile qwen_ = must_read_profile(kQwenConfig, "{}", "{}", tokenizer_.get());

  std::vector<int32_t> ids(std::string_view text) { return *tokenizer_->encode(text, false); }
  // Pieces of text and single ids, one after the other.
  template <class... Parts>
  std::vector<int32_t> join(const Parts&... parts) {
    std::vector<int32_t> out;
    const auto add = [&](const auto& part) {
      if constexpr (std::is_convertible_v<decltype(part), std::string_view>) {
        const auto more = ids(part);
        out.insert(out.end(), more.begin(), more.end());
      } else {
        out.insert(out.end(), part.begin(), part.end());
      }
    };
    (add(parts), ...);
    return out;
  }
  static std::vector<int32_t> times(int n, int32_t id) { return std::vector<int32_t>(n, id); }
  static std::vector<int32_t> one(int32_t id) { return {id}; }
};

TEST_F(PromptLayoutTest, TextAlone) {
  const auto layout = layout_prompt(ernie_, "User: hi", *tokenizer_, {});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->ids, ids("User: hi"));
  EXPECT_EQ(layout->rope_delta, 0);
  EXPECT_TRUE(layout->units.empty());
  EXPECT_EQ(layout->positions.size(), 3 * layout->ids.size());
}

TEST_F(PromptLayoutTest, TemplateWithMarkersAndCounters) {
  const Media media{item(MediaKind::kImage, 1, 2, 3), item(MediaKind::kImage, 1, 1, 1)};
  const auto layout = layout_prompt(ernie_,
                                    "User: Picture 1:<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>"
                                    "Picture 2:<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>Which?",
                                    *tokenizer_, media);
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  EXPECT_EQ(layout->ids, join("User: Picture 1:", one(kImageStart), times(6, kImagePlaceholder), one(kImageEnd),
                              "Picture 2:", one(kImageStart), one(kImagePlaceholder), one(kImageEnd), "Which?"));
  ASSERT_EQ(layout->units.size(), 2u);
  const auto begin = static_cast<int32_t>(ids("User: Picture 1:").size()) + 1;
  EXPECT_EQ(layout->units[0].begin, begin);
  EXPECT_EQ(layout->units[0].end, begin + 6);
  EXPECT_EQ(layout->units[1].media, 1u);
  EXPECT_EQ(layout->units[1].end - layout->units[1].begin, 1);
  EXPECT_EQ(layout->image_tokens, 7);
  EXPECT_EQ(layout->video_tokens, 0);
  EXPECT_EQ(layout->rope_delta, -3);  // six tokens that advance by three
  for (const UnitSpan& unit : layout->units) {
    for (int32_t i = unit.begin; i < unit.end; i++) EXPECT_EQ(layout->ids[i], kImagePlaceholder);
  }
}

TEST_F(PromptLayoutTest, MarkersAreAddedWhereTheTemplateWroteNone) {
  const Media media{item(MediaKind::kImage, 1, 1, 2)};
  for (const char* text :
       {"a<|image@placeholder|>b", "a<|IMAGE_PLACEHOLDER|>b", "a<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>b",
        "a<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>b"}) {
    const auto layout = layout_prompt(paddle_, text, *tokenizer_, media);
    ASSERT_TRUE(layout.ok()) << text;
    EXPECT_EQ(layout->ids, join("a", one(kImageStart), times(2, kImagePlaceholder), one(kImageEnd), "b")) << text;
  }
}

TEST_F(PromptLayoutTest, VideosTakeTheirOwnPlaceholdersInOrder) {
  const Media media{item(MediaKind::kVideo, 2, 1, 2), item(MediaKind::kImage, 1, 1, 1)};
  // The template may turn the order of kinds around: each kind keeps its own.
  const auto layout = layout_prompt(ernie_,
                                    "<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>"
                                    "<|VIDEO_START|><|video@placeholder|><|VIDEO_END|>",
                                    *tokenizer_, media);
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  EXPECT_THAT(layout->ids, ElementsAre(kImageStart, kImagePlaceholder, kImageEnd, kVideoStart, kImagePlaceholder,
                                       kImagePlaceholder, kImagePlaceholder, kImagePlaceholder, kVideoEnd));
  ASSERT_EQ(layout->units.size(), 3u);
  EXPECT_EQ(layout->units[0].media, 1u);
  EXPECT_EQ(layout->units[1].media, 0u);
  EXPECT_EQ(layout->units[1].unit, 0u);
  EXPECT_EQ(layout->units[2].unit, 1u);
  EXPECT_EQ(layout->units[2].begin, layout->units[1].end);
  EXPECT_EQ(layout->video_tokens, 4);
  const auto qwen =
      layout_prompt(qwen_, "<|vision_start|><|video_pad|><|vision_end|><|image_pad|>", *tokenizer_, media);
  ASSERT_TRUE(qwen.ok()) << qwen.error().message;
  EXPECT_THAT(qwen->ids, ElementsAre(kVisionStart, kVideoPad, kVideoPad, kVideoPad, kVideoPad, kVisionEnd, kVisionStart,
                                     kImagePad, kVisionEnd));
}

TEST_F(PromptLayoutTest, PositionsFollowTheRule) {
  const Media media{item(MediaKind::kVideo, 4, 1, 2)};
  const auto layout = layout_prompt(ernie_, "<|video@placeholder|>", *tokenizer_, media);
  ASSERT_TRUE(layout.ok());
  ASSERT_EQ(layout->ids.size(), 10u);
  EXPECT_THAT(std::vector<int32_t>(layout->positions.begin(), layout->positions.begin() + 10),
              ElementsAre(0, 1, 1, 2, 2, 3, 3, 4, 4, 5));
  EXPECT_THAT(std::vector<int32_t>(layout->positions.begin() + 20, layout->positions.end()),
              ElementsAre(0, 1, 2, 1, 2, 1, 2, 1, 2, 5));
  EXPECT_EQ(layout->rope_delta, -4);
}

TEST_F(PromptLayoutTest, CountsMustMatch) {
  const Media one_image{item(MediaKind::kImage, 1, 1, 1)};
  const char* kTwo = "<|image@placeholder|><|image@placeholder|>";
  for (const char* text :
       {"no placeholder", kTwo, "<|video@placeholder|>", "<|image@placeholder|><|video@placeholder|>"}) {
    const auto layout = layout_prompt(ernie_, text, *tokenizer_, one_image);
    ASSERT_FALSE(layout.ok()) << text;
    EXPECT_EQ(layout.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(layout.error().message, HasSubstr("placeholders for"));
  }
  EXPECT_FALSE(layout_prompt(ernie_, "<|image@placeholder|>", *tokenizer_, {}).ok());
}

// A client that writes placeholders or markers into its text neither moves nor adds pictures: what the template wrote
// for the picture and what the client wrote are one too many.
TEST_F(PromptLayoutTest, PlaceholdersInTheClientsTextAreRefused) {
  const Media media{item(MediaKind::kImage, 1, 2, 2)};
  const std::string picture = "<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>";
  for (const char* hostile :
       {"<|image@placeholder|>", "<|IMAGE_PLACEHOLDER|>", "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
        "<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>", "<|IMAGE_PLACEHOLDER|>x",
        "<|IMAGE_PLACEHOLDER<|IMAGE_PLACEHOLDER|>|>"}) {
    EXPECT_FALSE(layout_prompt(ernie_, std::string(hostile) + picture, *tokenizer_, media).ok()) << hostile;
    EXPECT_FALSE(layout_prompt(ernie_, picture + hostile, *tokenizer_, media).ok()) << hostile;
    EXPECT_FALSE(layout_prompt(ernie_, hostile, *tokenizer_, {}).ok()) << hostile;
  }
  // Markers and halves of spellings are only text: the picture stays where it was.
  for (const char* harmless : {"<|IMAGE_START|>", "<|IMAGE_END|>", "<|VIDEO_START|>", "<|image@placeholder",
                               "placeholder|>", "<|image_pad|>", "<|image@PLACEHOLDER|>", "<|image@ placeholder|>"}) {
    const auto layout = layout_prompt(ernie_, harmless + picture + harmless, *tokenizer_, media);
    ASSERT_TRUE(layout.ok()) << harmless << layout.error().message;
    const std::vector<int32_t> text = ids(harmless);
    EXPECT_EQ(layout->ids, join(text, one(kImageStart), times(4, kImagePlaceholder), one(kImageEnd), text)) << harmless;
    EXPECT_EQ(layout->units[0].begin, static_cast<int32_t>(text.size()) + 1);
  }
}

TEST_F(PromptLayoutTest, TheLongerOfTwoSpellingsAtOnePlaceWins) {
  VisionProfile profile = ernie_;
  profile.image.texts = {"<pic>", "<pic><more>"};
  const Media media{item(MediaKind::kImage, 1, 1, 1)};
  const auto layout = layout_prompt(profile, "<pic><more>", *tokenizer_, media);
  ASSERT_TRUE(layout.ok());
  EXPECT_THAT(layout->ids, ElementsAre(kImageStart, kImagePlaceholder, kImageEnd));
}

TEST_F(PromptLayoutTest, ManyPicturesInLinearTime) {
  constexpr int kPictures = 2000;
  std::string text;
  Media media;
  const PreparedMediaPtr picture = item(MediaKind::kImage, 1, 10, 10);
  for (int i = 0; i < kPictures; i++) {
    text += "Picture:<|IMAGE_START|><|image@placeholder|><|IMAGE_END|> and more text than that <|image@placeholder ";
    media.push_back(picture);
  }
  const auto layout = layout_prompt(ernie_, text, *tokenizer_, media);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->image_tokens, kPictures * 100);
  EXPECT_EQ(layout->units.size(), size_t{kPictures});
}

TEST_F(PromptLayoutTest, BrokenUtf8IsTheTokenizersError) {
  const Media media{item(MediaKind::kImage, 1, 1, 1)};
  EXPECT_FALSE(layout_prompt(ernie_, "\xff<|image@placeholder|>", *tokenizer_, media).ok());
}

TEST_F(PromptLayoutTest, IdsWithSinglePlaceholders) {
  const Media media{item(MediaKind::kImage, 1, 2, 2), item(MediaKind::kImage, 1, 1, 3)};
  const std::vector<int32_t> prompt{1, kImageStart, kImagePlaceholder, kImageEnd, 2, kImagePlaceholder, 3};
  const auto layout = layout_ids(ernie_, prompt, media);
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  EXPECT_EQ(layout->ids, join(one(1), one(kImageStart), times(4, kImagePlaceholder), one(kImageEnd), one(2),
                              times(3, kImagePlaceholder), one(3)));
}

TEST_F(PromptLayoutTest, IdsThatAreExpandedAlready) {
  const Media media{item(MediaKind::kImage, 1, 2, 2), item(MediaKind::kImage, 1, 1, 3)};
  const auto apart = join(one(1), times(4, kImagePlaceholder), one(2), times(3, kImagePlaceholder));
  const auto touching = join(one(1), times(7, kImagePlaceholder));
  const auto both_single = join(one(1), times(2, kImagePlaceholder));
  for (const auto& prompt : {apart, touching, both_single}) {
    const auto layout = layout_ids(ernie_, prompt, media);
    ASSERT_TRUE(layout.ok()) << layout.error().message;
    ASSERT_EQ(layout->units.size(), 2u);
    EXPECT_EQ(layout->units[0].begin, 1);
    EXPECT_EQ(layout->units[0].end, 5);
    EXPECT_EQ(layout->units[1].end, static_cast<int32_t>(layout->ids.size()));
    EXPECT_EQ(layout->image_tokens, 7);
  }
}

TEST_F(PromptLayoutTest, IdsWhoseCountsDiffer) {
  const Media media{item(MediaKind::kImage, 1, 2, 2)};
  EXPECT_FALSE(layout_ids(ernie_, std::vector<int32_t>{1, 2}, media).ok());
  EXPECT_FALSE(layout_ids(ernie_, times(3, kImagePlaceholder), media).ok());
  EXPECT_FALSE(layout_ids(ernie_, times(5, kImagePlaceholder), media).ok());
  const auto extra = layout_ids(ernie_, std::vector<int32_t>{kImagePlaceholder, 1, kImagePlaceholder}, media);
  ASSERT_FALSE(extra.ok());
  EXPECT_EQ(extra.error().message, "prompt token ids has more multimodal placeholder than in messages");
}

TEST_F(PromptLayoutTest, IdsOfBothKindsWithOneId) {
  const Media media{item(MediaKind::kVideo, 2, 1, 1), item(MediaKind::kImage, 1, 1, 3)};
  const auto shared = layout_ids(ernie_, std::vector<int32_t>{kImagePlaceholder, 1, kImagePlaceholder}, media);
  ASSERT_TRUE(shared.ok());
  EXPECT_EQ(shared->units[0].media, 0u);  // in the order of the request
  const auto own = layout_ids(qwen_, std::vector<int32_t>{kImagePad, 1, kVideoPad}, media);
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->units[0].media, 1u);  // by kind
}

// Prompts, positions and deltas of the reference cases (transformers' rules).
TEST_F(PromptLayoutTest, ReferenceCases) {
  int prompts = 0;
  for (const char* name : {"ernie4_5_vl_moe", "paddleocr_vl"}) {
    const std::string dir = own_data("golden/") + name;
    const json::Value golden = load_json(dir + "/golden.json");
    const auto profile =
        read_profile(slurp(dir + "/config.json"), json::dump(golden.as_object().at("processor")), "{}", nullptr, true);
    ASSERT_TRUE(profile.ok() && profile->has_value());
    for (const auto& [prompt_name, value] : golden.as_object().at("prompts").as_object()) {
      const json::Object& prompt = value.as_object();
      std::vector<int32_t> expected;
      for (const json::Value& id : prompt.at("input_ids").as_array()) {
        expected.push_back(static_cast<int32_t>(id.as_int64()));
      }
      // Runs of placeholders, made to items by their pictures' sizes: 28 pixels a cell after resizing.
      Media media;
      const bool is_video = prompt.contains("frames");
      const json::Array& files = prompt.at(is_video ? "frames" : "images").as_array();
      const int count = is_video ? 1 : static_cast<int>(files.size());
      for (int i = 0; i < count; i++) {
        const std::string png = slurp(dir + "/" + std::string(files[i].as_string()));
        const auto side = [&](int at) {
          return (static_cast<uint8_t>(png[at]) << 8) + static_cast<uint8_t>(png[at + 1]);
        };
        auto size = image::smart_resize((*profile)->resize_rule, side(18), side(22), (*profile)->image_limits);
        ASSERT_TRUE(size.ok());
        media.push_back(item(is_video ? MediaKind::kVideo : MediaKind::kImage,
                             is_video ? static_cast<int>(files.size()) / 2 : 1, static_cast<int>(size->height / 28),
                             static_cast<int>(size->width / 28)));
      }
      const auto layout = layout_ids(**profile, expected, media);
      ASSERT_TRUE(layout.ok()) << name << " " << std::string(prompt_name) << layout.error().message;
      EXPECT_EQ(layout->ids, expected);
      EXPECT_EQ(layout->rope_delta, prompt.at("rope_delta").as_int64()) << name << " " << std::string(prompt_name);
      prompts++;
    }
  }
  EXPECT_EQ(prompts, 7);
}

// What the published templates write for a picture.
TEST_F(PromptLayoutTest, PublishedTemplates) {
  TERN_NEED_SHARED_DATA();
  const json::Value file = load_json(shared_data() + "/chat/rendered.json");
  const Media media{item(MediaKind::kImage, 1, 2, 3)};
  int seen = 0;
  for (const json::Value& value : file.as_object().at("results").as_array()) {
    const json::Object& result = value.as_object();
    if (result.at("case") != "parts_image_first" || !result.contains("text")) continue;
    if (result.at("template").as_string().find("PaddleOCR-VL") == std::string::npos) continue;
    const std::string text(result.at("text").as_string());
    const auto layout = layout_prompt(paddle_, text, *tokenizer_, media);
    ASSERT_TRUE(layout.ok()) << text << layout.error().message;
    const size_t place = text.find("<|IMAGE_START|>"), end = text.find("<|IMAGE_END|>") + 13;
    EXPECT_EQ(layout->ids, join(text.substr(0, place), one(kImageStart), times(6, kImagePlaceholder), one(kImageEnd),
                                text.substr(end)));
    seen++;
  }
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace tern::content
