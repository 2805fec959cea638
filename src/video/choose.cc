#include <algorithm>
#include <cmath>
#include <random>

#include "video/video.h"

namespace tern::video {
namespace {

// More times than this come from a rule without a ceiling; read_video's limits are far below.
constexpr double kMostFrames = 1 << 20;

Error bad(const char* text) { return make_error(ErrorCode::kInvalidArgument, text); }

// numpy.linspace(0, frames, parts + 1) cut to integers.
int64_t edge(int64_t frames, int64_t parts, int64_t i) {
  if (i == parts) return frames;
  return static_cast<int64_t>(static_cast<double>(i) * (static_cast<double>(frames) / static_cast<double>(parts)));
}

std::vector<int64_t> by_target(const VideoFacts& facts, int64_t target, const SamplingRule& rule) {
  const int64_t parts = std::min(target, facts.frames);
  std::mt19937_64 random(rule.seed);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t left = edge(facts.frames, parts, i), right = edge(facts.frames, parts, i + 1);
    int64_t at = left;
    if (rule.choice == FrameChoice::kMiddle) at = (left + right - 1) / 2;
    // Not a distribution of the library: its numbers differ between libraries.
    if (rule.choice == FrameChoice::kRandom)
      at = left + static_cast<int64_t>(random() % static_cast<uint64_t>(right - left));
    out.push_back(at);
  }
  return out;
}

std::vector<int64_t> by_rate(const VideoFacts& facts, const SamplingRule& rule) {
  const double step = 1.0 / rule.fps;
  const auto count = static_cast<int64_t>(std::ceil(facts.duration / step));
  const double shift = rule.choice == FrameChoice::kMiddle ? step / 2 : 0.0;
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) {
    const double index = std::nearbyint((static_cast<double>(i) * step + shift) * facts.average_fps);
    if (index < static_cast<double>(facts.frames)) out.push_back(static_cast<int64_t>(index));
  }
  return out;
}

Expected<std::vector<int64_t>> by_qwen(const VideoFacts& facts, const SamplingRule& rule) {
  constexpr int64_t kFactor = 2;  // frames that share a patch
  const auto total = static_cast<double>(facts.frames);
  double wanted = rule.target_frames > 0 ? rule.target_frames : total / facts.average_fps * rule.fps;
  if (rule.target_frames <= 0) wanted = std::min(std::max<double>(wanted, rule.min_frames), double(rule.max_frames));
  auto count = static_cast<int64_t>(std::min({wanted, total, kMostFrames})) / kFactor * kFactor;
  if (count > 2) count = count / 4 * 4;
  count = std::max<int64_t>(count, 1);
  const double step = total / static_cast<double>(count);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<int64_t>(static_cast<double>(i) * step));
  return out;
}

Expected<std::vector<int64_t>> indices_of(const VideoFacts& facts, const SamplingRule& rule) {
  if (rule.target_frames > 0 && rule.fps >= 0) return bad("target_frames goes with a negative fps only.");
  if (rule.target_frames <= 0 && !(rule.fps > 0)) return bad("Either fps or target_frames must be positive.");
  if (rule.min_frames < 0 || rule.max_frames < 1 || rule.min_frames > rule.max_frames) {
    return bad("min_frames and max_frames contradict each other.");
  }
  if (rule.qwen) return by_qwen(facts, rule);
  if (rule.target_frames > 0) return by_target(facts, rule.target_frames, rule);
  const double count = std::trunc(facts.duration * rule.fps);
  if (count < rule.min_frames) return by_target(facts, rule.min_frames, rule);
  if (count > rule.max_frames) return by_target(facts, rule.max_frames, rule);
  if (count > kMostFrames) return bad("Too many frames.");
  return by_rate(facts, rule);
}

}  // namespace

Expected<std::vector<ChosenFrame>> choose_frames(const VideoFacts& facts, const SamplingRule& rule) {
  const bool sound = facts.frames > 0 && std::isfinite(facts.average_fps) && facts.average_fps > 0 &&
                     facts.duration > 0 && facts.duration < 1e12 && std::isfinite(rule.fps);
  if (!sound) return bad("The video has no frames, or no duration.");
  TERN_ASSIGN_OR_RETURN(const auto indices, indices_of(facts, rule));
  std::vector<ChosenFrame> out;
  for (const int64_t index : indices) {
    out.push_back({index, static_cast<double>(index) * facts.duration / static_cast<double>(facts.frames)});
  }
  if (out.empty()) return bad("The rule chooses no frame.");
  return out;
}

}  // namespace tern::video
