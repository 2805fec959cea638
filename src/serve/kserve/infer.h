// What KServe v2 asks of a request for PaddleNLP's one model (paddlenlp-server.md 3.3 to 3.5): names, inputs,
// parameters, and the payload in its input. Pure.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>
#include <variant>

#include "serve/kserve/transport.h"

namespace tern::serve::kserve {

inline constexpr std::string_view kModelName = "model", kModelVersion = "1", kInput = "IN", kOutput = "OUT";

// Whether a request may name the model. `ready`: the engine runs.
CallStatus check_model(std::string_view model, std::string_view version, bool ready);

struct InferLimits {
  size_t name_bytes = 256;
  size_t shown_names = 16;  // of a client's own names, in an error
};

// The text that the input's one element holds, or what is wrong.
std::variant<std::string_view, CallStatus> read_infer(const InferRequest& request, bool ready,
                                                      const InferLimits& limits);

// A peer as gRPC writes it ("ipv4:192.0.2.7:81", "ipv6:%5B::1%5D:81") as an address; any other: of no family.
sockaddr_storage address_of(std::string_view peer);

// "IN is not JSON", and what fails outside the checks.
CallStatus failed_to_process(std::string_view what);

// `json` with every character beyond ASCII as \uXXXX; they stand in its strings alone. It must be valid UTF-8.
void append_ascii(std::string& out, std::string_view json);

}  // namespace tern::serve::kserve
