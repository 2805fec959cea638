// The MediaService of a server: a pool of threads beside serving, byte budgets, limits and the processor cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "content/media/media.h"
#include "content/media/profile/vision_profile.h"
#include "fetch/fetch.h"
#include "image/codecs/decode.h"
#include "video/video.h"

namespace tern::content {

// Bytes behind a URL; video frames of a file. Null takes fetch::fetch and video::read_video; tests put others here.
using Fetcher = std::function<Expected<std::vector<std::byte>>(std::string_view url, const fetch::FetchPolicy& policy)>;
using VideoReader = std::function<Expected<video::Video>(std::span<const std::byte>, const video::VideoOptions&)>;

struct MediaOptions {
  VisionProfile profile;
  fetch::FetchPolicy fetch;    // max_bytes does not count: decode.bytes and video.max_bytes do
  image::DecodeLimits decode;  // of one picture
  // frame_bytes by default: 180 frames of 1,920 x 1,080.
  video::VideoLimits video{
      .frame_bytes = size_t{1280} << 20};  // of one video; max_frames is the ceiling of what a request may ask for
  std::string video_helper;                // video::VideoOptions
  std::string font_file;                   // the same
  bool apply_exif = true;                  // turn pictures as their Exif orientation says
  int64_t max_request_tokens = 0;   // of all media of a request; 0: any number. Checked before anything is decoded
  double processor_cache_gib = -1;  // --max-processor-cache; -1: 4 GiB; 0: off

  int threads = 0;         // for decoding and resizing; 0: one per core
  int fetch_threads = 32;  // for fetching: they wait, most of the time. Half of them for a key or request
  bool background = true;  // the threads yield to those of serving (nice 10)
  int video_threads = 2;   // each waits for a decoder's process
  size_t request_bytes = size_t{4} << 30;  // decoded pixels and patches of one request
  size_t total_bytes =
      size_t{8} << 30;  // of all requests together, until the patches are released; the cache's come on top
  size_t request_file_bytes = size_t{256} << 20;  // fetched and decoded-from-base64 files of one request
  // Of all requests together: for data: URLs, and as much again for what is fetched.
  size_t total_file_bytes = size_t{1} << 30;
  size_t max_waiting = 256;  // requests on their way; more are refused. A key has three quarters

  bool want_sha256 = false;  // PreparedMedia::resized_sha256
  Fetcher fetcher;
  VideoReader video_reader;
};

// kInvalidArgument for options that contradict each other (a request's budget above the total, for instance).
// Destroying the service ends what is under way with kCancelled: every `done` has been called when it returns.
Expected<std::unique_ptr<MediaService>> make_media_service(MediaOptions options);

}  // namespace tern::content
