// tern-video-decoder: decodes one video for the server that started it, and nothing else. The file is file descriptor
// 0, the conversation (protocol.h) file descriptor 3.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "video/main/reader.h"
#include "video/main/sandbox.h"
#include "video/protocol.h"

extern "C" {
#include <libavutil/log.h>
}

namespace {

using namespace tern::video;

bool read_exact(void* to, size_t size) {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t n = read(kSocketFd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

// Without the server there is nobody to decode for.
void write_exact(const void* from, size_t size) {
  const auto* at = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t n = write(kSocketFd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(3);
    at += n;
    size -= static_cast<size_t>(n);
  }
}

}  // namespace

int main() {
  Setup setup;
  if (!read_exact(&setup, sizeof setup) || setup.magic != kMagic) {
    std::fputs("tern-video-decoder is started by tern itself.\n", stderr);
    return 2;
  }
  if (!enter_sandbox(setup)) return 2;
  av_log_set_level(AV_LOG_QUIET);

  Reader reader;
  const Facts facts = reader.open(kFileFd, setup);
  write_exact(&facts, sizeof facts);
  if (facts.verdict != Verdict::kGood) return 0;

  Wanted wanted;
  if (!read_exact(&wanted, sizeof wanted) || wanted.magic != kMagic) return 0;
  std::vector<int64_t> indices(wanted.count);
  if (!read_exact(indices.data(), indices.size() * sizeof(int64_t))) return 0;
  for (const int64_t index : indices) {
    if (index < 0 || index >= facts.frames) return 2;
  }
  const uint64_t bytes = static_cast<uint64_t>(facts.width) * static_cast<uint64_t>(facts.height) * 3;
  reader.decode(indices, [&](uint32_t entry, int64_t index, const uint8_t* rgb) {
    const FrameHead head{kMagic, entry, index, rgb != nullptr ? bytes : 0};
    write_exact(&head, sizeof head);
    write_exact(rgb, head.bytes);
  });
  const FrameHead end;
  write_exact(&end, sizeof end);
  _exit(0);
}
