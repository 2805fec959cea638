// What an engine is told beside requests: it is carried out between two steps, on the engine's thread.
#pragma once

#include <cstdint>
#include <future>
#include <optional>

#include "base/error.h"

namespace tern::engine {

enum class Control : uint8_t {
  kPause,   // open requests end and keep what they have said; those that come later wait
  kResume,  // they go on
  // These need a pause.
  kForget,     // nothing is found again in the prefix cache and the encoder cache
  kGiveCache,  // the memory of the cache's blocks goes back; their addresses stay
  kTakeCache,  // and comes again, empty
};

struct ControlOrder {
  Control what = Control::kPause;
  std::optional<Error> why;  // of kPause: what open requests end with; nothing: kAbort
};

}  // namespace tern::engine
