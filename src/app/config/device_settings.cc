#include "app/config/device_settings.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "app/flags/flags.h"
#include "base/cpu_isa.h"
#include "base/log.h"
#include "ops/loaded_backend.h"

namespace tern::app {
namespace {

constexpr const char* kBlasFile = "/cublaslt";

// Folders where Python keeps packages: `root`/python3*/`leaf`, in the order of their names.
void add_python_folders(const std::string& root, const char* leaf, std::vector<std::string>& out) {
  DIR* folder = ::opendir(root.c_str());
  if (folder == nullptr) return;
  std::vector<std::string> found;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string_view name(entry->d_name);
    if (!name.starts_with("python3")) continue;
    std::string path = fmt::format("{}/{}/{}", root, name, leaf);
    if (::access(path.c_str(), X_OK) == 0) found.push_back(std::move(path));
  }
  ::closedir(folder);
  std::sort(found.begin(), found.end());
  out.insert(out.end(), found.begin(), found.end());
}

std::vector<std::string> further_folders(const Environment& environment) {
  std::vector<std::string> folders;
  if (std::string own = device::program_folder(); !own.empty()) folders.push_back(std::move(own));
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string home = environment.text(variable); !home.empty())
      add_python_folders(home + "/lib", "site-packages", folders);
  }
  if (const std::string home = environment.text("HOME"); !home.empty())
    add_python_folders(home + "/.local/lib", "site-packages", folders);
  add_python_folders("/usr/local/lib", "dist-packages", folders);
  add_python_folders("/usr/local/lib", "site-packages", folders);
  add_python_folders("/usr/lib", "dist-packages", folders);
  if (::access("/usr/lib/python3/dist-packages", X_OK) == 0) folders.emplace_back("/usr/lib/python3/dist-packages");
  return folders;
}

// "" when there is no folder to keep anything in.
std::string cache_folder(const Environment& environment) {
  std::string root = environment.text("XDG_CACHE_HOME");
  if (root.empty() || root[0] != '/') {
    root = environment.text("HOME");
    if (root.empty() || root[0] != '/') return {};
    root += "/.cache";
  }
  (void)::mkdir(root.c_str(), 0700);
  root += "/tern";
  (void)::mkdir(root.c_str(), 0700);
  return ::access(root.c_str(), W_OK) == 0 ? root : "";
}

bool driver_seems_installed() {
  return ::access("/proc/driver/nvidia/version", F_OK) == 0 || ::access("/dev/nvidiactl", F_OK) == 0 ||
         ::access("/dev/dxg", F_OK) == 0;
}

struct CudaAttempt {
  bool found = false;  // the library is there
  int visible = 0;     // GPUs
  Expected<OpenedDevice> open = Error{};
};

CudaAttempt try_cuda(const DeviceSettings& settings, const CudaMachine& machine) {
  CudaAttempt attempt;
  const auto library = machine.load(settings.cuda_folders);
  attempt.found = library.ok() || library.error().code != ErrorCode::kNotFound;
  attempt.open = [&]() -> Expected<OpenedDevice> {
    if (!library.ok()) return library.error();
    TERN_RETURN_IF_ERROR(ops::register_cuda_ops(**library));
    TERN_ASSIGN_OR_RETURN(const int count, (*library)->device_count());
    attempt.visible = count;
    if (settings.cuda.ordinal >= count) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("--device cuda:{}: the driver shows {} GPU{}", settings.cuda.ordinal, count,
                                    count == 1 ? "" : "s"),
                        "device");
    }
    OpenedDevice open;
    TERN_ASSIGN_OR_RETURN(open.device, (*library)->make_device(settings.cuda));
    open.library = *library;
    open.deterministic = settings.cuda.deterministic;
    return open;
  }();
  return attempt;
}

}  // namespace

Expected<DeviceSettings> device_settings(std::string_view device, const device::CpuOptions& cpu,
                                         const Environment& environment) {
  DeviceSettings s;
  s.cpu = cpu;
  s.cpu_isa = environment.text("TERN_CPU_ISA");
  if (device == "cpu") {
    s.choice = DeviceChoice::kCpu;
  } else if (device == "cuda") {
    s.choice = DeviceChoice::kCuda;
  } else if (device.starts_with("cuda:")) {
    s.choice = DeviceChoice::kCuda;
    const std::string_view digits = device.substr(5);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), s.cuda.ordinal);
    if (error != std::errc() || end != digits.data() + digits.size() || s.cuda.ordinal < 0) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("--device \"{}\": what stands behind the colon is not the number of a GPU", device),
                        "device");
    }
  } else if (device != "auto") {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("--device \"{}\" is none of auto, cpu, cuda, cuda:N", device), "device");
  }
  const std::string folders = environment.text("TERN_CUDA_LIBRARY");
  for (const std::string_view folder : split(folders, ':')) {
    if (!folder.empty()) s.cuda_folders.emplace_back(folder);
  }
  s.cuda.arch_limit = static_cast<int>(environment.integer("TERN_CUDA_ARCH"));
  s.cuda.shared_memory_limit = static_cast<int>(environment.integer("TERN_CUDA_SMEM_LIMIT"));
  s.cuda.microbatches = static_cast<int>(environment.integer("TERN_CUDA_MICROBATCHES"));
  s.cuda.cublaslt = environment.boolean("TERN_CUDA_CUBLASLT");
  s.cuda.deterministic = environment.boolean("FD_DETERMINISTIC_MODE");
  s.cuda.pdl = environment.boolean("FD_ENABLE_PDL");
  s.cuda.search_folders = s.cuda_folders;
  if (s.choice != DeviceChoice::kCpu) {
    s.cuda.more_folders = further_folders(environment);
    if (const std::string folder = cache_folder(environment); !folder.empty()) {
      s.cuda.blas_cache_file = folder + kBlasFile;
    }
  }
  return s;
}

Expected<OpenedDevice> open_device(const DeviceSettings& settings, const CudaMachine& machine) {
  // Of pictures and Base64 too, whatever the device is.
  if (!settings.cpu_isa.empty()) {
    Isa isa{};
    if (!parse_isa(settings.cpu_isa, &isa)) {
      return make_error(ErrorCode::kInvalidArgument, "TERN_CPU_ISA: unknown instruction set " + settings.cpu_isa,
                        "TERN_CPU_ISA");
    }
    TERN_RETURN_IF_ERROR(set_isa(isa));
  }
  if (settings.choice != DeviceChoice::kCpu) {
    CudaAttempt attempt = try_cuda(settings, machine);
    // Of several engines one that lacks a GPU does not turn to the CPU.
    const bool too_few = attempt.visible > 0 && settings.cuda.ordinal >= attempt.visible;
    if (attempt.open.ok() || settings.choice == DeviceChoice::kCuda || too_few) return std::move(attempt.open);
    if (attempt.found || (machine.shows_gpu ? machine.shows_gpu() : driver_seems_installed())) {
      TERN_INFO("--device auto takes the CPU: {}", attempt.open.error().message);
    }
  }
  OpenedDevice open;
  TERN_ASSIGN_OR_RETURN(open.device, device::make_cpu_device(settings.cpu));
  return open;
}

void keep_learned(const OpenedDevice& open) {
  if (open.library == nullptr || open.library->save_blas_cache == nullptr) return;
  if (const Status s = open.library->save_blas_cache(open.device->stream()); !s.ok()) {
    TERN_DEBUG("{}", s.error().message);
  }
}

}  // namespace tern::app
