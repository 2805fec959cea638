#include "grpc/messages.h"

#include <bit>
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

// Protobuf's bytes, written one behind the other.
class Writer {
 public:
  explicit Writer(uint8_t* to) : at_(to) {}
  void tag(uint32_t field, size_t size) {
    *at_++ = static_cast<uint8_t>(field << 3 | 2);  // of bytes, or of a message
    varint(size);
  }
  void varint(size_t value) {
    for (; value >= 0x80; value >>= 7) *at_++ = static_cast<uint8_t>(value | 0x80);
    *at_++ = static_cast<uint8_t>(value);
  }
  void bytes(std::string_view bytes) {
    if (!bytes.empty()) std::memcpy(at_, bytes.data(), bytes.size());
    at_ += bytes.size();
  }

 private:
  uint8_t* at_;
};

size_t varint_size(size_t value) { return (static_cast<size_t>(std::bit_width(value | 1)) + 6) / 7; }
size_t field_size(size_t size) { return 1 + varint_size(size) + size; }  // of fields below 16

// Fields of ModelInferResponse that every answer has, as protobuf writes them: model_name and model_version; parameters
// with triton_final_response, whose value is the last byte; outputs with OUT.
constexpr std::string_view kModel = "\x0a\x05model\x12\x01\x31";
constexpr std::string_view kFinal = "\x22\x1b\x0a\x15triton_final_response\x12\x02\x08";
constexpr std::string_view kOutput =
    "\x2a\x0f\x0a\x03OUT\x12\x05"
    "BYTES\x1a\x01\x01";
enum Field : uint32_t { kInferResponse = 2, kId = 3, kRawOutput = 6 };

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

// Per token: by hand, which takes a quarter of the time of protobuf's objects.
::grpc::ByteBuffer answer_message(std::string_view id, std::string_view out, bool last) {
  const size_t raw = 4 + out.size();
  const size_t response =
      kModel.size() + (id.empty() ? 0 : field_size(id.size())) + kFinal.size() + 1 + kOutput.size() + field_size(raw);
  grpc_slice bytes = grpc_slice_malloc(field_size(response));
  Writer to(GRPC_SLICE_START_PTR(bytes));
  to.tag(kInferResponse, response);
  to.bytes(kModel);
  if (!id.empty()) {
    to.tag(kId, id.size());
    to.bytes(id);
  }
  to.bytes(kFinal);
  to.varint(last ? 1 : 0);
  to.bytes(kOutput);
  to.tag(kRawOutput, raw);
  char length[4];
  for (unsigned i = 0; i < 4; ++i) length[i] = static_cast<char>(out.size() >> (8 * i) & 0xff);
  to.bytes({length, 4});
  to.bytes(out);
  const ::grpc::Slice slice(bytes, ::grpc::Slice::STEAL_REF);
  return {&slice, 1};
}

::grpc::ByteBuffer error_message(std::string_view id, std::string_view text) {
  wire::ModelStreamInferResponse message;
  message.set_error_message(text.data(), text.size());
  wire::ModelInferResponse& response = *message.mutable_infer_response();
  response.set_model_name("model");
  response.set_model_version("1");
  response.set_id(id.data(), id.size());
  (*response.mutable_parameters())["triton_final_response"].set_bool_param(true);
  return serialize(message);
}

}  // namespace tern::transport
