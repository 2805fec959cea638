#include "content/media/service/service_core.h"

namespace tern::content {

VideoReader default_video_reader() { return video::read_video; }

}  // namespace tern::content
