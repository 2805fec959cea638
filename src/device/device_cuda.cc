#include "device/device_cuda.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <climits>

namespace tern::device {

std::string program_folder() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  if (n <= 0) return {};
  const std::string text(path, static_cast<size_t>(n));
  return text.substr(0, text.rfind('/'));
}

uint64_t cuda_interface() { return TERN_INTERFACE; }

Status check_cuda_library(const CudaLibrary* library, const std::string& path) {
  // In this order: an older table may end before its later fields.
  if (library != nullptr && library->version == kCudaLibraryVersion && library->device_layout == cuda_device_layout() &&
      library->interface == cuda_interface()) {
    return {};
  }
  return make_error(ErrorCode::kUnsupported,
                    fmt::format("{} belongs to another build of this program: install both from one", path), "device");
}

namespace {

Expected<const CudaLibrary*> open_table(void* handle, const std::string& path) {
  using Get = const CudaLibrary* (*)();
  const auto get = reinterpret_cast<Get>(dlsym(handle, kCudaLibrarySymbol));
  const CudaLibrary* library = get == nullptr ? nullptr : get();
  TERN_RETURN_IF_ERROR(check_cuda_library(library, path));
  return library;
}

}  // namespace

Expected<const CudaLibrary*> load_cuda_library(const std::vector<std::string>& folders) {
  std::vector<std::string> paths;
  for (const std::string& f : folders) paths.push_back(f + "/" + kCudaLibraryName);
  if (const std::string own = program_folder(); !own.empty()) {
    paths.push_back(own + "/" + kCudaLibraryName);
    paths.push_back(own + "/../cuda/" + kCudaLibraryName);
  }
  paths.emplace_back(kCudaLibraryName);
  for (const std::string& path : paths) {
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) return open_table(handle, path);
    // A file that is there and does not load is not passed over for another one.
    const char* text = dlerror();
    if (path.find('/') != std::string::npos && access(path.c_str(), F_OK) == 0) {
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("the CUDA side cannot be loaded: {}", text == nullptr ? path : text), "device");
    }
  }
  return make_error(ErrorCode::kNotFound,
                    fmt::format("there is no {} beside the program or where the system looks; make cuda builds it, "
                                "TERN_CUDA_LIBRARY names its folder",
                                kCudaLibraryName),
                    "device");
}

}  // namespace tern::device
