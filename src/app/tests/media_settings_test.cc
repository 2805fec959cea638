// Flags of pictures and videos, resolved.
#include <gtest/gtest.h>

#include "app/config/settings.h"

namespace tern::app {
namespace {

ModelFacts seeing_model() {
  ModelFacts facts;
  facts.folder = std::string("m");
  facts.architecture = "PaddleOCRVLForConditionalGeneration";
  facts.pictures = true;
  return facts;
}

Expected<Settings> try_settle(const std::vector<std::string>& args, const ModelFacts& model = seeing_model()) {
  TERN_ASSIGN_OR_RETURN(auto arguments, parse_arguments(args));
  TERN_ASSIGN_OR_RETURN(Environment environment, Environment::from({}));
  return resolve(std::move(arguments.flags), std::move(environment), model);
}

std::string fault(const std::vector<std::string>& args) {
  auto settings = try_settle(args);
  return settings.ok() ? "" : settings.error().message;
}

TEST(MediaSettings, DefaultsAreTheRoomsOwn) {
  const auto settings = try_settle({});
  ASSERT_TRUE(settings.ok());
  const content::MediaOptions& o = settings->media.options;
  const content::MediaOptions d;
  EXPECT_TRUE(settings->media.wanted);
  EXPECT_EQ(o.decode.bytes, d.decode.bytes);
  EXPECT_EQ(o.decode.pixels, d.decode.pixels);
  EXPECT_EQ(o.video.max_bytes, d.video.max_bytes);
  EXPECT_EQ(o.video.max_pixels, d.video.max_pixels);
  EXPECT_EQ(o.video.max_frames, d.video.max_frames);
  EXPECT_EQ(o.video.max_seconds, d.video.max_seconds);
  EXPECT_EQ(o.video.wall_seconds, d.video.wall_seconds);
  EXPECT_EQ(o.video.memory_bytes, d.video.memory_bytes);
  EXPECT_EQ(o.fetch.connect_timeout, d.fetch.connect_timeout);
  EXPECT_EQ(o.fetch.total_timeout, d.fetch.total_timeout);
  EXPECT_EQ(o.fetch.tries, d.fetch.tries);
  EXPECT_EQ(o.fetch.max_redirects, d.fetch.max_redirects);
  EXPECT_FALSE(o.fetch.allow_private);
  EXPECT_TRUE(o.fetch.local_root.empty() && o.fetch.allowed_domains.empty());
  EXPECT_EQ(o.request_bytes, d.request_bytes);
  EXPECT_EQ(o.total_bytes, d.total_bytes);
  EXPECT_EQ(o.request_file_bytes, d.request_file_bytes);
  EXPECT_EQ(o.total_file_bytes, d.total_file_bytes);
  EXPECT_EQ(o.max_waiting, d.max_waiting);
  EXPECT_TRUE(o.apply_exif);
  EXPECT_EQ(o.max_request_tokens, settings->serve.max_model_len);
  EXPECT_EQ(settings->serve.media.max_images, 1);
  EXPECT_EQ(settings->serve.media.max_videos, 1);
  EXPECT_EQ(settings->serve.media.timeout, serve::MediaRules().timeout);
  EXPECT_EQ(settings->serve.http.body_bytes, 256u << 20) << "a hundred pictures as data: URLs";
}

TEST(MediaSettings, EveryFlagArrives) {
  const auto settings = try_settle({"--limit-mm-per-prompt",
                                    R"({"image": 100, "video": 7})",
                                    "--mm-processor-kwargs",
                                    R"({"image_max_pixels": 5000})",
                                    "--max-processor-cache",
                                    "0.5",
                                    "--max-encoder-cache",
                                    "123",
                                    "--disable-chunked-mm-input",
                                    "--allowed-local-media-path",
                                    "/tmp",
                                    "--allowed-media-domains",
                                    "a.org,.b.org",
                                    "--allow-private-media-addresses",
                                    "--no-allow-plain-http-media",
                                    "--no-apply-exif-orientation",
                                    "--max-media-bytes",
                                    "1000",
                                    "--max-video-bytes",
                                    "2000",
                                    "--max-image-pixels",
                                    "300",
                                    "--media-threads",
                                    "2",
                                    "--media-timeout",
                                    "7.5",
                                    "--max-body-bytes",
                                    "4096",
                                    "--max-waiting-media",
                                    "3"});
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  const auto& m = settings->media;
  EXPECT_EQ(settings->serve.media.max_images, 100);
  EXPECT_EQ(settings->serve.media.max_videos, 7);
  EXPECT_EQ(m.processor_kwargs.at("image_max_pixels").as_int64(), 5000);
  EXPECT_EQ(m.options.processor_cache_gib, 0.5);
  EXPECT_EQ(m.encoder_cache_tokens, 123);
  EXPECT_TRUE(settings->engine.scheduler.disable_chunked_mm_input);
  EXPECT_EQ(m.options.fetch.local_root, "/tmp");
  EXPECT_EQ(m.options.fetch.allowed_domains, (std::vector<std::string>{"a.org", ".b.org"}));
  EXPECT_TRUE(m.options.fetch.allow_private && !m.options.fetch.allow_http && !m.options.apply_exif);
  EXPECT_EQ(m.options.decode.bytes, 1000u);
  EXPECT_EQ(m.options.video.max_bytes, 2000u);
  EXPECT_EQ(m.options.fetch.max_bytes, 2000u) << "the larger of both: the kind is checked afterwards";
  EXPECT_EQ(m.options.decode.pixels, 300u);
  EXPECT_EQ(m.options.threads, 2);
  EXPECT_EQ(m.options.max_waiting, 3u);
  EXPECT_EQ(settings->serve.media.timeout, 7.5);
  EXPECT_EQ(settings->serve.http.body_bytes, 4096u);
  EXPECT_EQ(try_settle({"--max-encoder-cache", "0"})->media.encoder_cache_tokens, 0);
}

TEST(MediaSettings, OneKindOfALimitKeepsTheOther) {
  const auto settings = try_settle({"--limit-mm-per-prompt", R"({"image": 4})"});
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->serve.media.max_images, 4);
  EXPECT_EQ(settings->serve.media.max_videos, 1);
}

TEST(MediaSettings, Mistakes) {
  EXPECT_NE(fault({"--limit-mm-per-prompt", R"({"picture": 4})"}).find("picture"), std::string::npos);
  EXPECT_NE(fault({"--limit-mm-per-prompt", R"({"image": -1})"}).find("between 0"), std::string::npos);
  EXPECT_NE(fault({"--limit-mm-per-prompt", R"({"image": "4"})"}), "");
  EXPECT_NE(fault({"--allowed-local-media-path", "/nowhere/at/all"}).find("no folder"), std::string::npos);
  EXPECT_NE(fault({"--media-request-bytes", "2000000", "--media-total-bytes", "1500000"}).find("above"),
            std::string::npos);
  EXPECT_NE(fault({"--media-ca-file", "/nowhere/ca.pem"}).find("cannot be read"), std::string::npos);
}

TEST(MediaSettings, AModelOfTextSaysWhatIsIdle) {
  ModelFacts text = seeing_model();
  text.pictures = false;
  const auto idle = try_settle({"--limit-mm-per-prompt", R"({"image": 4})", "--media-threads", "2"}, text);
  ASSERT_TRUE(idle.ok());
  EXPECT_FALSE(idle->media.wanted);
  ASSERT_EQ(idle->warnings.size(), 1u);
  EXPECT_NE(idle->warnings[0].find("--limit-mm-per-prompt, --media-threads"), std::string::npos);
  EXPECT_EQ(idle->serve.http.body_bytes, 64u << 20);
  const auto forced = try_settle({"--deploy-modality", "text"});
  ASSERT_TRUE(forced.ok());
  EXPECT_FALSE(forced->media.wanted);
}

}  // namespace
}  // namespace tern::app
