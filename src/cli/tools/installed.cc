#include "cli/tools/installed.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace tern::cli {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;

// Modules are not taken from the folder one happens to be in.
constexpr const char* kPython = R"py(
import sys
sys.path = [p for p in sys.path if p]
import platform, struct
from importlib import metadata
print(sys.version.replace("\n", " ") + f" ({struct.calcsize('P') * 8}-bit runtime)")
print(platform.platform())
words = ("cuda", "fastdeploy", "flash", "nccl", "numpy", "nvidia", "onnx", "opencv", "paddle", "pillow", "safetensors",
         "sentencepiece", "tern", "tokenizers", "torch", "transformers", "triton", "zmq")
found = {(d.metadata["Name"] or "", d.version) for d in metadata.distributions()}
for name, version in sorted(found):
    if any(word in name.lower() for word in words):
        print(f"{name}=={version}")
)py";

// Reads to the end, or as far as the limits go.
std::string read_all(int fd, std::chrono::steady_clock::time_point until) {
  std::string out;
  std::array<char, 4096> piece{};
  while (out.size() < kMostBytes) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    pollfd one{fd, POLLIN, 0};
    if (left <= 0 || ::poll(&one, 1, static_cast<int>(left)) <= 0) return {};
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got <= 0) break;
    out.append(piece.data(), static_cast<size_t>(got));
  }
  return out;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

std::string output_of(const std::vector<std::string>& command, int seconds) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, ends[1], 1);
  posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
  std::vector<char*> args;
  for (const std::string& word : command) args.push_back(const_cast<char*>(word.c_str()));
  args.push_back(nullptr);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, args[0], &files, nullptr, args.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  ::close(ends[1]);
  std::string out;
  if (failed == 0) out = read_all(ends[0], std::chrono::steady_clock::now() + std::chrono::seconds(seconds));
  ::close(ends[0]);
  if (failed != 0) return {};
  if (out.empty()) ::kill(child, SIGKILL);  // silent for too long, or at its end anyway
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return {};
  return out;
}

std::string first_line(std::string_view text, std::string_view from) {
  text = text.substr(0, text.find('\n'));
  const size_t at = from.empty() ? std::string_view::npos : text.find(from);
  return std::string(at == std::string_view::npos ? text : text.substr(at));
}

PythonFacts python_facts() {
  std::vector<std::string> lines = lines_of(output_of({"python3", "-c", kPython}, 10));
  PythonFacts facts;
  if (lines.size() < 2) return facts;
  facts.version = lines[0];
  facts.platform = lines[1];
  facts.packages.assign(lines.begin() + 2, lines.end());
  return facts;
}

}  // namespace tern::cli
