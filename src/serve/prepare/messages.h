// Messages of a conversation in the form that OpenAI's clients send and templates take.
#pragma once

#include <string_view>

#include "base/error.h"
#include "json/json.h"
#include "serve/config.h"
#include "serve/core/ask.h"

namespace tern::serve::prepare {

// Messages of a chat request (fastdeploy.md 4.1, 4.3): roles, contents, limits and numbers of media checked, keys
// that hold null or no tool call dropped. Fills ask.messages and ask.media; `messages` is used up, so that
// the bytes of data: URLs are never held twice. `shared`: kwargs that hold for every medium whose part does not set
// them.
Status take_messages(json::Array& messages, const json::Object* shared, const ServeConfig& config, Ask& ask);
// A key of the request's mm_processor_kwargs that a picture or a video reads: "fps", "video_fps".
bool is_shared_media_kwarg(std::string_view key);

}  // namespace tern::serve::prepare
