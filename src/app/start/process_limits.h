// What the system allows this process: open files, stacks, memory.
#pragma once

#include "base/error.h"

namespace tern::app {

// First of all, before threads start: the soft limit of open files becomes the hard one; stacks of threads have a size
// of their own, whatever `ulimit -s` says; what memory or threads are lacking for ends the process with one line.
// kResourceExhausted when the stack of the first thread is too small to go on (it is raised when that is allowed).
Status prepare_process();

// kResourceExhausted when a server could not even open what it needs itself.
Status enough_files();

}  // namespace tern::app
