// How a command ends: exit statuses, and an error as one line.
#pragma once

#include "base/error.h"

namespace tern::app {

inline constexpr int kFailureExit = 1;  // it could not be done
inline constexpr int kUsageExit = 2;    // what was asked is wrong

// "tern: MESSAGE" on stderr, as one line; gives kUsageExit for kInvalidArgument and kUnsupported flags, else
// kFailureExit.
int report(const Error& error);

}  // namespace tern::app
