#include "app/flags.h"

// Flags that FastDeploy does not have.
namespace tern::app {
namespace {
using enum ValueType;
using enum FlagGroup;

constexpr FlagSpec seconds(std::string_view name, std::string_view fallback, std::string_view meaning) {
  return {
      .name = name, .group = kLimits, .type = kFloat, .fallback = fallback, .min = 0.1, .max = 1e6, .meaning = meaning};
}
constexpr FlagSpec count(std::string_view name, std::string_view fallback, double min, double max,
                         std::string_view meaning) {
  return {
      .name = name, .group = kLimits, .type = kInt, .fallback = fallback, .min = min, .max = max, .meaning = meaning};
}

constexpr FlagSpec kFlags[] = {
    {.name = "config", .group = kTern, .meaning = "YAML file of flag: value lines; the command line wins."},
    {.name = "dry-run",
     .group = kTern,
     .type = kBool,
     .fallback = "false",
     .meaning = "Resolves and checks everything, prints it as JSON and ends without reading weights."},
    {.name = "allow-inert-flags",
     .group = kTern,
     .type = kBool,
     .fallback = "false",
     .meaning = "Flags, variables and fields of requests that have no effect in this build pass with a warning instead "
                "of an error."},
    {.name = "device",
     .group = kTern,
     .fallback = "auto",
     .meaning = "auto, cpu, cuda or cuda:N (GPU N of those that CUDA_VISIBLE_DEVICES leaves). auto: GPU 0 when "
                "libtern_cuda.so, a driver and a GPU are there, else the CPU."},
    {.name = "dtype",
     .group = kTern,
     .type = kEnum,
     .fallback = "bfloat16",
     .choices = "bfloat16|float32",
     .meaning = "Precision of weights, activations and cache."},
    {.name = "cpu-threads",
     .group = kTern,
     .type = kInt,
     .derived = "physical cores",
     .min = 1,
     .max = 1024,
     .meaning = "Threads that compute."},
    {.name = "cpu-pin", .group = kTern, .type = kBool, .fallback = "true", .meaning = "Pins each of them to a core."},
    {.name = "io-threads",
     .group = kTern,
     .type = kInt,
     .derived = "from the machine",
     .min = 1,
     .max = 256,
     .meaning = "Threads that move bytes of connections."},
    {.name = "http-threads",
     .group = kTern,
     .type = kInt,
     .derived = "from the machine",
     .min = 1,
     .max = 256,
     .meaning = "Threads for templates, tokenization and the JSON of large bodies."},
    {.name = "watchdog-timeout",
     .group = kTern,
     .type = kFloat,
     .fallback = "30",
     .min = 0,
     .max = 1e6,
     .meaning =
         "Seconds after which a step of a GPU counts as hung: requests get an error, the process ends. 0: never."},
    {.name = "model-override",
     .group = kTern,
     .type = kJson,
     .meaning = "Values that replace those of config.json, such as {\"num_hidden_layers\": 2}."},
    {.name = "prefix-cache-allowance",
     .group = kTern,
     .type = kFloat,
     .fallback = "1",
     .min = 0,
     .max = 1e6,
     .meaning = "Blocks beyond those of all sequences at full length, as a multiple of them, for the prefix cache."},
    {.name = "trace",
     .group = kTern,
     .meaning = "File for a Chrome trace of every step (plan, launch, device, collect); Perfetto shows it."},
    {.name = "allow-request-chat-template",
     .group = kTern,
     .type = kBool,
     .fallback = "false",
     .meaning = "Lets requests bring their own chat_template."},
    {.name = "metrics-open",
     .group = kTern,
     .type = kBool,
     .fallback = "false",
     .meaning = "/metrics needs no key even when one is set."},
    {.name = "original-error-status",
     .group = kTern,
     .type = kBool,
     .fallback = "false",
     .meaning = "Status 500 for client mistakes found after validation, as FastDeploy answers, instead of 400."},

    count("max-connections", "0", 0, 1e7, "Open connections; 0: as many as the file limit allows, less a reserve."),
    count("max-header-bytes", "32768", 1024, 1 << 30, "Request line and headers; beyond it: 431."),
    {.name = "max-body-bytes",
     .group = kLimits,
     .type = kInt,
     .derived = "67108864; 268435456 for models that take pictures",
     .min = 1024,
     .max = 1 << 30,
     .meaning = "Body of a request; beyond it: 413."},
    count("max-json-depth", "64", 4, 512, "Nested arrays and objects of a body."),
    seconds("header-timeout", "10", "Seconds for the head of a request."),
    seconds("idle-timeout", "75", "Seconds that a connection may rest between two requests."),
    seconds("body-timeout", "30", "Seconds without one byte of an announced body."),
    seconds("body-total-timeout", "300", "Seconds for a whole body."),
    seconds("write-stall-timeout", "30", "Seconds in which a client takes none of the bytes that wait for it."),
    count("write-buffer-bytes", "262144", 4096, 1 << 30, "Unsent bytes above which tokens wait unformatted."),
    count("max-held-tokens", "65536", 1, 1 << 30, "Tokens that may wait so; beyond it the request is aborted."),
    count("socket-send-buffer", "0", 0, 1 << 30,
          "Bytes of the kernel's send buffer of a connection; 0: its own choice."),
    count("max-prompts", "256", 1, 1 << 20, "Prompts of one completions request."),
    count("max-messages", "4096", 1, 1 << 20, "Messages of one chat request."),
    count("max-n", "128", 1, 1 << 16, "Samples per prompt."),
    count("max-samples", "1024", 1, 1 << 20, "Prompts times samples of one request."),
    count("max-stop-token-ids", "64", 0, 1 << 16, "Stop token ids of one request."),
    count("max-logit-bias", "1024", 0, 1 << 20, "Logit bias entries of one request."),
    count("max-bad-words", "1024", 0, 1 << 20, "Bad words and ids of one request."),
    count("max-tools", "512", 0, 1 << 16, "Tools of one request."),
    count("max-request-id-bytes", "256", 16, 4096, "Length of request_id and user."),
    count("max-stream-group", "4096", 1, 1 << 20, "Highest max_streaming_response_tokens."),
};
}  // namespace

std::span<const FlagSpec> tern_flags() { return kFlags; }
}  // namespace tern::app
