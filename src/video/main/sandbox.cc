#include "video/main/sandbox.h"

#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <memory>

namespace tern::video {
namespace {

bool limit(__rlimit_resource which, uint64_t soft, uint64_t hard) {
  const rlimit both{soft, hard};
  return setrlimit(which, &both) == 0;
}
bool limit(__rlimit_resource which, uint64_t value) { return limit(which, value, value); }

// Everything else fails with EPERM: libraries that ask for a file or a thread get an error that they can handle.
bool filter_calls() {
  const std::unique_ptr<void, decltype(&seccomp_release)> filter(seccomp_init(SCMP_ACT_ERRNO(1)), seccomp_release);
  if (!filter) return false;
  for (const int call : {SCMP_SYS(read),
                         SCMP_SYS(pread64),
                         SCMP_SYS(write),
                         SCMP_SYS(lseek),
                         SCMP_SYS(fstat),
                         SCMP_SYS(close),
                         SCMP_SYS(munmap),
                         SCMP_SYS(mremap),
                         SCMP_SYS(madvise),
                         SCMP_SYS(brk),
                         SCMP_SYS(futex),
                         SCMP_SYS(exit),
                         SCMP_SYS(exit_group),
                         SCMP_SYS(rt_sigreturn),
                         SCMP_SYS(rt_sigprocmask),
                         SCMP_SYS(clock_gettime),
                         SCMP_SYS(gettimeofday),
                         SCMP_SYS(getrandom),
                         SCMP_SYS(sched_getaffinity),
                         SCMP_SYS(sched_yield),
                         SCMP_SYS(getpid),
                         SCMP_SYS(gettid),
                         SCMP_SYS(restart_syscall)}) {
    if (seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, call, 0) != 0) return false;
  }
  // Memory, but none that can be executed.
  for (const int call : {SCMP_SYS(mmap), SCMP_SYS(mprotect)}) {
    if (seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, call, 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)) != 0) {
      return false;
    }
  }
  return seccomp_load(filter.get()) == 0;
}

}  // namespace

bool enter_sandbox(const Setup& setup) {
  // CPU time ends with SIGXCPU, which tells the server why; the hard limit's SIGKILL would not.
  return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_DUMPABLE, 0) == 0 && limit(RLIMIT_AS, setup.memory_bytes) &&
         limit(RLIMIT_CPU, setup.cpu_seconds, uint64_t{setup.cpu_seconds} + 1) && limit(RLIMIT_FSIZE, 0) &&
         limit(RLIMIT_CORE, 0) && limit(RLIMIT_NOFILE, 0) && limit(RLIMIT_NPROC, 0) && filter_calls();
}

}  // namespace tern::video
