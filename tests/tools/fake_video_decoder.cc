// Stands in for tern-video-decoder and misbehaves as the first line of its file says. For the tests of src/video.
#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "video/protocol.h"

namespace {

using namespace tern::video;

void put(const void* from, size_t size) {
  const auto* at = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t n = write(kSocketFd, at, size);
    if (n <= 0) _exit(3);
    at += n;
    size -= static_cast<size_t>(n);
  }
}

void get(void* to, size_t size) {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t n = read(kSocketFd, at, size);
    if (n <= 0) _exit(3);
    at += n;
    size -= static_cast<size_t>(n);
  }
}

int open_descriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  for (const dirent* entry = readdir(folder); entry != nullptr; entry = readdir(folder))
    count += entry->d_name[0] != '.';
  closedir(folder);
  return count - 1;  // the folder itself
}

void change(Facts& facts, const std::string& how) {
  if (how == "magic") facts.magic = 7;
  if (how == "verdict") facts.verdict = static_cast<Verdict>(99);
  if (how == "width") facts.width = 1 << 30;
  if (how == "negative") facts.width = -8;
  if (how == "pixels") facts.width = facts.height = 60000;
  if (how == "none") facts.frames = 0;
  if (how == "many") facts.frames = std::numeric_limits<int64_t>::max();
  if (how == "nan") facts.average_fps = std::nan("");
  if (how == "slow") facts.average_fps = 1e-300;
  if (how == "infinite") facts.average_fps = std::numeric_limits<double>::infinity();
  if (how == "rotation") facts.rotation = 45;
}

}  // namespace

extern char** environ;

int main() {
  char text[32] = {};
  (void)!pread(kFileFd, text, sizeof text - 1, 0);
  const std::string how(text);
  Setup setup;
  get(&setup, sizeof setup);
  if (how == "hang") pause();
  if (how == "crash") abort();
  if (how == "leave") return 0;
  if (how == "spin") {
    const rlimit second{1, 2};
    setrlimit(RLIMIT_CPU, &second);
    while (true) asm volatile("");
  }
  if (how == "inherit" && (open_descriptors() != 4 || *environ != nullptr)) return 1;
  if (how == "write" && (write(kFileFd, "x", 1) >= 0 || ftruncate(kFileFd, 0) == 0)) return 1;
  Facts facts;
  facts.verdict = Verdict::kGood;
  facts.frames = 40;
  facts.width = 8;
  facts.height = 4;
  facts.average_fps = 10;
  change(facts, how);
  if (how == "trickle") {
    for (const char* at = reinterpret_cast<const char*>(&facts);; usleep(100000)) put(at++, 1);
  }
  put(&facts, how == "cut" ? 10 : sizeof facts);
  if (how == "cut") return 0;
  Wanted wanted;
  get(&wanted, sizeof wanted);
  std::vector<int64_t> indices(wanted.count);
  get(indices.data(), indices.size() * sizeof(int64_t));
  if (how == "stop") pause();
  const std::vector<char> pixels(8 * 4 * 3, 9);
  for (uint32_t i = 0; how == "endless" || i < wanted.count; ++i) {
    FrameHead head{kMagic, i, indices[i % wanted.count], pixels.size()};
    if (how == "entry") head.entry = wanted.count;
    if (how == "twice") head.entry = 0;
    if (how == "index") head.index = 40;
    if (how == "below") head.index = -2;
    if (how == "bytes") head.bytes = std::numeric_limits<uint64_t>::max();
    if (how == "head") head.magic = 0;
    if (how == "missing") head = {kMagic, i, -1, 0};
    if (how == "skip" && i == 3) continue;
    put(&head, sizeof head);
    put(pixels.data(), how == "missing" ? 0 : how == "part" ? 5 : pixels.size());
    if (how == "part") abort();
  }
  const FrameHead end;
  put(&end, sizeof end);
  if (how == "linger") pause();
  return 0;
}
