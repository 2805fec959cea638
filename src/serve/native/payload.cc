#include "serve/native/payload.h"

#include <fmt/format.h>

namespace tern::serve::native {

std::variant<Payload, Refusal> read_payload(json::Value body) {
  json::Array* const list = body.if_array();
  if (list == nullptr) return unexpected("the payload is no list of requests");
  if (list->empty()) return unexpected("list index out of range");
  json::Object* const fields = list->front().if_object();
  if (fields == nullptr) return unexpected("the request is no object");
  const json::Value* const id = json::find(*fields, "req_id");
  if (id == nullptr) return unexpected("'req_id'");
  if (!id->is_string()) return unexpected("req_id is no text");
  return Payload{std::string(id->get_string()), list->size(), std::move(*fields)};
}

std::variant<NativeRequest, Refusal> take_payload(Payload& payload) {
  if (payload.requests != 1) {
    return Refusal{kRefused,
                   fmt::format("request data should not be empty and query num {} should be 1", payload.requests),
                   payload.req_id};
  }
  const auto messages = check_fields(payload.fields);
  if (!messages.empty()) return Refusal{kRefused, python_list(messages), payload.req_id};
  json::Value* const end = payload.fields.if_contains("eos_token_ids");
  if (end != nullptr && end->is_int64()) *end = json::Array{*end};
  Faults faults;
  check_types(payload.fields, faults);  // those that the checks leave open
  if (!faults.empty()) return unexpected(faults.first());
  NativeRequest request = take_request(payload.fields);
  request.grpc = true;
  request.stream = true;
  request.timeout = 0;  // is HTTP's
  return request;
}

}  // namespace tern::serve::native
