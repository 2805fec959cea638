// `tern collect-env`: what a report of a fault should say about the machine. Prints no secret.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "app/flags/environment.h"
#include "app/options.h"
#include "base/cpu_isa.h"
#include "cli/commands.h"
#include "cli/tools/installed.h"
#include "device/nvml.h"

namespace tern::cli {
namespace {

void line(std::string_view name, std::string_view value) { fmt::print("{:<24}: {}\n", name, value); }

// What stands behind `key` and ':' or '=' in the first line of a file that begins with it; "" without such a line.
std::string field(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    if (!text.starts_with(key)) continue;
    const size_t at = text.find_first_not_of(" \t:=\"", key.size());
    if (at == std::string::npos) continue;
    text = text.substr(at);
    while (!text.empty() && (text.back() == '"' || text.back() == ' ')) text.pop_back();
    return text;
  }
  return "";
}

std::string known(std::string text) { return text.empty() ? "not known" : text; }

// As FastDeploy says it of what is not installed.
std::string collected(std::string text) { return text.empty() ? "Could not collect" : text; }

// Whether the loader finds a library.
std::string_view found(const char* library) {
  void* const handle = ::dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return "no";
  ::dlclose(handle);
  return "yes";
}

void print_system() {
  utsname name{};
  (void)::uname(&name);
  line("Tern version", TERN_VERSION);
  line("OS", known(field("/etc/os-release", "PRETTY_NAME")));
  line("Kernel", fmt::format("{} {} ({})", name.sysname, name.release, name.machine));
  line("GCC version", collected(first_line(output_of({"gcc", "--version"}, 5), "(")));
  line("Clang version", collected(first_line(output_of({"clang", "--version"}, 5), "version ")));
  line("CMake version", collected(first_line(output_of({"cmake", "--version"}, 5), "version ")));
  line("Libc version", fmt::format("glibc-{}", ::gnu_get_libc_version()));
  line("CPU", known(field("/proc/cpuinfo", "model name")));
  line("CPUs", fmt::format(
                   "{} of {} usable",
                   [] {
                     cpu_set_t set;
                     CPU_ZERO(&set);
                     return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
                   }(),
                   ::sysconf(_SC_NPROCESSORS_ONLN)));
  line("Instruction set in use", isa_name(detect_isa()));
  line("Memory", known(field("/proc/meminfo", "MemTotal")));
  line("Memory available", known(field("/proc/meminfo", "MemAvailable")));
}

void print_gpus() {
  line("Nvidia driver version", known(field("/proc/driver/nvidia/version", "NVRM version")));
  std::error_code none;
  std::set<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", none)) {
    folders.insert(entry.path().string());
  }
  line("CUDA runtime version", collected(first_line(output_of({"nvcc", "--version"}, 5), "release ")));
  int number = 0;
  for (const std::string& folder : folders) {
    line(fmt::format("GPU {}", number++), known(field(folder + "/information", "Model")));
  }
  if (folders.empty()) line("GPUs", "none");
  line("Is CUDA available", !folders.empty() && found("libcuda.so.1") == "yes" ? "True" : "False");
  const char* const loading = "CUDA_MODULE_LOADING";
  for (const auto& [name, value] : app::Environment::of_process()) {
    if (name == loading) line(fmt::format("{} set to", loading), value);
  }
  if (const auto nvml = device::Nvml::open()) {
    for (const device::GpuReading& gpu : nvml->read()) {
      if (gpu.memory_total && gpu.memory_used)
        line("GPU memory", fmt::format("{} of {} MiB in use", *gpu.memory_used >> 20, *gpu.memory_total >> 20));
    }
  }
  for (const char* library :
       {"libcuda.so.1", "libcublasLt.so.13", "libcublasLt.so.12", "libnccl.so.2", "libcurl.so.4"}) {
    line(library, found(library));
  }
  if (const std::string topology = output_of({"nvidia-smi", "topo", "-m"}, 10); !topology.empty()) {
    fmt::print("GPU Topology:\n{}", topology);
  }
}

// "==VERSION" of the first of these packages that is there.
std::string version_of(const PythonFacts& python, std::initializer_list<std::string_view> names) {
  for (const std::string& package : python.packages) {
    for (const std::string_view name : names) {
      if (package.starts_with(name) && package.compare(name.size(), 2, "==") == 0)
        return package.substr(name.size() + 2);
    }
  }
  return {};
}

void print_python() {
  const PythonFacts python = python_facts();
  line("Python version", collected(python.version));
  line("Python platform", collected(python.platform));
  line("PyTorch version", collected(version_of(python, {"torch"})));
  line("Paddle version", collected(version_of(python, {"paddlepaddle", "paddlepaddle-gpu", "paddlepaddle_gpu"})));
  for (const std::string& package : python.packages) fmt::print("[pip3] {}\n", package);
}

bool is_secret(std::string_view name) {
  for (const std::string_view part : {"KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "AUTH"}) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return false;
}

// A user name and password in front of an address.
std::string without_login(std::string value) {
  const size_t scheme = value.find("://"), at = value.find('@', scheme == std::string::npos ? 0 : scheme);
  if (scheme == std::string::npos || at == std::string::npos || value.find('/', scheme + 3) < at) return value;
  return value.replace(scheme + 3, at - scheme - 3, "***");
}

void print_variables() {
  std::vector<std::pair<std::string, std::string>> shown;
  for (const auto& [name, value] : app::Environment::of_process()) {
    bool ours = false;
    for (const std::string_view begin : {"FD_", "TERN_", "CUDA_", "NVIDIA_", "NCCL_", "OMP_", "LD_LIBRARY_PATH",
                                         "MALLOC_", "HF_", "http", "HTTP", "no_proxy"}) {
      ours = ours || name.starts_with(begin);
    }
    for (const app::VariableSpec& spec : app::variable_table()) ours = ours || spec.name == name;
    if (ours) shown.emplace_back(name, is_secret(name) ? "*** (hidden)" : without_login(value));
  }
  std::sort(shown.begin(), shown.end());
  for (const auto& [name, value] : shown) line(name, value);
}

}  // namespace

int run_collect_env(const std::vector<std::string>& args) {
  app::Options options("Says what a report of a fault should: machine, system, GPUs, variables", "tern collect-env");
  if (const auto status = app::parse_options(options, args)) return *status;
  fmt::print("==== System ====\n");
  print_system();
  fmt::print("==== GPUs and libraries ====\n");
  print_gpus();
  fmt::print("==== Python and its packages ====\n");
  print_python();
  fmt::print("==== Variables ====\n");
  print_variables();
  return 0;
}

}  // namespace tern::cli
