// Between protobuf's messages and the values that cross to the server.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>
#include <kserve.pb.h>

#include <string_view>
#include <vector>

#include "serve/kserve/transport.h"

namespace tern::transport {

// The bytes of a message in one piece.
class Bytes {
 public:
  explicit Bytes(const ::grpc::ByteBuffer& buffer) { ok_ = buffer.DumpToSingleSlice(&slice_).ok(); }
  bool ok() const { return ok_; }
  std::string_view view() const { return {reinterpret_cast<const char*>(slice_.begin()), slice_.size()}; }

 private:
  ::grpc::Slice slice_;
  bool ok_ = false;
};

template <class M>
bool parse(std::string_view bytes, M& message) {
  return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

inline ::grpc::Status status_of(const serve::kserve::CallStatus& status) {
  return {static_cast<::grpc::StatusCode>(status.code), status.text};
}

::grpc::ByteBuffer serialize(const google::protobuf::MessageLite& message);

// Views into a parsed request; it must not move.
class RequestView {
 public:
  explicit RequestView(const wire::ModelInferRequest& request);
  serve::kserve::InferRequest request() const;

 private:
  const wire::ModelInferRequest& request_;
  std::vector<serve::kserve::Parameter> parameters_;
  std::vector<serve::kserve::InputTensor> inputs_;
  std::vector<std::vector<std::string_view>> contents_;
  std::vector<std::string_view> outputs_, raw_;
};

// A ModelInferRequest, unless its bytes are none or would become too many objects.
bool parse_request(std::string_view bytes, wire::ModelInferRequest& request);

// Messages of a stream.
::grpc::ByteBuffer answer_message(std::string_view id, std::string_view out, bool last);
::grpc::ByteBuffer error_message(std::string_view id, std::string_view text);

}  // namespace tern::transport
