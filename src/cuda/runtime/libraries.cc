#include "cuda/runtime/libraries.h"

#include <dlfcn.h>

namespace tern::cuda {

void* open_library(const std::vector<std::string>& names, const LibraryPlaces& places) {
  std::vector<std::string> tried;
  const auto wheels = [&](const std::vector<std::string>& folders) {
    for (const std::string& f : folders) {
      for (const char* wheel : {"cu13", "cublas", "nccl"}) tried.push_back(f + "/nvidia/" + wheel + "/lib/");
    }
  };
  for (const std::string& f : places.first) tried.push_back(f + "/");
  wheels(places.first);
  for (const char* known : {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/targets/x86_64-linux/lib/"}) {
    tried.emplace_back(known);
  }
  for (const std::string& f : places.last) tried.push_back(f + "/");
  wheels(places.last);
  for (const std::string& place : tried) {
    for (const std::string& name : names) {
      if (void* handle = dlopen((place + name).c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) return handle;
    }
  }
  return nullptr;
}

}  // namespace tern::cuda
