#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "image/codecs/decode.h"
#include "video/tests/support.h"

namespace tern::video {
namespace {

// Reads the number that tools/make_video_cases.py wrote into the frame's lower half.
int number_in(const image::Image& image) {
  int number = 0;
  for (int bit = 0; bit < 8; ++bit) {
    const uint8_t* at = image.row(image.height() * 3 / 4) + (bit * 16 + 8) * 3;
    if (at[0] + at[1] + at[2] > 3 * 128) number |= 1 << bit;
  }
  return number;
}

std::vector<int> numbers_in(const Video& video) {
  std::vector<int> out;
  for (const auto& frame : video.frames) out.push_back(number_in(frame));
  return out;
}

std::vector<int> counting(int count) {
  std::vector<int> out;
  for (int i = 0; i < count; ++i) out.push_back(i);
  return out;
}

TEST(ReadVideo, EveryFrameOfEveryFormat) {
  for (const Row& row : read_table("facts")) {
    const std::string& name = row[1];
    if (name == "mpeg4.avi" || name == "spoilt.mp4" || name == "rotated.mp4") continue;
    SCOPED_TRACE(name);
    const int count = std::stoi(row[3]);
    auto options = plain_options();
    options.sampling = all_frames(count);
    const auto video = read_video(read_file(data_dir() / name), options);
    ASSERT_TRUE(video.ok()) << video.error().message;
    EXPECT_EQ(video->facts.frames, count);
    EXPECT_NEAR(video->facts.average_fps, std::stod(row[4]), 0.01);
    EXPECT_EQ(video->facts.width, 128);
    EXPECT_EQ(video->facts.height, 64);
    auto numbers = numbers_in(*video);
    ASSERT_EQ(numbers.size(), static_cast<size_t>(count));
    if (name == "truncated.mp4") {  // the last picture in the file lacks its end: its place and those built on it
      for (int i = count - 4; i < count; ++i) {
        EXPECT_NEAR(numbers[i], i, 4);
        numbers[i] = i;
      }
    }
    EXPECT_EQ(numbers, counting(count));
  }
}

TEST(ReadVideo, SingleFramesByIndex) {
  // Far apart, so that the decoder seeks: 0, 20, 40 of 60 by three parts, and so on.
  for (const char* name : {"h264.mp4", "hevc.mp4", "vp9.webm", "vfr.mkv", "h264.avi"}) {
    for (const int parts : {2, 7}) {
      SCOPED_TRACE(name);
      auto options = plain_options();
      options.sampling = all_frames(parts);
      options.sampling.choice = FrameChoice::kMiddle;
      const auto video = read_video(read_file(data_dir() / name), options);
      ASSERT_TRUE(video.ok()) << video.error().message;
      const auto chosen = choose_frames(video->facts, options.sampling);
      ASSERT_TRUE(chosen.ok());
      std::vector<int> expected;
      for (const auto& frame : *chosen) expected.push_back(static_cast<int>(frame.index));
      EXPECT_EQ(numbers_in(*video), expected);
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_DOUBLE_EQ(video->seconds[i], (*chosen)[i].seconds);
    }
  }
}

TEST(ReadVideo, RepeatedAndPairedFrames) {
  auto options = plain_options();
  options.pair = true;
  options.sampling.fps = 50;  // twice as many as there are
  options.sampling.max_frames = 1000;
  const auto video = read_video(read_file(data_dir() / "vp8.webm"), options);
  ASSERT_TRUE(video.ok()) << video.error().message;
  ASSERT_GE(video->frames.size(), 38u);
  EXPECT_EQ(video->frames.size() % 2, 0u);
  const auto numbers = numbers_in(*video);
  EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
  EXPECT_EQ(numbers.back(), 19);
  options.sampling = all_frames(3);
  const auto odd = read_video(read_file(data_dir() / "vp8.webm"), options);
  ASSERT_TRUE(odd.ok());
  EXPECT_EQ(numbers_in(*odd), (std::vector<int>{0, 6, 13, 13}));
}

TEST(ReadVideo, RotationTurnsFrames) {
  auto options = plain_options();
  options.sampling = all_frames(2);
  const auto turned = read_video(read_file(data_dir() / "rotated.mp4"), options);
  const auto upright = read_video(read_file(data_dir() / "h264.mp4"), options);
  ASSERT_TRUE(turned.ok() && upright.ok());
  EXPECT_EQ(turned->facts.width, 64);
  EXPECT_EQ(turned->facts.height, 128);
  for (size_t i = 0; i < 2; ++i) {
    const auto& a = turned->frames[i];
    const auto& b = upright->frames[i];
    ASSERT_EQ(a.width(), b.height());
    for (int y = 0; y < b.height(); ++y) {
      for (int x = 0; x < b.width(); ++x) {  // clockwise: the first row becomes the last column
        ASSERT_EQ(std::memcmp(b.row(y) + 3 * x, a.row(x) + 3 * (b.height() - 1 - y), 3), 0) << x << " " << y;
      }
    }
  }
}

TEST(ReadVideo, BrokenFramesGiveWayToNeighbours) {
  auto options = plain_options();
  options.sampling = all_frames(20);
  const auto video = read_video(read_file(data_dir() / "spoilt.mp4"), options);
  ASSERT_TRUE(video.ok()) << video.error().message;
  // 0, 9, 10 and 19 are spoilt: the frame before, else the one after, else further away.
  EXPECT_EQ(numbers_in(*video),
            (std::vector<int>{1, 1, 2, 3, 4, 5, 6, 7, 8, 8, 11, 11, 12, 13, 14, 15, 16, 17, 18, 18}));
  EXPECT_DOUBLE_EQ(video->seconds[10], 11 / 25.0);
}

double mean_difference(const image::Image& a, const image::Image& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size_bytes(); ++i) sum += std::abs(int{a.data()[i]} - int{b.data()[i]});
  return sum / static_cast<double>(a.size_bytes());
}

TEST(ReadVideo, RealVideos) {
  const auto folder = shared_dir() / "data/video";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no videos at " << folder;
  const struct {
    const char *video, *picture;
    int frames, index, width, height;
  } rows[] = {{"nasa_13013.mp4", "nasa_13013.stream3.frame000000.png", 390, 0, 480, 270},
              {"nasa_13013.mp4", "nasa_13013.stream3.frame000035.png", 390, 35, 480, 270},
              {"h265_video.mp4", "h265_video.frame000005.png", 10, 5, 128, 128}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.picture);
    auto options = plain_options();
    options.sampling = all_frames(row.frames);
    options.limits.frame_bytes = size_t{1} << 28;
    const auto video = read_video(read_file(folder / row.video), options);
    ASSERT_TRUE(video.ok()) << video.error().message;
    ASSERT_EQ(video->facts.frames, row.frames);
    ASSERT_EQ(video->facts.width, row.width);
    const auto rgb = read_picture(folder / row.picture);
    ASSERT_TRUE(rgb.ok());
    ASSERT_EQ(rgb->height(), row.height);
    const double difference = mean_difference(video->frames[row.index], *rgb);
    EXPECT_EQ(difference, 0);  // bit for bit
    if (row.index > 0) {
      EXPECT_GT(mean_difference(video->frames[row.index - 1], *rgb), difference);
    }
  }
}

std::string code_of(const Expected<Video>& video) {
  if (video.ok()) return "ok";
  switch (video.error().code) {
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kTooLarge:
      return "large";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kInvalidArgument:
      return "invalid";
    default:
      return "other";
  }
}

TEST(ReadVideo, WhatIsNoVideo) {
  const auto options = plain_options();
  const auto go = [&](const std::vector<std::byte>& file) { return code_of(read_video(file, options)); };
  EXPECT_EQ(go(read_file(data_dir() / "mpeg4.avi")), "unsupported");
  EXPECT_EQ(go(read_file(data_dir() / "empty.mp4")), "corrupt");
  EXPECT_EQ(go({}), "unsupported");
  EXPECT_EQ(go(read_file(data_dir() / "stamp_480x270.png")), "unsupported");
  EXPECT_EQ(go(std::vector<std::byte>(1000)), "unsupported");
  auto file = read_file(data_dir() / "h264.mp4");
  file.resize(300);  // within the header
  EXPECT_EQ(go(file), "corrupt");
  file = read_file(data_dir() / "vp9.webm");
  file.resize(50);
  EXPECT_EQ(go(file), "corrupt");
  auto lost = options;
  lost.helper = "/nonexistent/decoder";
  EXPECT_EQ(code_of(read_video(read_file(data_dir() / "h264.mp4"), lost)), "unavailable");
}

TEST(ReadVideo, Limits) {
  const auto file = read_file(data_dir() / "h264.mp4");
  const auto go = [&](auto change) {
    auto options = plain_options();
    change(options);
    return code_of(read_video(file, options));
  };
  EXPECT_EQ(go([](VideoOptions&) {}), "ok");
  EXPECT_EQ(go([&](VideoOptions& o) { o.limits.max_bytes = file.size() - 1; }), "large");
  EXPECT_EQ(go([](VideoOptions& o) { o.limits.max_pixels = 128 * 64 - 1; }), "large");
  EXPECT_EQ(go([](VideoOptions& o) { o.limits.max_frames = 15; }), "large");
  EXPECT_EQ(go([](VideoOptions& o) { o.limits.max_frames = 16; }), "ok");
  EXPECT_EQ(go([](VideoOptions& o) { o.limits.max_seconds = 2.3; }), "large");
  EXPECT_EQ(go([](VideoOptions& o) { o.limits.frame_bytes = 16 * 128 * 64 * 3; }), "large");
  EXPECT_EQ(go([](VideoOptions& o) { o.limits.wall_seconds = 0; }), "large");
  EXPECT_NE(go([](VideoOptions& o) { o.limits.memory_bytes = 1 << 20; }), "ok");
  EXPECT_EQ(go([](VideoOptions& o) { o.sampling.target_frames = 4; }), "invalid");
}

// Every place of a small file is damaged in turn: whatever happens, happens to the child.
TEST(ReadVideo, DamagedFilesHarmNobody) {
  const auto whole = read_file(data_dir() / "h264.mp4");
  int decoded = 0;
  for (size_t at = 0; at < 16; ++at) {
    auto file = whole;
    const size_t place = at * file.size() / 16;
    for (size_t i = place; i < std::min(file.size(), place + 7); ++i) file[i] ^= std::byte{0xA5};
    auto options = plain_options();
    options.limits.wall_seconds = 5;
    decoded += read_video(file, options).ok();
  }
  EXPECT_GT(decoded, 2);
}

}  // namespace
}  // namespace tern::video
