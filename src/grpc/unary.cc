#include "grpc/unary.h"

#include <utility>

#include "grpc/messages.h"

namespace tern::transport {
namespace {

using serve::kserve::CallStatus;
using serve::kserve::Code;

constexpr std::string_view kService = "/inference.GRPCInferenceService/";
constexpr std::pair<std::string_view, Method> kMethods[] = {
    {"ServerLive", Method::kServerLive},       {"ServerReady", Method::kServerReady},
    {"ModelReady", Method::kModelReady},       {"ServerMetadata", Method::kServerMetadata},
    {"ModelMetadata", Method::kModelMetadata}, {"RepositoryIndex", Method::kRepositoryIndex},
    {"ModelInfer", Method::kModelInfer},       {"ModelStreamInfer", Method::kModelStreamInfer},
};
constexpr size_t kMostBytes = 64u << 10;  // of a question
constexpr std::string_view kExtensions[] = {"binary_tensor_data", "parameters"};

CallStatus unreadable() { return {Code::kInternal, "the message cannot be read"}; }

void describe(wire::ModelMetadata::Tensor& tensor, const char* name) {
  tensor.set_name(name);
  tensor.set_datatype("BYTES");
  tensor.add_shape(1);
}

wire::ModelMetadata model_metadata() {
  wire::ModelMetadata out;
  out.set_name("model");
  out.add_versions("1");
  out.set_platform("python");
  describe(*out.add_inputs(), "IN");
  describe(*out.add_outputs(), "OUT");
  return out;
}

wire::RepositoryIndexResponse models(bool ready, bool only_ready) {
  wire::RepositoryIndexResponse out;
  if (!ready && only_ready) return out;
  auto& model = *out.add_models();
  model.set_name("model");
  model.set_version("1");
  model.set_state(ready ? "READY" : "UNAVAILABLE");
  return out;
}

wire::Flag flag(bool value) {
  wire::Flag out;
  out.set_value(value);
  return out;
}

}  // namespace

Method method_of(std::string_view path) {
  if (path == "/grpc.health.v1.Health/Check") return Method::kHealthCheck;
  if (!path.starts_with(kService)) return Method::kUnknown;
  path.remove_prefix(kService.size());
  for (const auto& [name, method] : kMethods) {
    if (name == path) return method;
  }
  return Method::kUnknown;
}

UnaryCall::UnaryCall(serve::kserve::Host& host, Call& call, Method method, const CallStatus& refused)
    : host_(host), call_(call), method_(method) {
  call_.set_user(*this);
  if (!refused.ok())
    call_.finish(status_of(refused));
  else if (method == Method::kUnknown)
    call_.finish(::grpc::Status(::grpc::StatusCode::UNIMPLEMENTED, "This server does not have this method"));
  else
    call_.read(in_);
}

void UnaryCall::on_read(bool ok) {
  if (!ok) return call_.finish(::grpc::Status(::grpc::StatusCode::INTERNAL, "a message is missing"));
  const Bytes bytes(in_);
  const CallStatus status = bytes.ok() ? answer(bytes.view()) : unreadable();
  if (status.ok())
    call_.finish(out_);
  else
    call_.finish(status_of(status));
}

CallStatus UnaryCall::refuse_infer(std::string_view request) {
  wire::ModelInferRequest asked;
  if (!parse_request(request, asked)) return unreadable();
  CallStatus model = host_.check_model(asked.model_name(), asked.model_version());
  if (!model.ok()) return model;
  return {Code::kUnimplemented, "ModelInfer RPC doesn't support models with decoupled transaction policy"};
}

CallStatus UnaryCall::answer(std::string_view request) {
  if (method_ == Method::kModelInfer) return refuse_infer(request);
  if (request.size() > kMostBytes) return {Code::kInvalidArgument, "the message is too long"};
  wire::ModelQuery query;
  const bool asks_model = method_ == Method::kModelReady || method_ == Method::kModelMetadata;
  if (asks_model && !parse(request, query)) return unreadable();
  const bool about_server = method_ == Method::kServerLive || method_ == Method::kServerReady;
  if (about_server && host_.stopping()) return {Code::kUnavailable, "Server exiting"};
  switch (method_) {
    case Method::kServerLive:
      out_ = serialize(flag(true));
      return {};
    case Method::kServerReady:
      out_ = serialize(flag(host_.ready()));
      return {};
    case Method::kModelReady: {
      CallStatus model = host_.check_model(query.name(), query.version());
      if (model.text.starts_with("failed to get model version")) return model;
      out_ = serialize(flag(model.ok()));
      return {};
    }
    case Method::kModelMetadata: {
      CallStatus model = host_.check_model(query.name(), query.version());
      if (!model.ok()) return model;
      out_ = serialize(model_metadata());
      return {};
    }
    case Method::kServerMetadata: {
      wire::ServerMetadata out;
      out.set_name("triton");
      out.set_version(std::string(host_.server_version()));
      for (const std::string_view extension : kExtensions) out.add_extensions(std::string(extension));
      out_ = serialize(out);
      return {};
    }
    case Method::kRepositoryIndex: {
      wire::RepositoryIndexRequest asked;
      if (!parse(request, asked)) return unreadable();
      out_ = serialize(models(host_.ready(), asked.ready()));
      return {};
    }
    default: {  // health
      wire::HealthCheckResponse out;
      const bool serves = host_.ready() && !host_.stopping();
      out.set_status(serves ? wire::HealthCheckResponse::SERVING : wire::HealthCheckResponse::NOT_SERVING);
      out_ = serialize(out);
      return {};
    }
  }
}

}  // namespace tern::transport
