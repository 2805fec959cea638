/* What glibc 2.28 lacks of what programs and libraries built with glibc 2.36 call: libtern_old_glibc.so in what is shipped.
   tools/lower_glibc.py takes the version off the names below, and then the dynamic linker finds them here first. Where the
   host's glibc has its own, that one does the work.

   Build: gcc -O2 -fPIC -shared -Wl,-soname,libtern_old_glibc.so (tools/dist_tree.sh). */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SHIPPED __attribute__((visibility("default")))

/* libstdc++ and OpenSSL skip locked instructions while it is not 0. That is only faster, so: never. */
SHIPPED char __libc_single_threaded = 0;

/* The kernel's struct stat is the C library's on x86-64. newfstatat, because glibc 2.33 and later call it, too: a filter of
   system calls sees the same on all hosts. */
static int stat_at(int fd, const char* path, struct stat* to, int flags) {
  return (int)syscall(SYS_newfstatat, fd, path, to, flags);
}
SHIPPED int stat(const char* path, struct stat* to) { return stat_at(AT_FDCWD, path, to, 0); }
SHIPPED int lstat(const char* path, struct stat* to) { return stat_at(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW); }
SHIPPED int fstat(int fd, struct stat* to) { return stat_at(fd, "", to, AT_EMPTY_PATH); }
SHIPPED int fstatat(int fd, const char* path, struct stat* to, int flags) { return stat_at(fd, path, to, flags); }
SHIPPED int stat64(const char* path, struct stat64* to) { return stat(path, (struct stat*)to); }
SHIPPED int lstat64(const char* path, struct stat64* to) { return lstat(path, (struct stat*)to); }
SHIPPED int fstat64(int fd, struct stat64* to) { return fstat(fd, (struct stat*)to); }
SHIPPED int fstatat64(int fd, const char* path, struct stat64* to, int flags) {
  return fstatat(fd, path, (struct stat*)to, flags);
}

SHIPPED pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

SHIPPED uint32_t arc4random(void) {
  uint32_t value;
  while (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) {
    if (errno != EINTR) abort(); /* a number that can be guessed is worse than an end */
  }
  return value;
}

/* Closes what is open now: a descriptor that another thread opens before the spawn has to be close-on-exec. */
typedef int (*CloseFrom)(posix_spawn_file_actions_t*, int);
SHIPPED int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t* actions, int from) {
  const CloseFrom own = (CloseFrom)dlsym(RTLD_NEXT, "posix_spawn_file_actions_addclosefrom_np");
  if (own) return own(actions, from);
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == NULL) return errno;
  int status = 0;
  for (const struct dirent* entry; status == 0 && (entry = readdir(folder)) != NULL;) {
    const int fd = atoi(entry->d_name); /* "." and "..": 0 */
    if (fd >= from && fd != dirfd(folder)) status = posix_spawn_file_actions_addclose(actions, fd);
  }
  closedir(folder);
  return status;
}

/* Waits until a moment of a clock. Before glibc 2.30 a condition variable knows the clock it was made with only, the real one
   by default, which may be set: so no wait is longer than a second, and its end without the moment having come is a wake-up
   without reason, which every caller must expect. */
static int64_t nanoseconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
/* The real time until which to wait; 0 when the moment has come. */
static int real_end(clockid_t clock, const struct timespec* end, struct timespec* real) {
  int64_t left = (int64_t)end->tv_sec * 1000000000 + end->tv_nsec - nanoseconds(clock);
  if (left <= 0) return 0;
  if (left > 1000000000) left = 1000000000;
  const int64_t until = nanoseconds(CLOCK_REALTIME) + left;
  real->tv_sec = until / 1000000000;
  real->tv_nsec = until % 1000000000;
  return 1;
}

typedef int (*CondClockwait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
SHIPPED int pthread_cond_clockwait(pthread_cond_t* cond, pthread_mutex_t* mutex, clockid_t clock, const struct timespec* end) {
  const CondClockwait own = (CondClockwait)dlsym(RTLD_NEXT, "pthread_cond_clockwait");
  if (own) return own(cond, mutex, clock, end);
  struct timespec real;
  if (!real_end(clock, end, &real)) return ETIMEDOUT;
  const int status = pthread_cond_timedwait(cond, mutex, &real);
  return status == ETIMEDOUT ? 0 : status;
}

typedef int (*MutexClocklock)(pthread_mutex_t*, clockid_t, const struct timespec*);
SHIPPED int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const struct timespec* end) {
  const MutexClocklock own = (MutexClocklock)dlsym(RTLD_NEXT, "pthread_mutex_clocklock");
  if (own) return own(mutex, clock, end);
  struct timespec real;
  while (real_end(clock, end, &real)) {
    const int status = pthread_mutex_timedlock(mutex, &real);
    if (status != ETIMEDOUT) return status;
  }
  return pthread_mutex_trylock(mutex) == 0 ? 0 : ETIMEDOUT;
}

typedef int (*SemClockwait)(sem_t*, clockid_t, const struct timespec*);
SHIPPED int sem_clockwait(sem_t* sem, clockid_t clock, const struct timespec* end) {
  const SemClockwait own = (SemClockwait)dlsym(RTLD_NEXT, "sem_clockwait");
  if (own) return own(sem, clock, end);
  struct timespec real;
  while (real_end(clock, end, &real)) {
    if (sem_timedwait(sem, &real) == 0) return 0;
    if (errno != ETIMEDOUT) return -1;
  }
  if (sem_trywait(sem) == 0) return 0;
  errno = ETIMEDOUT;
  return -1;
}

/* How exceptions find the tables of the code they pass through. */
struct Found {
  uintptr_t address;
  struct dl_find_object* to;
};
static int look(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  struct Found* const found = data;
  const ElfW(Phdr)* tables = NULL;
  uintptr_t begin = 0, end = 0, low = UINTPTR_MAX, high = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* const header = &info->dlpi_phdr[i];
    const uintptr_t from = info->dlpi_addr + header->p_vaddr;
    if (header->p_type == PT_GNU_EH_FRAME) tables = header;
    if (header->p_type != PT_LOAD) continue;
    if (from < low) low = from;
    if (from + header->p_memsz > high) high = from + header->p_memsz;
    if (found->address >= from && found->address < from + header->p_memsz) begin = from, end = from + header->p_memsz;
  }
  if (begin == end) return 0;
  if (tables == NULL) return -1;
  *found->to = (struct dl_find_object){0};
  found->to->dlfo_map_start = (void*)low;
  found->to->dlfo_map_end = (void*)high;
  found->to->dlfo_eh_frame = (void*)(info->dlpi_addr + tables->p_vaddr);
  return 1;
}
typedef int (*FindObject)(void*, struct dl_find_object*);
SHIPPED int _dl_find_object(void* address, struct dl_find_object* to) {
  /* The answer is the same in every thread, and asking twice harms nothing. */
  static FindObject own;
  static int asked;
  if (!__atomic_load_n(&asked, __ATOMIC_ACQUIRE)) {
    __atomic_store_n(&own, (FindObject)dlsym(RTLD_NEXT, "_dl_find_object"), __ATOMIC_RELAXED);
    __atomic_store_n(&asked, 1, __ATOMIC_RELEASE);
  }
  const FindObject next = __atomic_load_n(&own, __ATOMIC_RELAXED);
  if (next) return next(address, to);
  struct Found found = {(uintptr_t)address, to};
  return dl_iterate_phdr(look, &found) == 1 ? 0 : -1;
}

/* The resolver's functions, which had underscores before glibc 2.34. */
int old_res_nsearch(void*, const char*, int, int, unsigned char*, int);
int old_res_query(const char*, int, int, unsigned char*, int);
int old_dn_expand(const unsigned char*, const unsigned char*, const unsigned char*, char*, int);
__asm__(".symver old_res_nsearch, __res_nsearch@GLIBC_2.2.5");
__asm__(".symver old_res_query, __res_query@GLIBC_2.2.5");
__asm__(".symver old_dn_expand, __dn_expand@GLIBC_2.2.5");
SHIPPED int res_nsearch(void* state, const char* name, int class, int type, unsigned char* answer, int size) {
  return old_res_nsearch(state, name, class, type, answer, size);
}
SHIPPED int res_query(const char* name, int class, int type, unsigned char* answer, int size) {
  return old_res_query(name, class, type, answer, size);
}
SHIPPED int dn_expand(const unsigned char* message, const unsigned char* end, const unsigned char* from, char* to, int size) {
  return old_dn_expand(message, end, from, to, size);
}

/* A program linked with glibc 2.34 or later leaves its constructors to __libc_start_main; an older one runs only what it is
   given. A newer one calls this in their place. */
typedef int (*Main)(int, char**, char**);
typedef int (*Start)(Main, int, char**, int (*)(int, char**, char**), void (*)(void), void (*)(void), void*);

static int program(struct dl_phdr_info* info, size_t size, void* to) {
  (void)size;
  *(struct dl_phdr_info*)to = *info;
  return 1; /* the first is the program */
}
static int construct(int argc, char** argv, char** environment) {
  struct dl_phdr_info info = {0};
  dl_iterate_phdr(program, &info);
  const ElfW(Dyn)* dynamic = NULL;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn)*)(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
  }
  uintptr_t first = 0, array = 0, bytes = 0;
  for (; dynamic != NULL && dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_INIT) first = info.dlpi_addr + dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_INIT_ARRAY) array = info.dlpi_addr + dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_INIT_ARRAYSZ) bytes = dynamic->d_un.d_val;
  }
  if (first) ((void (*)(int, char**, char**))first)(argc, argv, environment);
  for (uintptr_t i = 0; i < bytes / sizeof(void*); ++i) {
    ((void (*)(int, char**, char**))((uintptr_t*)array)[i])(argc, argv, environment);
  }
  return 0;
}
SHIPPED int __libc_start_main(Main entry, int argc, char** argv, int (*init)(int, char**, char**), void (*fini)(void),
                              void (*end)(void), void* stack) {
  /* By dlvsym: a reference with a version would find this function, which has none. */
  const Start start = (Start)dlvsym(RTLD_NEXT, "__libc_start_main", "GLIBC_2.2.5");
  if (start == NULL) abort();
  return start(entry, argc, argv, init != NULL ? init : construct, fini, end, stack);
}
