// What the decoder gives up before it looks at the first byte of a video.
#pragma once

#include "video/protocol.h"

namespace tern::video {

// Limits memory and CPU time; no files, processes or new privileges; dies with its parent; a system-call filter under
// which only reading, writing, memory and time are left. False when a part of it could not be had.
bool enter_sandbox(const Setup& setup);

}  // namespace tern::video
