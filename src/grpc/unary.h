// Every method but ModelStreamInfer: one message in, one message or a status out.
#pragma once

#include <cstdint>
#include <string_view>

#include "grpc/queue.h"
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

class UnaryCall final : private Call::User {
 public:
  // Ends at once with `refused` where that is no success; deletes itself.
  UnaryCall(serve::kserve::Host& host, Call& call, Method method, const serve::kserve::CallStatus& refused);

 private:
  ~UnaryCall() = default;
  void on_read(bool ok) override;
  void on_ended() override { delete this; }
  serve::kserve::CallStatus answer(std::string_view request);
  serve::kserve::CallStatus refuse_infer(std::string_view request);

  serve::kserve::Host& host_;
  Call& call_;
  const Method method_;
  ::grpc::ByteBuffer in_, out_;
};

}  // namespace tern::transport
