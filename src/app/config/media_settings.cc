#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/config/settings.h"

namespace tern::app {
namespace {

constexpr int64_t kMostItems = 100'000;
constexpr int64_t kEncoderCacheTokens = 8192;
// Debian's place of the font that FastDeploy's package brings along.
constexpr const char* kSystemFont = "/usr/share/fonts/truetype/roboto/unhinted/RobotoTTF/Roboto-Regular.ttf";

Status wrong(std::string_view flag, const std::string& message) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("--{} {}", flag, message), std::string(flag));
}

bool is_folder(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

// What lies in the folder of the program; "" when nothing does.
std::string beside_program(const std::string& name) {
  char path[4096];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) return "";
  const std::string program(path, static_cast<size_t>(n));
  const std::string found = program.substr(0, program.rfind('/') + 1) + name;
  return ::access(found.c_str(), R_OK) == 0 ? found : "";
}

std::string font_file(const FlagSet& flags) {
  if (flags.has("video-font")) return flags.text("video-font");
  if (const std::string own = beside_program("Roboto-Regular.ttf"); !own.empty()) return own;
  return ::access(kSystemFont, R_OK) == 0 ? kSystemFont : "";
}

Status check_limits(const FlagSet& flags) {
  if (!flags.has("limit-mm-per-prompt")) return {};
  const json::Object* limits = flags.get("limit-mm-per-prompt").if_object();
  if (limits == nullptr) return wrong("limit-mm-per-prompt", "is no JSON object like {\"image\": 100, \"video\": 100}");
  for (const auto& item : *limits) {
    const std::string_view key(item.key().data(), item.key().size());
    if (key != "image" && key != "video" && key != "audio") {
      return wrong("limit-mm-per-prompt",
                   fmt::format("has the unknown key \"{}\"; image, video and audio are known", key));
    }
    auto value = json::get_int(*limits, key);
    if (!value.ok()) return wrong("limit-mm-per-prompt", value.error().message);
    if (*value && (**value < 0 || **value > kMostItems)) {
      return wrong("limit-mm-per-prompt", fmt::format("{} {} is not between 0 and {}", key, **value, kMostItems));
    }
  }
  return {};
}

Status check_budget(const FlagSet& flags, std::string_view one, std::string_view all) {
  if (flags.integer(one) <= flags.integer(all)) return {};
  return wrong(one, fmt::format("{} is above --{} ({})", flags.integer(one), all, flags.integer(all)));
}

}  // namespace

Status validate_media(const FlagSet& flags) {
  TERN_RETURN_IF_ERROR(check_limits(flags));
  if (flags.has("mm-processor-kwargs") && !flags.get("mm-processor-kwargs").is_object()) {
    return wrong("mm-processor-kwargs", "is no JSON object");
  }
  TERN_RETURN_IF_ERROR(check_budget(flags, "media-request-bytes", "media-total-bytes"));
  TERN_RETURN_IF_ERROR(check_budget(flags, "media-request-file-bytes", "media-total-file-bytes"));
  if (flags.has("allowed-local-media-path") && !is_folder(flags.text("allowed-local-media-path"))) {
    return wrong("allowed-local-media-path",
                 fmt::format("{} is no folder of this machine", flags.text("allowed-local-media-path")));
  }
  for (const char* file : {"media-ca-file", "video-decoder", "video-font"}) {
    if (flags.has(file) && ::access(flags.text(file).c_str(), R_OK) != 0) {
      return wrong(file, fmt::format("{} cannot be read", flags.text(file)));
    }
  }
  return {};
}

std::string idle_media_line(const FlagSet& flags, const ModelFacts& model) {
  if (model.folder.empty()) return "";
  const bool text = flags.text("deploy-modality") == "text";
  if (model.pictures && !text) return "";
  std::vector<std::string> names;
  for (const char* name : {"limit-mm-per-prompt", "mm-processor-kwargs", "max-processor-cache", "max-encoder-cache",
                           "disable-chunked-mm-input"}) {
    if (flags.given(name)) names.push_back(fmt::format("--{}", name));
  }
  for (const FlagSpec& flag : media_flags()) {
    if (flags.given(flag.name)) names.push_back(fmt::format("--{}", flag.name));
  }
  if (names.empty()) return "";
  return fmt::format("without effect, since {}: {}",
                     model.pictures ? "--deploy-modality text is given" : "the model reads text only",
                     fmt::join(names, ", "));
}

MediaSettings media_settings(const FlagSet& flags, const ModelFacts& model) {
  MediaSettings s;
  s.wanted = model.pictures && flags.text("deploy-modality") != "text";
  if (const json::Object* kwargs = flags.get("mm-processor-kwargs").if_object()) s.processor_kwargs = *kwargs;
  const int64_t kept = flags.integer("max-encoder-cache");
  s.encoder_cache_tokens = kept < 0 ? kEncoderCacheTokens : kept;

  const auto bytes = [&](std::string_view name) { return static_cast<size_t>(flags.integer(name)); };
  content::MediaOptions& o = s.options;
  o.fetch.max_bytes = std::max(bytes("max-media-bytes"), bytes("max-video-bytes"));
  o.fetch.connect_timeout = flags.number("media-connect-timeout");
  o.fetch.total_timeout = flags.number("media-fetch-timeout");
  o.fetch.tries = flags.integer32("media-fetch-tries");
  o.fetch.max_redirects = flags.integer32("max-media-redirects");
  o.fetch.allowed_domains = flags.texts("allowed-media-domains");
  o.fetch.allow_private = flags.boolean("allow-private-media-addresses");
  o.fetch.allow_http = flags.boolean("allow-plain-http-media");
  o.fetch.local_root = flags.text("allowed-local-media-path");
  o.fetch.ca_file = flags.text("media-ca-file");
  o.decode.bytes = bytes("max-media-bytes");
  o.decode.pixels = bytes("max-image-pixels");
  o.video.max_bytes = bytes("max-video-bytes");
  o.video.max_pixels = flags.integer("max-video-pixels");
  o.video.max_frames = flags.integer32("max-video-frames");
  o.video.max_seconds = flags.number("max-video-seconds");
  o.video.wall_seconds = flags.number("video-decode-timeout");
  o.video.cpu_seconds = o.video.wall_seconds;  // the decoder has one thread
  o.video.memory_bytes = bytes("video-decoder-memory");
  o.video_helper = flags.has("video-decoder") ? flags.text("video-decoder") : beside_program("tern-video-decoder");
  o.font_file = font_file(flags);
  o.apply_exif = flags.boolean("apply-exif-orientation");
  o.max_request_tokens = flags.integer("max-model-len");
  o.processor_cache_gib = flags.number("max-processor-cache");
  o.threads = flags.has("media-threads") ? flags.integer32("media-threads") : 0;
  o.request_bytes = bytes("media-request-bytes");
  o.total_bytes = bytes("media-total-bytes");
  o.request_file_bytes = bytes("media-request-file-bytes");
  o.total_file_bytes = bytes("media-total-file-bytes");
  o.max_waiting = bytes("max-waiting-media");
  return s;
}

}  // namespace tern::app
