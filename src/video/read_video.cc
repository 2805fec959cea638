#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/checked.h"
#include "video/child.h"
#include "video/protocol.h"
#include "video/stamp.h"
#include "video/video.h"

namespace tern::video {
namespace {

constexpr int64_t kMaxPackets = 10'000'000;

Error damaged() { return make_error(ErrorCode::kCorrupt, "The video could not be decoded."); }
Error too_large(const char* what) { return make_error(ErrorCode::kTooLarge, what); }

int orientation_of(int rotation) { return rotation == 90 ? 6 : rotation == 180 ? 3 : rotation == 270 ? 8 : 1; }

// What the child says is believed only as far as it is harmless.
Expected<VideoFacts> judge(const Facts& facts, const VideoLimits& limits) {
  if (facts.magic != kMagic) return damaged();
  switch (facts.verdict) {
    case Verdict::kGood:
      break;
    case Verdict::kUnsupported:
      return make_error(ErrorCode::kUnsupported, "The video's format is not supported.");
    case Verdict::kTooLarge:
      return too_large("The video is larger than allowed.");
    case Verdict::kNoVideo:
      return make_error(ErrorCode::kCorrupt, "The video has no frames.");
    default:
      return damaged();
  }
  const bool sound = facts.frames > 0 && facts.frames <= kMaxPackets && facts.width > 0 && facts.height > 0 &&
                     facts.width <= 1 << 16 && facts.height <= 1 << 16 && std::isfinite(facts.average_fps) &&
                     facts.average_fps > 0 && facts.rotation >= 0 && facts.rotation <= 270 && facts.rotation % 90 == 0;
  if (!sound) return damaged();
  if (int64_t{facts.width} * facts.height > limits.max_pixels) return too_large("The video is larger than allowed.");
  VideoFacts out;
  out.frames = facts.frames;
  out.average_fps = facts.average_fps;
  out.duration = static_cast<double>(facts.frames) / facts.average_fps;
  out.width = facts.rotation % 180 == 0 ? facts.width : facts.height;
  out.height = facts.rotation % 180 == 0 ? facts.height : facts.width;
  if (!(out.duration <= limits.max_seconds)) return too_large("The video is longer than allowed.");
  return out;
}

struct Entry {
  int64_t index = -1;  // decoded for it
  image::Image image;
};

// One entry for each wanted index; entries without a picture could not be decoded, nor a neighbour.
Expected<std::vector<Entry>> receive_frames(Child& child, const Facts& facts, const std::vector<int64_t>& wanted) {
  Wanted head;
  head.count = static_cast<uint32_t>(wanted.size());
  TERN_RETURN_IF_ERROR(child.send(&head, sizeof head));
  TERN_RETURN_IF_ERROR(child.send(wanted.data(), wanted.size() * sizeof(int64_t)));
  std::vector<Entry> entries(wanted.size());
  std::vector<bool> seen(wanted.size(), false);
  const uint64_t bytes = uint64_t{3} * static_cast<uint64_t>(facts.width) * static_cast<uint64_t>(facts.height);
  while (true) {
    FrameHead frame;
    TERN_RETURN_IF_ERROR(child.receive(&frame, sizeof frame));
    if (frame.magic != kMagic) return damaged();
    if (frame.entry == kEnd) break;
    if (frame.entry >= wanted.size() || seen[frame.entry]) return damaged();
    seen[frame.entry] = true;
    if (frame.index == -1 && frame.bytes == 0) continue;
    if (frame.index < 0 || frame.index >= facts.frames || frame.bytes != bytes) return damaged();
    TERN_ASSIGN_OR_RETURN(auto image, image::Image::make(image::Mode::kRGB, facts.width, facts.height));
    TERN_RETURN_IF_ERROR(child.receive(image.data(), image.size_bytes()));
    TERN_ASSIGN_OR_RETURN(image, image::apply_orientation(std::move(image), orientation_of(facts.rotation)));
    entries[frame.entry] = {frame.index, std::move(image)};
  }
  return entries;
}

Expected<image::Image> copy_of(const image::Image& image) {
  TERN_ASSIGN_OR_RETURN(auto out, image::Image::make(image.mode(), image.width(), image.height()));
  std::memcpy(out.data(), image.data(), image.size_bytes());
  return out;
}

// In the order of choice, a frame as often as it was chosen, each with its time.
Status assemble(const std::vector<ChosenFrame>& chosen, const std::vector<int64_t>& wanted, std::vector<Entry> entries,
                const VideoOptions& options, Video& video) {
  std::optional<Stamper> stamper;
  if (!options.font_file.empty()) {
    TERN_ASSIGN_OR_RETURN(stamper, Stamper::open(options.font_file));
  }
  std::vector<int> uses(wanted.size(), 0);
  const auto place = [&](int64_t index) {
    return static_cast<size_t>(std::lower_bound(wanted.begin(), wanted.end(), index) - wanted.begin());
  };
  for (const ChosenFrame& frame : chosen) ++uses[place(frame.index)];
  for (const ChosenFrame& frame : chosen) {
    Entry& entry = entries[place(frame.index)];
    if (entry.index < 0) return damaged();
    const bool last_use = --uses[place(frame.index)] == 0;
    image::Image image;
    if (last_use) {
      image = std::move(entry.image);
    } else {
      TERN_ASSIGN_OR_RETURN(image, copy_of(entry.image));
    }
    const double seconds =
        static_cast<double>(entry.index) * video.facts.duration / static_cast<double>(video.facts.frames);
    if (stamper) TERN_RETURN_IF_ERROR(stamper->stamp(image, time_text(seconds)));
    video.frames.push_back(std::move(image));
    video.seconds.push_back(seconds);
  }
  if (options.pair && video.frames.size() % 2 == 1) {
    TERN_ASSIGN_OR_RETURN(auto last, copy_of(video.frames.back()));
    video.frames.push_back(std::move(last));
    video.seconds.push_back(video.seconds.back());
  }
  return {};
}

}  // namespace

Expected<Video> read_video(std::span<const std::byte> file, const VideoOptions& options) {
  const VideoLimits& limits = options.limits;
  if (file.size() > limits.max_bytes) return too_large("The video is larger than allowed.");
  const auto wall = std::chrono::duration<double>(limits.wall_seconds);
  const auto deadline = Child::Clock::now() + std::chrono::duration_cast<Child::Clock::duration>(wall);
  TERN_ASSIGN_OR_RETURN(auto child, Child::start(options.helper, file, deadline));
  Setup setup;
  setup.cpu_seconds = static_cast<uint32_t>(std::clamp(std::ceil(limits.cpu_seconds), 1.0, 86400.0));
  setup.max_pixels = limits.max_pixels;
  setup.max_packets = kMaxPackets;
  setup.memory_bytes = limits.memory_bytes;
  TERN_RETURN_IF_ERROR(child.send(&setup, sizeof setup));
  Facts facts;
  TERN_RETURN_IF_ERROR(child.receive(&facts, sizeof facts));
  Video video;
  TERN_ASSIGN_OR_RETURN(video.facts, judge(facts, limits));

  TERN_ASSIGN_OR_RETURN(const auto chosen, choose_frames(video.facts, options.sampling));
  if (chosen.size() > static_cast<size_t>(std::max(0, limits.max_frames)))
    return too_large("Too many frames of the video were asked for.");
  const auto one = checked_mul<size_t>(size_t{3} * facts.width, facts.height);
  const auto all = one ? checked_mul<size_t>(*one, chosen.size() + 1) : std::nullopt;
  if (!all || *all > limits.frame_bytes) return too_large("The frames of the video are larger than allowed.");
  std::vector<int64_t> wanted;
  for (const ChosenFrame& frame : chosen) wanted.push_back(frame.index);
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  TERN_ASSIGN_OR_RETURN(auto entries, receive_frames(child, facts, wanted));
  TERN_RETURN_IF_ERROR(assemble(chosen, wanted, std::move(entries), options, video));
  return video;
}

std::string find_helper(const std::string& program_folder) { return program_folder + "/tern-video-decoder"; }

std::string find_font(const std::string& program_folder) {
  for (const std::string& path :
       {program_folder + "/Roboto-Regular.ttf",
        std::string("/usr/share/fonts/truetype/roboto/unhinted/RobotoTTF/Roboto-Regular.ttf")}) {
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return {};
}

}  // namespace tern::video
