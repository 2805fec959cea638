#include "cuda/libraries.h"

#include <dlfcn.h>

namespace tern::cuda {

void* open_library(const std::vector<std::string>& names, const std::vector<std::string>& folders) {
  std::vector<std::string> places;
  for (const std::string& f : folders) places.push_back(f + "/");
  places.emplace_back("");
  places.emplace_back("/usr/local/cuda/lib64/");
  for (const std::string& f : folders) {
    for (const char* wheel : {"cu13", "cublas", "nccl"}) places.push_back(f + "/nvidia/" + wheel + "/lib/");
  }
  for (const std::string& place : places) {
    for (const std::string& name : names) {
      if (void* handle = dlopen((place + name).c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) return handle;
    }
  }
  return nullptr;
}

}  // namespace tern::cuda
