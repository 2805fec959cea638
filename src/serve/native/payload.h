// What comes over gRPC: a JSON list of one request (paddlenlp-server.md 2.3, 3.1). No transport has checked its types.
#pragma once

#include <cstddef>
#include <string>
#include <variant>

#include "json/json.h"
#include "serve/native/errors.h"
#include "serve/native/request.h"

namespace tern::serve::native {

struct Payload {
  std::string req_id;
  size_t requests = 1;  // in the list
  json::Object fields;  // of the first
};

// Step 0b.
std::variant<Payload, Refusal> read_payload(json::Value body);

// Steps 2 and 3.
std::variant<NativeRequest, Refusal> take_payload(Payload& payload);

}  // namespace tern::serve::native
