#include "app/flags.h"

// Spec fastdeploy.md 1.2.
namespace tern::app {
namespace {
using enum ValueType;
constexpr FlagGroup kHere = FlagGroup::kServer;

constexpr FlagSpec kFlags[] = {
    {.name = "host", .group = kHere, .fallback = "0.0.0.0", .meaning = "Address the public ports bind to."},
    {.name = "port", .group = kHere, .type = kInt, .fallback = "8000", .min = 0, .max = 65535,
     .meaning = "Port of the OpenAI protocol; 0 takes a free one and prints it."},
    {.name = "workers", .group = kHere, .type = kInt, .derived = "one process", .min = 1, .max = 1024,
     .support = Support::kInert, .meaning = "HTTP worker processes.",
     .reason = "one process serves all connections; --io-threads and --http-threads set its threads"},
    {.name = "metrics-port", .group = kHere, .type = kInt, .derived = "the main port", .min = 0, .max = 65535,
     .meaning = "Port of /metrics and /config-info; unset or equal to --port: on the main port."},
    {.name = "controller-port", .group = kHere, .type = kInt, .fallback = "-1", .min = -1, .max = 65535,
     .meaning = "Port of the scheduler control routes; below 0: off."},
    {.name = "max-waiting-time", .group = kHere, .type = kInt, .fallback = "-1", .min = -1, .max = 1e9,
     .meaning = "Seconds a request may wait for a place in the engine; -1: for ever."},
    {.name = "max-concurrency", .group = kHere, .type = kInt, .fallback = "2048", .min = 1, .max = 1e6,
     .meaning = "Open requests accepted; beyond it: 429."},
    {.name = "timeout", .group = kHere, .type = kInt, .fallback = "0", .min = 0, .max = 1e9,
     .support = Support::kInert, .meaning = "Time limit of a worker process.",
     .reason = "there are no worker processes to time out"},
    {.name = "timeout-graceful-shutdown", .group = kHere, .type = kInt, .fallback = "0", .min = 0, .max = 1e9,
     .meaning = "Seconds that open requests may take to finish after SIGTERM or SIGINT; 0: none."},
    {.name = "api-key", .group = kHere, .type = kRepeated, .derived = "FD_API_KEY",
     .meaning = "Bearer key that clients must send; may be given several times."},
    {.name = "enable-mm-output", .group = kHere, .type = kBool, .fallback = "false",
     .meaning = "Responses carry multimodal_content."},
};
}  // namespace

std::span<const FlagSpec> server_flags() { return kFlags; }
}  // namespace tern::app
