#include "app/paddlenlp/grpc_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "device/device_cuda.h"

namespace tern::app {

Expected<GrpcLibrary> load_grpc_library() {
  const std::string path = device::program_folder() + "/" + serve::kserve::kLibraryName;
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const start = handle == nullptr ? nullptr : dlsym(handle, serve::kserve::kStartSymbol);
  if (start != nullptr) return GrpcLibrary{reinterpret_cast<serve::kserve::Start>(start)};
  const char* const why = dlerror();
  return make_error(
      ErrorCode::kUnsupported,
      fmt::format("gRPC cannot be loaded: {}; SERVICE_GRPC_PORT=0 starts without it", why == nullptr ? path : why),
      "SERVICE_GRPC_PORT");
}

}  // namespace tern::app
