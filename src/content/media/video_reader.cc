#include "content/media/service_core.h"

namespace tern::content {

VideoReader default_video_reader() {
  return [](std::span<const std::byte>, const video::VideoOptions&) -> Expected<video::Video> {
    return make_error(ErrorCode::kUnsupported, "this server reads no videos");
  };
}

}  // namespace tern::content
