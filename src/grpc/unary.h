// Every method but ModelStreamInfer: one message in, one message or a status out.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <cstdint>
#include <string_view>

#include "serve/kserve/transport.h"

namespace tern::transport {

enum class Method : uint8_t {
  kUnknown,
  kServerLive,
  kServerReady,
  kModelReady,
  kServerMetadata,
  kModelMetadata,
  kRepositoryIndex,
  kModelInfer,
  kModelStreamInfer,
  kHealthCheck
};
Method method_of(std::string_view path);

class UnaryCall final : public ::grpc::ServerGenericBidiReactor {
 public:
  // Ends at once with `refused` where that is no success.
  UnaryCall(serve::kserve::Host& host, Method method, const serve::kserve::CallStatus& refused);

 private:
  void OnReadDone(bool ok) override;
  void OnDone() override { delete this; }
  serve::kserve::CallStatus answer(std::string_view request);
  serve::kserve::CallStatus refuse_infer(std::string_view request);

  serve::kserve::Host& host_;
  const Method method_;
  ::grpc::ByteBuffer in_, out_;
};

}  // namespace tern::transport
