#include "grpc/messages.h"

#include <cstring>

#include "serve/kserve/wire.h"

namespace tern::transport {
namespace {

using serve::kserve::Parameter;

constexpr size_t kMostFields = 4096;  // of a request, those of its tensors counted

Parameter::Kind kind_of(const wire::InferParameter& parameter) {
  switch (parameter.choice_case()) {
    case wire::InferParameter::kBoolParam:
      return Parameter::Kind::kBool;
    case wire::InferParameter::kInt64Param:
      return Parameter::Kind::kInt64;
    case wire::InferParameter::kStringParam:
      return Parameter::Kind::kText;
    case wire::InferParameter::kDoubleParam:
      return Parameter::Kind::kDouble;
    case wire::InferParameter::kUint64Param:
      return Parameter::Kind::kUint64;
    default:
      return Parameter::Kind::kNone;
  }
}

void set_model(wire::ModelInferResponse& response, std::string_view id, bool last) {
  response.set_model_name("model");
  response.set_model_version("1");
  response.set_id(id.data(), id.size());
  (*response.mutable_parameters())["triton_final_response"].set_bool_param(last);
}

}  // namespace

::grpc::ByteBuffer serialize(const google::protobuf::MessageLite& message) {
  const size_t size = message.ByteSizeLong();
  grpc_slice bytes = grpc_slice_malloc(size);
  message.SerializeWithCachedSizesToArray(GRPC_SLICE_START_PTR(bytes));
  const ::grpc::Slice slice(bytes, ::grpc::Slice::STEAL_REF);
  return {&slice, 1};
}

RequestView::RequestView(const wire::ModelInferRequest& request) : request_(request) {
  for (const auto& [name, parameter] : request.parameters()) {
    parameters_.push_back({name, kind_of(parameter), parameter.bool_param()});
  }
  contents_.reserve(static_cast<size_t>(request.inputs_size()));
  for (const auto& input : request.inputs()) {
    auto& elements = contents_.emplace_back();
    for (const std::string& element : input.contents().bytes_contents()) elements.emplace_back(element);
    inputs_.push_back({input.name(),
                       input.datatype(),
                       {input.shape().data(), static_cast<size_t>(input.shape_size())},
                       input.has_contents(),
                       elements});
  }
  for (const auto& output : request.outputs()) outputs_.emplace_back(output.name());
  for (const std::string& raw : request.raw_input_contents()) raw_.emplace_back(raw);
}

serve::kserve::InferRequest RequestView::request() const {
  return {request_.model_name(), request_.model_version(), request_.id(), parameters_, inputs_, outputs_, raw_};
}

bool parse_request(std::string_view bytes, wire::ModelInferRequest& request) {
  return serve::kserve::few_fields(bytes, kMostFields) && parse(bytes, request);
}

::grpc::ByteBuffer answer_message(wire::ModelStreamInferResponse& scratch, std::string_view id, std::string_view out,
                                  bool last) {
  wire::ModelInferResponse& response = *scratch.mutable_infer_response();
  if (response.outputs_size() == 0) {
    auto& output = *response.add_outputs();
    output.set_name("OUT");
    output.set_datatype("BYTES");
    output.add_shape(1);
    response.add_raw_output_contents();
  }
  set_model(response, id, last);
  std::string& raw = *response.mutable_raw_output_contents(0);
  raw.clear();
  for (int shift = 0; shift < 32; shift += 8) raw += static_cast<char>(out.size() >> shift & 0xff);
  raw += out;
  return serialize(scratch);
}

::grpc::ByteBuffer error_message(std::string_view id, std::string_view text) {
  wire::ModelStreamInferResponse message;
  message.set_error_message(text.data(), text.size());
  set_model(*message.mutable_infer_response(), id, true);
  return serialize(message);
}

}  // namespace tern::transport
