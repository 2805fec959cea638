// libtern_grpc.so, which is loaded only where a gRPC port is asked for.
#pragma once

#include "base/error.h"
#include "serve/kserve/transport.h"

namespace tern::app {

struct GrpcLibrary {
  serve::kserve::Start start = nullptr;
};
// From the folder of the program. It stays loaded.
Expected<GrpcLibrary> load_grpc_library();

}  // namespace tern::app
