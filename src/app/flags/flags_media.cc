#include "app/flags/flags.h"

// Flags for pictures and videos that FastDeploy does not have: what a client may make the server fetch, and how much.
namespace tern::app {
namespace {
using enum ValueType;
constexpr FlagGroup kHere = FlagGroup::kMedia;

constexpr FlagSpec seconds(std::string_view name, std::string_view fallback, std::string_view meaning) {
  return {
      .name = name, .group = kHere, .type = kFloat, .fallback = fallback, .min = 0.1, .max = 1e6, .meaning = meaning};
}
constexpr FlagSpec count(std::string_view name, std::string_view fallback, double min, double max,
                         std::string_view meaning) {
  return {.name = name, .group = kHere, .type = kInt, .fallback = fallback, .min = min, .max = max, .meaning = meaning};
}
constexpr FlagSpec toggle(std::string_view name, std::string_view fallback, std::string_view meaning) {
  return {.name = name, .group = kHere, .type = kBool, .fallback = fallback, .meaning = meaning};
}

constexpr double kMaxBytes = 1ull << 46;

constexpr FlagSpec kFlags[] = {
    {.name = "allowed-local-media-path",
     .group = kHere,
     .meaning = "Folder below which file:// may read; without it file:// is refused."},
    {.name = "allowed-media-domains",
     .group = kHere,
     .type = kList,
     .meaning = "Hosts that http(s):// may ask: example.org, .example.org (and all below it), host:port. They may lie "
                "in private networks. Without it: every public host on ports 80 and 443."},
    toggle("allow-private-media-addresses", "false",
           "http(s):// may also ask private, loopback and link-local addresses, on any port."),
    toggle("allow-plain-http-media", "true", "http:// besides https://."),
    {.name = "media-ca-file",
     .group = kHere,
     .derived = "the system's",
     .meaning = "Certificates that https:// trusts."},
    toggle("apply-exif-orientation", "true",
           "Turns pictures as their Exif or XMP data say, so that they stand upright."),
    count("max-media-bytes", "67108864", 1, kMaxBytes, "File of one picture."),
    count("max-video-bytes", "268435456", 1, kMaxBytes, "File of one video."),
    count("max-image-pixels", "89478485", 1, 1ull << 40, "Width times height of one picture."),
    count("max-video-pixels", "8388608", 1, 1ull << 32, "Width times height of a video's frames."),
    count("max-video-frames", "768", 1, 1 << 20, "Frames taken of one video."),
    seconds("max-video-seconds", "3600", "Length of one video."),
    seconds("video-decode-timeout", "90", "Seconds for decoding one video."),
    count("video-decoder-memory", "2147483648", 1 << 26, kMaxBytes, "Bytes that decoding one video may take."),
    seconds("media-connect-timeout", "5", "Seconds for a connection to a media host."),
    seconds("media-fetch-timeout", "30", "Seconds for one file: all tries and redirects together."),
    count("media-fetch-tries", "3", 1, 16, "Tries of one file."),
    count("max-media-redirects", "3", 0, 16, "Redirects of one file."),
    seconds("media-timeout", "120", "Seconds for all media of a request, from its arrival."),
    {.name = "media-threads",
     .group = kHere,
     .type = kInt,
     .derived = "one per core",
     .min = 1,
     .max = 1024,
     .meaning = "Threads that decode and resize, at a lower priority than the rest."},
    count("media-request-bytes", "4294967296", 1 << 20, kMaxBytes, "Decoded pixels and patches of one request."),
    count("media-total-bytes", "8589934592", 1 << 20, kMaxBytes, "Decoded pixels and patches of all requests."),
    count("media-request-file-bytes", "268435456", 1 << 20, kMaxBytes, "Files of one request."),
    count("media-total-file-bytes", "1073741824", 1 << 20, kMaxBytes,
          "Files of data: URLs of all requests; as much again for files that are fetched."),
    count("max-waiting-media", "256", 0, 1 << 20, "Requests whose media wait for their turn; more: 429."),
    {.name = "video-decoder",
     .group = kHere,
     .derived = "tern-video-decoder beside the program",
     .meaning = "Program that decodes videos."},
    {.name = "video-font",
     .group = kHere,
     .derived = "Roboto-Regular.ttf beside the program, or the system's",
     .meaning = "Font of the time stamps on video frames."},
};
}  // namespace

std::span<const FlagSpec> media_flags() { return kFlags; }
}  // namespace tern::app
